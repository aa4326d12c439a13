"""The README: its commands run, its code runs, its figures are those of the records."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.page import readme_table
from robustmf.cli import app
from stress import checks

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(program):
    """Return the indented lines that call a program, without their comments."""
    return [
        line.split(" #")[0].strip()
        for line in README.splitlines()
        if line.startswith(f"    {program} ")
    ]


def test_code_runs(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert blocks
    for block in blocks:
        exec(block, {})
    assert "entries are bad" in capsys.readouterr().out


def test_make_targets_are_those_that_ci_runs():
    """Every ``make`` command of the README runs in a clean clone before a change is merged."""
    pipeline = (ROOT / ".ci" / "run").read_text()
    listed = commands("make")
    assert {"make demo", "make test"} <= set(listed)
    for command in listed:
        assert re.search(rf"\b{command}\b", pipeline), command


def test_a_ratings_file_is_cleaned_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    taste = rng.normal(size=(120, 2))
    style = rng.normal(size=(80, 2))
    lines = [
        f"{user},{item},{np.clip(3 + taste[user] @ style[item], 0.5, 5):.1f}"
        for user in range(120)
        for item in rng.permutation(80)[:40]
    ]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    listed = commands("robustmf")
    assert len(listed) >= 4
    for command in listed:
        result = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "200"})
        assert result.exit_code == 0, (command, result.output, result.exception)
    assert (tmp_path / "fit.html").exists()


def test_figures_are_those_of_the_records():
    assert readme_table().strip() in README


def test_is_short():
    assert len(README.splitlines()) < 120


def test_links_lead_to_files():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


def test_record_of_the_stress_tests_has_all_of_them():
    record = json.loads((ROOT / "benchmarks" / "records" / "stress.json").read_text())
    assert {line["check"] for line in record["checks"]} == set(checks.names())
    assert all(line["cases"] > 0 for line in record["checks"])


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_picture_is_what_its_script_draws(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    spec = importlib.util.spec_from_file_location(
        "picture", ROOT / "docs" / "tools" / "readme_figure.py"
    )
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    picture.draw().savefig(tmp_path / "drawn.png", dpi=160)
    drawn, kept = (
        image.imread(path)[..., :3]
        for path in (tmp_path / "drawn.png", ROOT / "docs" / "assets" / "readme.png")
    )
    assert drawn.shape == kept.shape
    # fonts differ slightly between releases of Matplotlib; another fit would differ everywhere
    assert np.abs(drawn - kept).mean() < 0.01
