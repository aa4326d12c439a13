"""Every measurement runs, at a size where it takes seconds, and its record can be read again."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robustmf.cli import app
from robustmf.cli.bench import app as bench

ROOT = Path(__file__).parents[1]

#: How to make each small.
SMALL = {
    "mm": "--scale 0.001",
    "baselines": "--scale 0.001",
    "irls": "--scale 0.001",
    "estimator": "--seeds 1",
    "peers": "--scale 0.001",
    "netflix": "--entries 1e5 --sweeps 2",
    "cluster": "--entries 2e4 --small 1e4",
    "growth": "--scale 0.001 --page growth.html",
    "loading": "--entries 1e4 --netflix-entries 1e4",
    "audit": "--entries 2e4 --runs 1",
    "accuracy": "--data-seeds 1 --starts 1 --jobs 1",
    "breakdown": "--runs 1 --peer-runs 0 --jobs 1",
    "calibration": "--seeds 1",
    "defaults": "--only 'm = 500, noise 0.1, × 1000'",
}

#: What cannot be made small, or needs what is not everywhere; the tests named run its parts.
ELSEWHERE = {"gpu": "tests/test_device.py", "dinosaur": "tests/test_varpro.py", "detection": "tests/test_detection_experiment.py"}


def names():
    return {one.name or one.callback.__name__ for one in bench.registered_commands}


def test_every_measurement_is_run():
    assert names() == set(SMALL) | set(ELSEWHERE)
    for place in ELSEWHERE.values():
        assert (ROOT / place).exists()


@pytest.mark.parametrize("name", SMALL)
def test_measurement_runs_small(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["bench", name, *shlex.split(SMALL[name]), "--record", "record.json"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads((tmp_path / "record.json").read_text())


def test_without_a_card_the_gpu_measurement_says_so_in_one_line():
    if importlib.util.find_spec("torch"):
        pytest.skip("torch is here")
    result = CliRunner().invoke(app, ["bench", "gpu"])
    assert result.exit_code != 0
    assert "gpu" in result.output.splitlines()[-1]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.stem)
def test_measurements_that_pages_name_exist(page):
    for name in re.findall(r"robustmf bench (\w+)", page.read_text(encoding="utf-8")):
        assert name in names(), name
