"""Numerical versions: whether two records were made by code that computes the same results.

The numerical version of a method is its error on a small fixed problem, to five digits. A change
of the code that leaves the results as they are does not change it; one that changes the results
does, without a number that must be raised by hand.

Rounding errors depend on the kernel that BLAS has for the processor, and some methods amplify
them: the error of GRASTA on the small problem varies by a quarter. The code reproduces a recorded
version if its own agrees to three digits; otherwise the probe is repeated with data that differ in
their last digits, and the recorded version must lie in the range of these errors, widened by its
width. A change of a method that is not sensitive is thus noticed from three digits on, and that of
a sensitive one where it exceeds what rounding does.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from benchmarks.peer_models import NotInstalledError
from benchmarks.records import plain
from benchmarks.reproduction.methods import perturbed
from benchmarks.reproduction.plan import NAMES, Run, experiment
from benchmarks.reproduction.store import Records
from robustmf.backends.cpu.blas import one_blas_thread

#: Relative difference of versions that rounding errors explain.
_TOLERANCE = 1e-3

#: Repetitions of a probe by which its sensitivity is judged.
_PERTURBATIONS = 8


@cache
def numerical_version(name: str, method: str) -> str:
    """The numerical version of a method of an experiment."""
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        return f"{experiment(name).probe(method):.5g}"


@cache
def reproduces(name: str, method: str, recorded: str) -> bool:
    """Whether the present code has this numerical version, except for rounding errors."""
    ours = float(numerical_version(name, method))
    if math.isclose(ours, float(recorded), rel_tol=_TOLERANCE):
        return True
    found = [ours]
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        for seed in range(_PERTURBATIONS):
            with perturbed(seed):
                found.append(experiment(name).probe(method))
    width = max(found) - min(found)
    return min(found) - width <= float(recorded) <= max(found) + width


def common_version(run: Run, version: str, records: Records) -> str:
    """The version of the method's records that the code reproduces; otherwise ``version``."""
    known = {
        record["numerical_version"]
        for record in records.latest(run.experiment).values()
        if record["method"] == run.method and record["status"] == "done"
    }
    return next(
        (one for one in sorted(known) if reproduces(run.experiment, run.method, one)), version
    )


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
        except Exception as error:  # a method that fails must not keep others from being executed
            found[run.key] = f"{type(error).__name__} on the small problem: {error}"
            continue
        if record["settings"] != now["settings"]:
            found[run.key] = "other settings"
        elif not reproduces(run.experiment, run.method, record["numerical_version"]):
            ours = now["numerical_version"]
            found[run.key] = f"numerical version {record['numerical_version']}, now {ours}"
    return found


def outdated_methods(records: Records) -> dict[str, list[str]]:
    """The methods with outdated records by experiment."""
    found = {}
    for name in NAMES:
        keys = outdated(experiment(name).runs(False), records)
        found[name] = sorted({Run.from_key(key).method for key in keys})
    return found
