"""The comparison with other packages: what is measured, and what is said of a package that is not there."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from benchmarks import peers
from benchmarks.time_limit import within
from robustmf.datasets import make_synthetic


def test_settings_are_chosen_and_missing_packages_named(monkeypatch):
    data = make_synthetic(120, rank=2, observed=0.4, random_state=0)
    plain = replace(peers.METHODS["RobustMF, l1"], iterations=(1, 30))

    def with_noise(given, rank, iterations, settings):
        U, V = plain.fit(given, rank, iterations, settings)
        return (1 + settings["error"]) * U, V

    methods = {
        "plain": plain,
        "chosen": replace(plain, fit=with_noise, grid={"error": (0.5, 0.1, 2.0)}),
        "absent": replace(plain, package="no_such_package"),
    }
    monkeypatch.setattr(peers, "problems", lambda scale: {"small": (data, 2)})
    monkeypatch.setattr(peers, "METHODS", methods)
    said = []
    found = {record["method"]: record for record in peers.run(1.0, said.append)}
    assert found["chosen"]["settings"] == {"error": 0.1}
    assert found["absent"]["not_installed"] == "no_such_package"
    assert any("no_such_package is not installed" in text for text in said)
    end = found["plain"]["runs"][-1]
    assert end["iterations"] == 30
    assert end["rmse"] < 1.5 * found["plain"]["oracle"] < found["chosen"]["runs"][-1]["rmse"]
    header, *lines = peers.table(list(found.values()))
    shown = {line[1]: dict(zip(header, line, strict=True)) for line in lines}
    assert shown["plain"]["to 1.5 × the oracle"].endswith(" s")
    assert shown["chosen"]["to 1.5 × the oracle"] == "not reached"
    assert shown["absent"]["settings"] == "no_such_package is not installed"


def test_a_package_that_stands_still_has_a_record_that_says_so(monkeypatch):
    data = make_synthetic(40, rank=2, observed=0.4, random_state=0)
    standing = replace(peers.METHODS["RobustMF, l1"], package="pytest")
    monkeypatch.setattr(peers, "problems", lambda scale: {"small": (data, 2)})
    monkeypatch.setattr(peers, "METHODS", {"RobustMF, l1": standing})
    monkeypatch.setattr(peers, "_LIMIT", 0.01)
    monkeypatch.setattr(peers, "_LIMIT_AN_ENTRY", 0.0)
    said = []
    (record,) = peers.run(1.0, said.append)
    assert record["failed"] == "no answer within 0 s"
    assert "small: RobustMF, l1: no answer within 0 s" in said
    assert peers.table([record])[1][2] == "no answer within 0 s"


def test_work_in_another_process_ends_with_an_answer_in_time_or_an_error():
    assert within(60, pow, 2, 5) == 32
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within 1 s"):
        within(1, time.sleep, 600)
    assert time.monotonic() - started < 60
    with pytest.raises(RuntimeError, match="without an answer, exit code 3"):
        within(60, os._exit, 3)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        within(60, divmod, 1, 0)
