"""Numerical versions: whether two records were made by code that computes the same results.

The numerical version of a method is its error on a small fixed problem, to five digits. A change
of the code that leaves the results as they are does not change it; one that changes the results
does, without a number that somebody has to remember to raise.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from benchmarks.peer_models import NotInstalledError
from benchmarks.records import plain
from benchmarks.reproduction.plan import Run, experiment
from benchmarks.reproduction.store import Records
from robustmf.backends.cpu.blas import one_blas_thread


@cache
def numerical_version(name: str, method: str) -> str:
    """The numerical version of a method of an experiment."""
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        return f"{experiment(name).probe(method):.5g}"


def origin(run: Run) -> dict[str, Any]:
    """Settings and numerical version, which a record must share with the code that adds to it."""
    return {
        "settings": plain(experiment(run.experiment).settings(run)),
        "numerical_version": numerical_version(run.experiment, run.method),
    }


def outdated(runs: Iterable[Run], records: Records) -> dict[str, str]:
    """Keys of finished records that the present code would not reproduce, and why.

    Methods whose package is not installed are left out: they cannot be executed either.
    """
    found = {}
    for run in runs:
        record = records.latest(run.experiment).get(run.key)
        if record is None or record["status"] != "done":
            continue
        try:
            now = origin(run)
        except NotInstalledError:
            continue
        if record["settings"] != now["settings"]:
            found[run.key] = "other settings"
        elif record["numerical_version"] != now["numerical_version"]:
            ours = now["numerical_version"]
            found[run.key] = f"numerical version {record['numerical_version']}, now {ours}"
    return found
