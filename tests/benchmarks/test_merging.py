"""Records made on another machine are listed, taken over, or refused."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import records as origins
from benchmarks.reproduction import figure1, reproduce
from benchmarks.reproduction.content import sections
from benchmarks.reproduction.plan import Experiment, Run
from benchmarks.reproduction.store import Records
from benchmarks.reproduction.versions import numerical_version, outdated_methods, reproduces

COMMIT = "0123456789" * 4


def clear_versions():
    numerical_version.cache_clear()
    reproduces.cache_clear()


class Code:
    """An experiment under the name of Figure 1, and what changes between two commits."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self.settings = {"theta": 1.0}
        self.machine("here", COMMIT)
        self.computes(0.5)

    def computes(self, value):
        """From now on the code computes other results."""
        runs = [Run("figure1", "m", "d", seed) for seed in range(2)]
        one = Experiment(
            "figure1",
            "",
            lambda quick: runs,
            lambda run: {"value": value, "seconds": 100 * value},
            lambda run: dict(self.settings),
            lambda method: value,
        )
        self._monkeypatch.setattr(figure1, "EXPERIMENT", one)
        clear_versions()

    def machine(self, name, commit):
        """From now on runs are executed elsewhere."""
        found = origins.environment()
        environment = found | {"commit": commit, "machine": found["machine"] | {"processor": name}}
        self._monkeypatch.setattr(
            "benchmarks.reproduction.running.environment", lambda: dict(environment)
        )


@pytest.fixture
def code(monkeypatch):
    yield Code(monkeypatch)
    clear_versions()


def run(*arguments):
    return reproduce.main(["figure1", "--jobs", "1", *map(str, arguments)])


def values(folder):
    latest = Records(folder).latest("figure1").values()
    return {one["seed"]: (one["result"]["value"], one["machine"].split(",")[0]) for one in latest}


def test_records_of_another_machine_are_taken_over(code, tmp_path, capsys):
    here = tmp_path / "here"
    there = tmp_path / "there"
    assert run("--records", here, "--seeds", 1) == 0
    code.machine("there", COMMIT)
    code.computes(0.5001)  # the same but for rounding
    assert run("--records", there) == 0
    date = Records(there).latest("figure1")["figure1/m/d/1"]["date"]
    assert run("--records", here, "--merge", there) == 0
    assert "1 records taken over" in capsys.readouterr().err
    assert values(here) == {0: (0.5, "here"), 1: (0.5001, "there")}
    latest = Records(here).latest("figure1")
    assert {one["numerical_version"] for one in latest.values()} == {"0.5"}
    assert latest["figure1/m/d/1"]["date"] == date
    before = (here / "figure1.jsonl").read_bytes()
    assert run("--records", here, "--merge", there) == 0
    assert (here / "figure1.jsonl").read_bytes() == before
    assert run("--records", here, "--merge", there, "--replace") == 0
    assert values(here) == {0: (0.5001, "there"), 1: (0.5001, "there")}


@pytest.mark.parametrize("change", ["numerical version", "other settings"])
def test_records_of_other_code_are_refused(code, tmp_path, capsys, change):
    here = tmp_path / "here"
    there = tmp_path / "there"
    assert run("--records", here, "--seeds", 1) == 0
    before = (here / "figure1.jsonl").read_bytes()
    if change == "other settings":
        code.settings["theta"] = 2.0
    else:
        code.computes(0.7)
    assert run("--records", there) == 0
    code.settings["theta"] = 1.0
    code.computes(0.5)
    assert run("--records", here, "--merge", there) == 2
    assert f"figure1/m/d/1: {change}" in capsys.readouterr().err
    assert (here / "figure1.jsonl").read_bytes() == before
    assert run("--records", here, "--merge", there, "--mix") == 0
    latest = Records(here).latest("figure1").values()
    theirs = "0.5" if change == "other settings" else "0.7"
    assert [one["numerical_version"] for one in latest] == ["0.5", theirs]
    assert run("--records", here) == 2


@pytest.mark.parametrize("commit", [None, f"{COMMIT}-dirty"])
def test_records_without_a_commit_are_refused(code, tmp_path, capsys, commit):
    code.machine("there", commit)
    assert run("--records", tmp_path / "there") == 0
    assert run("--records", tmp_path / "here", "--merge", tmp_path / "there", "--mix") == 2
    assert f"made by the commit {commit}" in capsys.readouterr().err


def test_the_page_names_methods_of_an_earlier_version(code, tmp_path):
    """From the file that the command writes after a comparison of the records with the code."""
    records = Records(tmp_path / "records")
    assert run("--records", records.folder) == 0
    assert outdated_methods(records)["figure1"] == []
    code.computes(0.7)
    found = outdated_methods(records)
    assert found["figure1"] == ["m"]
    page = Records(tmp_path)
    assert "earlier version" not in "".join(one.markdown("") for one in sections(page))
    page.write_outdated({**found, "table2": ["RobustMF"]})
    by_name = {one.name: one for one in sections(page)}
    note = by_name["table2"].blocks[0].note
    assert note.endswith("An earlier version of the code made 'RobustMF'.")
    note = by_name["origin"].blocks[0].note
    assert note.endswith(
        "An earlier version of the code made those of figure1: m, table2: RobustMF."
    )


def test_a_copy_without_git_names_its_commit(monkeypatch):
    def no_git(*arguments):
        raise FileNotFoundError("git")

    monkeypatch.setattr(origins, "_git", no_git)
    monkeypatch.delenv("ROBUSTMF_COMMIT", raising=False)
    assert origins.commit() is None
    monkeypatch.setenv("ROBUSTMF_COMMIT", COMMIT)
    assert origins.commit() == COMMIT


def test_what_would_be_executed_is_listed(code, tmp_path, capsys):
    assert run("--records", tmp_path, "--seeds", 1) == 0
    assert run("--records", tmp_path, "--list") == 0
    assert "| figure1 | d | m | 1 |  | 50 s |" in capsys.readouterr().out
    code.computes(0.7)
    assert run("--records", tmp_path, "--list") == 0
    assert "| figure1 | d | m | 0, 1 | 1 | 50 s |" in capsys.readouterr().out
    shutil.rmtree(tmp_path)
    assert run("--records", tmp_path, "--list") == 0
    assert "| figure1 | d | m | 0, 1 |  | unknown |" in capsys.readouterr().out
    assert not tmp_path.exists()
