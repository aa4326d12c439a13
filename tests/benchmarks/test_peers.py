"""The comparison with other packages: what is measured, and what is shown for a missing one."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from benchmarks import peers
from benchmarks.measure import in_new_process
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
    found = {record["method"]: record for record in peers.run(1.0)}
    assert found["chosen"]["settings"] == {"error": 0.1}
    assert found["absent"]["failed"] == "no_such_package is not installed"
    end = found["plain"]["runs"][-1]
    assert end["iterations"] == 30
    assert end["rmse"] < 1.5 * found["plain"]["oracle"] < found["chosen"]["runs"][-1]["rmse"]
    rows = [row.split(" | ") for row in peers.table(list(found.values())).splitlines()]
    shown = {row[1]: row for row in rows if len(row) > 2}
    assert float(shown["plain"][-1].rstrip(" |")) >= 0
    assert shown["chosen"][-1] == "not reached |"
    assert shown["absent"][2] == "no_such_package is not installed"


def test_a_package_that_hangs_is_recorded_as_failed(monkeypatch):
    data = make_synthetic(40, rank=2, observed=0.4, random_state=0)
    hanging = replace(peers.METHODS["RobustMF, l1"], package="pytest")
    monkeypatch.setattr(peers, "problems", lambda scale: {"small": (data, 2)})
    monkeypatch.setattr(peers, "METHODS", {"RobustMF, l1": hanging})
    limits = peers.Limits(package_seconds=0.01, package_seconds_per_entry=0.0)
    monkeypatch.setattr(peers, "LIMITS", limits)
    (record,) = peers.run(1.0)
    assert record["failed"] == "no result within 0 s"
    assert "| RobustMF, l1 | no result within 0 s |" in peers.table([record])


def test_a_new_process_returns_a_result_in_time_or_raises():
    assert in_new_process(pow, 2, 5, limit=60) == 32
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="no result within 1 s"):
        in_new_process(time.sleep, 600, limit=1)
    assert time.monotonic() - started < 60
    with pytest.raises(RuntimeError, match="without a result, exit code 3"):
        in_new_process(os._exit, 3)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_new_process(divmod, 1, 0)
