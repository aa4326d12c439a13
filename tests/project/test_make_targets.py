"""Make targets: those named in the documentation exist, and those that CI does not run work."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stress import soak

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_make_targets_named_in_the_documentation_exist(page):
    for target in set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))):
        result = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_soak_reports_growth():
    command = [sys.executable, "-m", "stress.soak", "--minutes", "0.1"]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode in (0, 1), result.stderr
    assert re.search(
        r"\d+ rounds in [\d.]+ min; growth from the second quarter to the last: memory",
        result.stdout,
    )
    assert result.stdout.splitlines()[-1].startswith(
        "grown: " if result.returncode else "nothing has grown"
    )


@pytest.mark.parametrize(
    ("what", "step"), [("memory", 1 << 20), ("open files", 1), ("threads", 1), ("objects", 5_000)]
)
def test_soak_detects_growth(what, step, capsys):
    flat = {"memory": 100 << 20, "open files": 5, "threads": 1, "objects": 200_000}
    steady = [(float(minute), dict(flat)) for minute in range(60)]
    assert soak.report_growth(steady, 100) == 0
    growing = [(minute, held | {what: held[what] + step * int(minute)}) for minute, held in steady]
    assert soak.report_growth(growing, 100) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"grown: {what}"


def test_oldest_pins_every_lower_bound():
    """``make oldest`` takes a quarter of an hour; ``test_environments.py`` runs a part of it."""
    result = subprocess.run(
        [sys.executable, ".ci/lower_bounds.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    pinned = result.stdout.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for bound in [*project["dependencies"], *project["optional-dependencies"]["dask"]]:
        assert bound.replace(">=", "==") in pinned
    assert all(re.fullmatch(r"[\w.\[\],-]+(==|<)[\d.]+", one) for one in pinned), pinned
