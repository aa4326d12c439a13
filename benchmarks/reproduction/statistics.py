"""Appendix: sizes of the data sets."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduction.plan import DataMissingError, Experiment, Run
from benchmarks.reproduction.ratings import loaded
from benchmarks.reproduction.table4 import VIEWS
from robustmf.datasets import load_dinosaur

#: Printed: rows, columns, entries where given, percent observed.
PRINTED = {
    "MovieLens-100K": (943, 1682, 100_000, 6.30),
    "MovieLens-1M": (6040, 3449, 999_714, 4.80),
    "MovieLens-10M": (69_878, 10_677, 10_000_054, 1.34),
    "Netflix": (480_189, 17_770, 100_480_507, None),
    "Yahoo": (249_012, 296_111, 62_551_438, None),
    "D1": (72, 932, None, 17.9),
    "D2": (72, 557, None, 20.5),
    "D3": (72, 336, None, 23.1),
}


#: Data sets of a quick plan.
_QUICK = ("MovieLens-100K", "D1", "D2", "D3", "MovieLens latest-small")


def runs(quick: bool) -> list[Run]:
    """One run per data set; a quick plan has the small ones."""
    data = _QUICK if quick else (*PRINTED, "MovieLens latest-small")
    return [Run("statistics", "sizes", one, 0) for one in data]


def execute(run: Run) -> dict[str, Any]:
    """Rows, columns, entries, percent observed."""
    if run.data in VIEWS:
        try:
            observed = load_dinosaur(min_views=VIEWS[run.data])
        except FileNotFoundError as error:
            raise DataMissingError(str(error)) from None
    else:
        observed = loaded(run.data).ratings
    m, n = observed.shape
    entries = observed.n_entries
    return {"rows": m, "columns": n, "entries": entries, "percent": 100 * entries / (m * n)}


def settings(run: Run) -> dict[str, Any]:
    """None: the data set is the setting."""
    return {}


def probe(method: str) -> float:
    """Counting has one version."""
    return 1.0


EXPERIMENT = Experiment("statistics", "Sizes of the data sets", runs, execute, settings, probe)
