"""The list of mutants: its texts, files and tests exist, and the runner distinguishes outcomes."""

from __future__ import annotations

import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import mutants.__main__ as runner
import robustmf
from mutants import catalog
from mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
SOURCE = Path(robustmf.__file__).parent
MUTANTS = [(area, mutant) for area in catalog.areas() for mutant in catalog.mutants_of(area)]


def test_files_and_tests_exist():
    for _, mutant in MUTANTS:
        assert (SOURCE / mutant.file).is_file(), mutant
        files = [part for part in shlex.split(mutant.tests) if part.endswith(".py")]
        assert files, mutant
        assert all((ROOT / "tests" / file).is_file() for file in files), mutant
        assert mutant.old != mutant.new, mutant


def test_the_list_is_long_enough_and_a_third_of_it_was_chosen_after_the_tests():
    assert len(MUTANTS) >= 150
    assert sum(not mutant.aimed for _, mutant in MUTANTS) >= len(MUTANTS) / 3
    assert len({(mutant.file, mutant.old, mutant.new) for _, mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize("area", catalog.areas())
def test_each_text_occurs_once(area):
    for mutant in catalog.mutants_of(area):
        text = (SOURCE / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, mutant


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("return 20 / sum(shape)", "return 30 / sum(shape)", "killed"),
        ("return 20 / sum(shape)", "return 20.0 / sum(shape)", "survived"),
        ("not in the file", "", "invalid: the text occurs 0 times"),
    ],
)
def test_outcomes(old, new, outcome):
    mutant = Mutant("solvers/objective.py", old, new, "solvers/test_objective.py")
    assert runner._tested(ROOT, "area", mutant, 100).outcome == outcome


def test_the_summary_counts_outcomes_by_area():
    one = Mutant("a.py", "x", "y", "test_a.py")
    results = [
        runner.Result("a", one, outcome, 1.0)
        for outcome in ("killed", "killed", "survived", "equivalent", "invalid: no tests")
    ]
    assert runner._summary(results) == {
        "a": {
            "mutants": 5,
            "killed": 2,
            "survived": 1,
            "equivalent": 1,
            "invalid": 1,
            "not_run": 0,
        }
    }


def test_outcomes_replace_those_of_the_record(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    one, two = (Mutant("a.py", "x", new, "test_a.py") for new in ("y", "z"))
    monkeypatch.setattr(catalog, "areas", lambda: ["a", "b"])
    monkeypatch.setattr(catalog, "mutants_of", lambda area: [one, two])
    killed = [runner.Result(area, one, "killed", 1.0, "d", "c1") for area in ("b", "a")]
    runner._update(path, killed)
    runner._update(path, [runner.Result("b", one, "survived", 1.0, "d", "c2")])
    record = json.loads(path.read_text())
    assert [(one["area"], one["outcome"]) for one in record["mutants"]] == [
        ("a", "killed"),
        ("a", "not_run"),
        ("b", "survived"),
        ("b", "not_run"),
    ]
    assert [one["commit"] for one in record["mutants"]] == ["c1", None, "c2", None]
    assert [counts["survived"] for counts in record["areas"].values()] == [0, 1]
    assert [counts["not_run"] for counts in record["areas"].values()] == [1, 1]


def test_outcomes_of_another_machine_are_added_if_they_concern_the_same_files(
    tmp_path, monkeypatch, capsys
):
    """Those of a file that differs, and those that are known already, are not."""
    names = ("solvers/objective.py", "solvers/base.py", "solvers/irls.py")
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    mutants = [Mutant(name, "x", "y", "test_a.py") for name in names]
    monkeypatch.setattr(catalog, "areas", lambda: ["a"])
    monkeypatch.setattr(catalog, "mutants_of", lambda area: mutants)
    digests = [runner._digest(ROOT, one) for one in mutants]
    known = runner.Result("a", mutants[2], "killed", 1.0, digests[2], "c1")
    runner._update(here, [known])
    digests[1] = "another file"
    found = [
        runner.Result("a", one, "survived", 1.0, digest, "c2")
        for one, digest in zip(mutants, digests, strict=True)
    ]
    runner._update(there, found)
    runner._merge(here, there)
    record = json.loads(here.read_text())["mutants"]
    assert [one["outcome"] for one in record] == ["survived", "not_run", "killed"]
    assert [one["commit"] for one in record] == ["c2", None, "c1"]
    assert capsys.readouterr().out == "1 outcomes added\n"


def test_the_first_outcome_of_a_mutant_stays_in_the_record(tmp_path, monkeypatch):
    """It shows what the tests noticed that existed when the mutant was chosen."""
    path = tmp_path / "record.json"
    one = Mutant("a.py", "x", "y", "test_a.py")
    monkeypatch.setattr(catalog, "areas", lambda: ["a"])
    monkeypatch.setattr(catalog, "mutants_of", lambda area: [one])
    for outcome in ("survived", "killed"):
        runner._update(path, [runner.Result("a", one, outcome, 1.0, "d", "c")])
    (recorded,) = json.loads(path.read_text())["mutants"]
    assert (recorded["first"], recorded["outcome"]) == ("survived", "killed")


def test_a_mutant_is_not_called_hung_where_the_tests_take_as_long():
    assert runner._limit(600.0, 180.0) == 1800.0
    assert runner._limit(5.0, 180.0) == 180.0


@pytest.mark.slow
def test_only_tests_that_pass_have_a_duration():
    good = "solvers/test_objective.py"
    wrong = "solvers/test_objective.py -k nothing_of_this_name"
    with ThreadPoolExecutor(1) as pool:
        assert list(runner._durations(ROOT, [good, wrong], 100, pool)) == [good]


@pytest.mark.slow
def test_tests_that_take_all_memory_fail(tmp_path):
    """The system would end other processes, too."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_large.py").write_text(
        "import numpy as np\n\n\ndef test_large():\n    np.empty(10**9)\n"
    )
    assert runner.status_of_tests(tmp_path, "test_large.py", 100) == 1


def test_a_file_that_changed_is_tested_again():
    mutant = Mutant("solvers/objective.py", "x", "y", "test_a.py")
    key = ("area", str(mutant))
    digest = runner._digest(ROOT, mutant)
    assert runner._is_done({key: {"outcome": "killed", "digest": digest}}, "area", mutant)
    assert not runner._is_done({key: {"outcome": "survived", "digest": digest}}, "area", mutant)
    assert not runner._is_done({key: {"outcome": "killed", "digest": "another"}}, "area", mutant)
    assert not runner._is_done({}, "area", mutant)


def test_new_mutants_are_those_without_an_outcome():
    mutant = Mutant("solvers/objective.py", "x", "y", "test_a.py")
    key = ("area", str(mutant))
    assert runner._has_outcome({key: {"outcome": "survived", "digest": ""}}, "area", mutant)
    assert not runner._has_outcome({key: {"outcome": "equivalent", "digest": ""}}, "area", mutant)
    assert not runner._has_outcome({key: {"outcome": "not_run", "digest": ""}}, "area", mutant)
    assert not runner._has_outcome({}, "area", mutant)


def test_the_record_has_an_outcome_of_every_mutant_and_of_no_other():
    """After a change of the catalog: ``python -m mutants --new``."""
    record = json.loads((ROOT / "mutants" / "record.json").read_text(encoding="utf-8"))
    recorded = {(one["area"], one["mutant"]): one for one in record["mutants"]}
    assert set(recorded) == {(area, str(mutant)) for area, mutant in MUTANTS}
    for area, mutant in MUTANTS:
        found = recorded[area, str(mutant)]
        if mutant.equivalent:
            assert found["outcome"] == "equivalent", mutant
        else:
            assert found["outcome"] in ("killed", "survived"), mutant
            assert found["commit"], mutant
    assert record["areas"] == runner._summary(
        [
            runner.Result(area, one, recorded[area, str(one)]["outcome"], 0.0)
            for area, one in MUTANTS
        ]
    )


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(0, "survived"), (1, "killed"), (None, "killed"), (5, "invalid: pytest ended with status 5")],
)
def test_a_selection_without_tests_is_invalid(status, outcome):
    assert runner._outcome(status) == outcome
    assert re.match("killed|survived|invalid", outcome)
