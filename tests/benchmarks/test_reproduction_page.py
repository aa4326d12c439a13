"""The committed page, figures and table of the README are those of the committed records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reproduction import minima, report
from benchmarks.reproduction.comparison import Runs
from benchmarks.reproduction.content import comparisons, sections
from benchmarks.reproduction.drawing import drawn_digest
from benchmarks.reproduction.plan import NAMES, experiment
from benchmarks.reproduction.store import DEFAULT, Records

ROOT = Path(__file__).parents[2]
WRITE = "python -m benchmarks report --docs"


@pytest.fixture(scope="module")
def found():
    return sections(Records())


def test_page_is_that_of_the_records(found):
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert page == report.page(found), f"{WRITE} writes the page anew"


def test_figures_are_those_of_the_records(found):
    drawn = {path.stem: drawn_digest(path) for path in (ROOT / "docs/figures").glob("figure*.svg")}
    expected = {chart.name: chart.digest() for chart in report.charts(found)}
    assert drawn == expected, f"{WRITE} draws the figures anew"


def test_readme_table_is_that_of_the_records():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert report.with_table(readme, report.readme_table(Records())) == readme, WRITE
    with pytest.raises(ValueError, match="no place for the table"):
        report.with_table("nothing", "table")


def test_a_changed_record_changes_the_page(found, tmp_path):
    """The comparison with the page can fail."""
    for path in DEFAULT.glob("*.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    records = Records(tmp_path)
    last = [one for one in records.latest("table2").values() if one["status"] == "done"][-1]
    result = last["result"] | {"rmse": 10 * last["result"]["rmse"]}
    environment = records.environments()[last["environment"]] | {"date": last["date"]}
    del environment["name"]
    records.append("table2", last | {"result": result, "environment": environment})
    assert records.latest("table2")[last["key"]]["environment"] == last["environment"]
    assert report.page(sections(records)) != report.page(found)


def test_every_number_that_is_not_reproduced_has_a_cause():
    for name, _, compared in comparisons(Records()):
        runs = Runs(Records().latest(name))
        for method in compared.printed:
            verdicts = [compared.verdict(runs, method, data) for data in compared.data]
            if any(one.startswith("not reproduced") for one in verdicts):
                assert compared.reasons.get(method), f"{name}: {method}"


def test_seeds_far_from_the_others_end_in_worse_local_minima():
    """The cause that the page gives: from the true factors the objective is lower."""
    for method in ("RMFNL Geman", "RMFNL Laplace", "Laplace, LADMPSAP", "AltGrad"):
        found = [
            one["result"] for one in Runs(Records().latest("minima")).find(method, minima.SIZE)
        ]
        far = [one for one in found if one["own"]["rmse"] > 1.3 * one["true"]["rmse"]]
        assert far, method
        for one in far:
            assert one["own"]["objective"] > 1 + one["true"]["objective"], method


def test_records_say_where_they_come_from():
    records = Records()
    environments = records.environments()
    for name in NAMES:
        planned = {run.key for run in experiment(name).runs(False)}
        for record in records.latest(name).values():
            assert record["key"] in planned
            origin = environments[record["environment"]]
            assert re.fullmatch(r"[0-9a-f]{40}", origin["commit"]), record["key"]
            assert {"python", "numpy", "numba"} <= set(origin["versions"])
            assert origin["machine"]["processor"]
            if record["status"] == "done":
                assert record["numerical_version"]
                assert isinstance(record["settings"], dict)


def test_records_are_compact():
    assert sum(path.stat().st_size for path in DEFAULT.glob("*.jsonl")) < 3_000_000


@pytest.mark.slow
def test_quick_reproduction(tmp_path):
    """What ``make reproduce QUICK=1`` executes, without its environment."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "ROBUSTMF_DATA": str(tmp_path),
        "https_proxy": "http://127.0.0.1:9",  # no downloads
    }
    target = subprocess.run(
        ["make", "-n", "reproduce", "QUICK=1"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands = re.findall(r"python -m (benchmarks (?:reproduce|report) .*)", target.stdout)
    assert [command.split()[1] for command in commands] == ["reproduce", "report"]
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", *command.replace("build/", f"{tmp_path}/").split()],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
        )
    made = Records(tmp_path / "reproduction")
    unfinished = [
        record["key"]
        for name in NAMES
        for record in made.latest(name).values()
        if record["status"] != "done" and not record["reason"].endswith("was not found")
    ]
    assert unfinished == []
    text = (tmp_path / "report" / "reproduction.md").read_text(encoding="utf-8")
    assert "| RMFNL LSP | reproduced (1 seed) |" in text
    assert (tmp_path / "report" / "reproduction.html").exists()
