"""Runs of the reproduction, their records, and the report made of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reproduction import figure1, plan, table2, table4
from benchmarks.reproduction.comparison import Comparison, Runs, best_of, mean_and_deviation
from benchmarks.reproduction.methods import METHODS, Watch
from benchmarks.reproduction.plan import DataMissingError, Experiment, Run
from benchmarks.reproduction.running import execute, missing, run_missing
from benchmarks.reproduction.store import Records

ROOT = Path(__file__).parents[2]
SHARED = Path(__file__).parents[3] / "shared" / "data"

#: For new processes, which do not read pytest's settings.
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@pytest.mark.parametrize("name", plan.NAMES)
def test_quick_runs_are_among_the_full_ones(name):
    experiment = plan.experiment(name)
    quick, full = ({run.key for run in experiment.runs(quick)} for quick in (True, False))
    assert quick
    assert quick <= full
    assert len(full) == len(experiment.runs(False))
    assert {run.experiment for run in experiment.runs(False)} == {name}


def test_an_unknown_table_is_refused_by_name():
    with pytest.raises(ValueError, match=r"experiment must be one of figure1, .*got 'table9'"):
        plan.experiment("table9")


def test_every_method_of_the_tables_exists():
    assert set(table2.PRINTED) | set(table2.ADDED) - {table2.ORACLE} <= set(METHODS)


def test_records_are_appended_and_an_incomplete_line_is_dropped(tmp_path):
    records = Records(tmp_path)
    assert records.latest("x") == {}
    records.append("x", {"key": "a", "n": 1})
    records.append("x", {"key": "b", "n": 2})
    with (tmp_path / "x.jsonl").open("ab") as file:
        file.write(b'{"key": "c", "n"')
    assert set(records.latest("x")) == {"a", "b"}
    records.append("x", {"key": "a", "n": 3})
    assert [record["n"] for record in records.lines("x")] == [1, 2, 3]
    assert records.latest("x")["a"]["n"] == 3
    (tmp_path / "x.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"x\.jsonl, line 1 is not a record"):
        records.latest("x")


def test_only_missing_runs_are_executed(tmp_path, monkeypatch):
    made = []

    def execute(run):
        made.append(run.seed)
        if run.seed == 1:
            raise DataMissingError("no such file")
        if run.seed == 2 and len(made) < 5:
            raise ArithmeticError("lost")
        return {"value": np.float64(run.seed), "odd": float("nan")}

    runs = [Run("figure1", "m", "d", seed) for seed in range(3)]
    monkeypatch.setattr(
        figure1, "EXPERIMENT", Experiment("figure1", "", lambda quick: runs, execute)
    )
    records = Records(tmp_path)
    announced = []
    run_missing(
        runs,
        records,
        1,
        lambda done, total, record: announced.append((done, total, record["status"])),
    )
    assert announced == [(1, 3, "done"), (2, 3, "no data"), (3, 3, "failed")]
    assert records.latest("figure1")["figure1/m/d/2"]["reason"] == "ArithmeticError: lost"
    assert records.latest("figure1")["figure1/m/d/0"]["result"] == {"value": 0.0, "odd": None}
    run_missing(runs, records, 1, lambda *_: None)
    assert made == [0, 1, 2, 1, 2]
    assert [run.seed for run in missing(runs, records)] == [1]


def test_a_record_names_its_origin():
    record = execute(Run("figure1", "lsp", "θ = 0.5", 0))
    assert record["status"] == "done"
    names = {"key", "method", "data", "seed", "environment", "status", "result", "wall_seconds"}
    assert set(record) == names
    assert set(record["environment"]) == {"commit", "date", "versions", "machine"}
    json.dumps(record, allow_nan=False)


@pytest.mark.slow
def test_an_interrupted_command_continues_without_repeating_runs(tmp_path):
    """After SIGKILL a second command executes the rest, with the results of an undisturbed one."""
    arguments = ["reproduce", "table2", "figure1", "--quick", "--jobs", "1", "--records"]
    command = [sys.executable, "-c", _FEW_RUNS, *arguments]
    process = subprocess.Popen(
        [*command, str(tmp_path / "killed")], stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    path = tmp_path / "killed" / "table2.jsonl"
    limit = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < limit
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = path.read_bytes()
    first = before[: before.rfind(b"\n") + 1]
    subprocess.run(
        [*command, str(tmp_path / "killed")], check=True, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    subprocess.run(
        [*command, str(tmp_path / "whole")], check=True, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    assert path.read_bytes().startswith(first)
    killed, whole = (Records(tmp_path / name) for name in ("killed", "whole"))
    for experiment in ("table2", "figure1"):
        keys = [record["key"] for record in killed.lines(experiment)]
        assert len(keys) == len(set(keys))
        ours, theirs = killed.latest(experiment), whole.latest(experiment)
        assert set(ours) == set(theirs)
        for key, record in ours.items():
            assert record["result"].get("rmse") == theirs[key]["result"].get("rmse")
            assert record["result"].get("loss") == theirs[key]["result"].get("loss")


#: The command line with a plan short enough for a test.
_FEW_RUNS = """
from benchmarks.reproduction import table2
table2.SIZES = (250,)
table2.PRINTED = {name: table2.PRINTED[name] for name in ("RP", "ScaledASD", "RMC", "RMFNL LSP")}
table2.ADDED = ("RobustMF", "oracle")
from benchmarks.__main__ import main
raise SystemExit(main())
"""


def test_a_watch_does_not_count_its_evaluations():
    def busy(factors):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        return 1.0

    watch = Watch(busy)

    class Snapshot:
        factors = (np.zeros((1, 1)), np.zeros((1, 1)))

    for _ in range(3):
        watch(Snapshot())
    assert watch.elapsed() < 0.05
    assert watch.values[0] == 1.0


def test_best_and_comparable_methods():
    same = {0: 1.0, 1: 1.1, 2: 0.9}
    cells = {
        "good": same,
        "similar": {0: 1.05, 1: 1.0, 2: 0.95},
        "worse": {0: 2.0, 1: 2.1, 2: 1.9},
        "dispersed": {0: 0.9, 1: 30.0, 2: 0.9},
        "empty": {},
    }
    assert best_of(cells) == {"good", "similar"}


def record(method, data, seed, **result):
    return {
        "key": f"{method}/{data}/{seed}",
        "method": method,
        "data": data,
        "seed": seed,
        "status": "done",
        "result": result,
    }


def test_verdicts():
    printed = {
        "a": [(1.0, 0.01, 1, 0)],
        "b": [(1.0, 0.01, 1, 0)],
        "c": [(0.2, 0.01, 1, 0)],
        "d": [(1.0, 0.0, 1, 0)],
        "e": [None],
    }
    found = {"a": 1.02, "b": 1.5, "c": 0.5, "floor": 0.4}
    runs = Runs(
        {name: record(name, "d1", 0, rmse=value, seconds=1.0) for name, value in found.items()}
    )
    compared = Comparison(
        [*printed, "floor"],
        ["d1"],
        printed,
        lambda r: r["rmse"],
        "RMSE",
        "floor",
        {"d1": 0.4},
        {"b": "why b", "a": "why a"},
    )
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in compared.verdicts(runs).rows}
    assert rows == {
        "a": ["reproduced", ""],
        "b": ["not reproduced: 1.500", "why b"],
        "c": ["impossible: printed 0.200, oracle 0.400", ""],
        "d": ["not run", ""],
        "e": ["no number printed", ""],
    }
    best = [row[0].text for row in compared.table(runs).rows if row[1].best]
    assert best == ["c"]


@pytest.mark.slow
def test_report_from_the_command_line(tmp_path):
    """Tables, figures and page from a few records; the tables name what was not run."""
    records = Records(tmp_path / "records")
    for run in [
        *figure1.runs(True),
        *(
            run
            for run in table2.runs(True)
            if run.method in ("RP", "oracle") and run.data == "m = 250"
        ),
    ]:
        records.append(run.experiment, execute(run))
    records.append(
        "table4",
        execute(Run("table4", "RobustMF", "D3", 0))
        | {"status": "no data", "reason": "viff.xy not found"},
    )
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "report",
        "--records",
        str(records.folder),
        "--out",
        str(tmp_path / "out"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert "impossible" not in text.split("## Table 2")[0]
    assert "not run" in text
    assert "![lsp, θ = 0.5](figures/figure1_lsp.svg)" in text
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} >= {
        "figure1_lsp.svg",
        "figure1_lsp.png",
        "figure3_m250.svg",
    }
    page = (tmp_path / "out" / "reproduction.html").read_text()
    assert "<strong>" in page
    assert "http" not in page.split("</script>", 1)[1].replace("http://www.w3.org", "")
    empty = subprocess.run(
        [*command[:4], "--records", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert empty.returncode == 2
    assert "there are no records in" in " ".join(empty.stderr.split())


def test_dinosaur_sizes_are_the_papers(monkeypatch):
    if not (SHARED / "dinosaur").exists():
        pytest.skip("the Dinosaur tracks are not on this machine")
    monkeypatch.setenv("ROBUSTMF_DATA", str(SHARED))
    sizes = {name: execute(Run("statistics", "sizes", name, 0))["result"] for name in table4.VIEWS}
    assert {
        name: (size["rows"], size["columns"], round(size["percent"], 1))
        for name, size in sizes.items()
    } == {
        "D1": (72, 932, 17.9),
        "D2": (72, 557, 20.5),
        "D3": (72, 336, 23.1),
    }


def test_ratings_under_attack(monkeypatch):
    """Attacked items raise the first test error; the other items are predicted best."""
    if not (SHARED / "ml-latest-small").exists():
        pytest.skip("MovieLens latest-small is not on this machine")
    monkeypatch.setenv("ROBUSTMF_DATA", str(SHARED))
    result = execute(
        Run("table3", "cmfrec" if find_spec("cmfrec") else "ScaledASD", "MovieLens latest-small", 0)
    )["result"]
    assert set(result["rmse"]) == {"attacked", "clean", "spared"}
    assert 0.5 < result["rmse"]["spared"] < 1.5
    assert result["rmse"]["spared"] < result["rmse"]["attacked"]


def test_dispersed_seeds_are_listed():
    assert mean_and_deviation([0.1, 0.12, 0.11], 2) == "0.11±0.01"
    assert mean_and_deviation([0.1, 2.75, 0.1], 2) == "0.10, 2.75, 0.10"
    assert mean_and_deviation([0.1], 3) == "0.100"
    assert mean_and_deviation([], 3) == "—"
