"""Each of the checks of ``make stress``, with a few cases."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stress.__main__ as runner
from stress import checks
from stress.one import run
from stress.tally import Tally

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", checks.names())
def test_check_finds_no_failure(name):
    few = importlib.import_module(f"stress.checks.{name}").FEW
    tally = run(name, few, seed=0)
    assert tally.cases > 0
    assert tally.failures == []


def test_a_line_of_the_record_names_its_seed_commit_and_machine(monkeypatch):
    found = json.dumps({"cases": 1, "failed": 0, "failures": []})
    done = subprocess.CompletedProcess([], 0, stdout=f"{found}\n")
    origin = {"commit": "abc", "machine": {"cores": 2}}
    monkeypatch.setattr(runner, "environment", lambda: origin | {"date": "today"})
    monkeypatch.setattr(runner.subprocess, "run", lambda *_, **__: done)
    line = runner._line("pages_parsed", 10, seed=3, limit=60.0)
    assert line["cases"] == 1
    assert line["seed"] == 3
    assert {name: line[name] for name in origin} == origin


def test_shares_of_a_check_have_all_cases_and_seeds_of_their_own():
    assert runner._shares(10, 7, 4) == [(3, 7), (3, 8), (2, 9), (2, 10)]
    assert runner._shares(2, 7, 4) == [(1, 7), (1, 8)]
    lines = [
        {"check": "a", "seed": seed, "cases": 5, "failed": k, "failures": ["x"] * k, "seconds": k}
        for k, seed in enumerate((7, 8, 9))
    ]
    joined = {"cases": 15, "failed": 3, "failures": ["x"] * 3, "seconds": 2, "shares": 3}
    assert runner._joined(lines) == {"check": "a", "seed": 7} | joined


def test_a_failing_case_is_reported_and_the_check_continues():
    tally = Tally()
    for number in range(3):
        with tally.case(f"case {number}"):
            assert number != 1, "not this one"
    assert (tally.cases, tally.failed) == (3, 1)
    assert "case 1: AssertionError: not this one" in tally.failures[0]


def test_command_prints_a_table_and_writes_no_record_of_some_checks(tmp_path):
    record = tmp_path / "record.json"
    command = [
        sys.executable,
        "-m",
        "stress",
        "kills",
        "--times",
        "0.01",
        "--seed",
        "3",
        "--record",
        str(record),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert "seed 3" in result.stdout
    assert "SIGKILL at random times" in result.stdout
    assert not record.exists()
    record.write_text(
        json.dumps({"seed": 1, "checks": [{"check": "a", "seconds": 1}, {"check": "kills"}]})
    )
    subprocess.run([*command, "--update"], capture_output=True, timeout=200, check=True)
    updated = json.loads(record.read_text())
    assert [line["check"] for line in updated["checks"]] == ["a", "kills"]
    assert updated["checks"][1]["failed"] == 0


def test_a_check_in_a_separate_process_prints_json():
    command = [sys.executable, "-m", "stress.one", "kills", "1", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer.pop("cases") >= 1
    assert answer == {"failed": 0, "failures": []}


def test_the_command_refuses_to_run_outside_the_root(tmp_path):
    root = Path(checks.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-m", "stress", "kills"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(f"run this in its root, {root}")
