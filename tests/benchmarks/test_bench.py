"""Every measurement runs, at a size where it takes seconds, and its record can be read again."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.commands.bench import app as bench
from conftest import INTERPRETED, needs_gpu
from robustmf.cli import app
from robustmf.datasets import make_tracks

ROOT = Path(__file__).parents[2]

#: How to make each small.
SMALL = {
    "mm": "--scale 0.001",
    "baselines": "--scale 0.001",
    "irls": "--scale 0.001",
    "estimator": "--seeds 1",
    "peers": "--scale 0.001",
    "netflix": "--entries 1e5 --sweeps 2",
    "cluster": "--entries 2e4 --small 1e4 --workers 2 --turns 1",
    "growth": "--scale 0.001 --page growth.html",
    "loading": "--entries 1e4 --netflix-entries 1e4",
    "audit": "--entries 2e4 --runs 1",
    "accuracy": "--data-seeds 1 --starts 1 --jobs 1",
    "breakdown": "--runs 1 --peer-runs 0 --jobs 1",
    "calibration": "--seeds 1",
    "defaults": "--only 'm = 500, noise 0.1, × 1000'",
    "dinosaur": "--seeds 1 --data data",
    "detection": "--seeds 1 --data data",
    "gpu": "--entries 2e5 --movielens 2e4",
}


def names():
    return {one.name or one.callback.__name__ for one in bench.registered_commands}


def test_every_measurement_is_run():
    assert names() == set(SMALL)


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """Files of the official form, made up: a few tracks, and 3,000 ratings by 150 users."""
    folder = tmp_path_factory.mktemp("data")
    tracks = make_tracks(60, random_state=0).observed.to_sparse().toarray().T
    (folder / "dinosaur").mkdir()
    np.savetxt(folder / "dinosaur" / "viff.xy", np.where(tracks == 0, -1, tracks), fmt="%.3f")
    rng = np.random.default_rng(0)
    users, movies = np.divmod(rng.choice(150 * 120, 3_000, replace=False), 120)
    lines = [
        f"{u + 1},{v + 1},{s / 2},0"
        for u, v, s in zip(users, movies, rng.integers(1, 11, 3_000), strict=True)
    ]
    (folder / "ml-latest-small").mkdir()
    (folder / "ml-latest-small" / "ratings.csv").write_text(
        "\n".join(["userId,movieId,rating,timestamp", *lines, ""])
    )
    return folder


on_a_gpu = pytest.mark.skipif(
    INTERPRETED, reason="needs a GPU: Triton's interpreter would take hours"
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[needs_gpu, on_a_gpu] if name == "gpu" else []) for name in SMALL],
)
def test_measurement_runs_small(name, small_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(small_data)
    result = CliRunner().invoke(
        app,
        ["bench", name, *shlex.split(SMALL[name]), "--record", "record.json"],
        env={"COLUMNS": "200"},
    )
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads((tmp_path / "record.json").read_text())


def test_without_a_card_the_gpu_measurement_says_so_in_one_line():
    if importlib.util.find_spec("torch"):
        pytest.skip("torch is here")
    result = CliRunner().invoke(app, ["bench", "gpu"])
    assert result.exit_code != 0
    assert "gpu" in result.output.splitlines()[-1]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.stem
)
def test_measurements_that_pages_name_exist(page):
    for name in re.findall(r"robustmf bench (\w+)", page.read_text(encoding="utf-8")):
        assert name in names(), name
