"""Every benchmark runs at its smallest size, and its record can be read again."""

from __future__ import annotations

import importlib.util
import json
import pickle
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks import records, registry
from benchmarks.__main__ import COMMANDS, main
from conftest import INTERPRETED, needs_gpu
from robustmf.datasets import make_tracks

ROOT = Path(__file__).parents[2]

#: Benchmarks that take at most a few seconds at their smallest size.
QUICK = ("growth", "holdout")

#: Benchmarks that read files.
READS_DATA = ("defaults", "detection", "dinosaur")

needs_real_gpu = pytest.mark.skipif(INTERPRETED, reason="Triton's interpreter would take hours")


def marks(name):
    if name == "gpu":
        return [needs_gpu, needs_real_gpu]
    return [] if name in QUICK else [pytest.mark.slow]


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """Files in the official formats: a few tracks, and 3,000 random ratings by 150 users."""
    folder = tmp_path_factory.mktemp("data")
    tracks = make_tracks(60, random_state=0).observed.to_sparse().toarray().T
    (folder / "dinosaur").mkdir()
    np.savetxt(folder / "dinosaur" / "viff.xy", np.where(tracks == 0, -1, tracks), fmt="%.3f")
    rng = np.random.default_rng(0)
    users, movies = np.divmod(rng.choice(150 * 120, 3_000, replace=False), 120)
    stars = rng.integers(1, 11, 3_000) / 2
    rows = [f"{u + 1},{v + 1},{s},0" for u, v, s in zip(users, movies, stars, strict=True)]
    text = "\n".join(["userId,movieId,rating,timestamp", *rows, ""])
    (folder / "ml-latest-small").mkdir()
    (folder / "ml-latest-small" / "ratings.csv").write_text(text)
    return folder


def run_here(work, *given, limit=None):
    """In place of ``in_new_process``, whose imports would take longer than small works."""
    work, given = pickle.loads(pickle.dumps((work, given)))
    try:
        return pickle.loads(pickle.dumps(work(*given)))
    except Exception as error:
        raise RuntimeError(repr(error)) from None


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks(n)) for n in registry.NAMES])
def test_benchmark_runs_small(name, small_data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(registry.load(name), "in_new_process", run_here, raising=False)
    output = tmp_path / "record.json"
    data = ["--data", str(small_data)] if name in READS_DATA else []
    assert main([name, "--small", "--output", str(output), *data]) == 0
    record = json.loads(output.read_text())
    assert set(record) == {
        "benchmark",
        "commit",
        "date",
        "versions",
        "machine",
        "numerical_version",
        "settings",
        "results",
    }
    assert record["benchmark"] == name
    assert {"python", "numpy"} <= set(record["versions"])
    assert set(registry.load(name).SMALL) <= set(record["settings"])
    assert registry.load(name).table(record["results"]) in capsys.readouterr().out


@pytest.mark.parametrize("name", registry.NAMES)
def test_benchmark_has_a_description_and_reads_its_record(name):
    assert registry.description(name).endswith(".")
    if (records.FOLDER / f"{name}.json").exists():
        record = records.load(name)
        assert record["benchmark"] == name
        assert record["commit"]
        assert registry.load(name).table(record["results"]).count("|---|") >= 1


def test_every_record_belongs_to_a_benchmark():
    names = {path.stem for path in records.FOLDER.glob("*.json")}
    assert names - {"stress"} <= set(registry.NAMES)


def test_list_names_every_benchmark_and_command(capsys):
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in (*registry.NAMES, *COMMANDS))


def test_unknown_names_and_small_records_are_refused(capsys):
    assert main(["no_such"]) == 2
    assert "there is no benchmark 'no_such'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="name must be one of accuracy"):
        registry.load("no_such")
    with pytest.raises(SystemExit):
        main(["holdout", "--small", "--record"])
    assert "not recorded" in capsys.readouterr().err


def test_without_torch_the_gpu_benchmark_raises_an_import_error():
    if importlib.util.find_spec("torch"):
        pytest.skip("torch is installed")
    with pytest.raises(ImportError, match="gpu"):
        main(["gpu"])


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.stem
)
def test_commands_on_pages_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"python -m benchmarks (\w+)", text):
        assert name in (*registry.NAMES, *COMMANDS, "NAME"), name
    assert not re.search(r"robustmf (bench|reproduce)\b", text)


def test_plain_data():
    given = {"a": np.arange(2), 3: (np.float32(0.5), float("inf")), "p": Path("x")}
    assert records.plain(given) == {"a": [0, 1], "3": [0.5, None], "p": "x"}


def test_record_is_written_with_one_line_per_item(tmp_path):
    path = records.save("x", {"seeds": 2}, [{"a": 1}, {"a": np.float64(2)}], tmp_path / "x.json")
    assert json.loads(path.read_text())["results"] == [{"a": 1}, {"a": 2.0}]
    assert '\n{"a": 1},\n{"a": 2.0}\n' in path.read_text()


def test_same_results_compares_records_bit_by_bit(tmp_path):
    before, after = (tmp_path / name for name in ("before.json", "after.json"))
    assert main(["same_results", "record", str(before), "--only", "^loss/huber/"]) == 0
    text = before.read_text()
    after.write_text(text)
    assert main(["same_results", "compare", str(before), str(after)]) == 0
    digest = re.search(r'"sha256": "([0-9a-f]+)"', text)[1]
    after.write_text(text.replace(digest, "0" * len(digest)))
    assert main(["same_results", "compare", str(before), str(after)]) == 1


def test_only_changes_of_other_files_than_records_mark_the_commit(monkeypatch, tmp_path):
    """A command that adds several records names the same commit in all of them."""
    code = tmp_path / "benchmarks" / "records.py"
    record = tmp_path / "benchmarks" / "records" / "reproduction" / "table1.jsonl"
    for path in (code, record):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\n")
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.setenv(f"GIT_{name}", "somebody")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(records, "__file__", str(code))
    unchanged = records.commit()
    assert re.fullmatch("[0-9a-f]{40}", unchanged)
    record.write_text("second\n")
    assert records.commit() == unchanged
    code.write_text("second\n")
    assert records.commit() == f"{unchanged}-dirty"
