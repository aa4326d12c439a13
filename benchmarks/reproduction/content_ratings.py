"""Comparisons on ratings: which test error is closest, and the times of runs that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.reproduction import known, larger, ratings, statistics, table3
from benchmarks.reproduction.comparison import Comparison, Runs, mean_and_deviation
from benchmarks.reproduction.sections import Cell, TableBlock
from benchmarks.reproduction.store import Records

#: Test errors on ratings, by their name in the records.
_TEST_ERRORS = {
    "attacked": "attacked values",
    "clean": "clean values",
    "spared": "items not attacked",
}


def _test_error(name: str, in_stars: bool = False) -> Callable[[dict[str, Any]], float | None]:
    return lambda result: result["rmse"][name] * (result["scale"] if in_stars else 1)


def _lowest(result: dict[str, Any]) -> float | None:
    """The lowest test error on the way to the result, on attacked values in z-scores."""
    return min(result["curve"]["value"])


#: A test error and whether it is in stars.
_Kind = tuple[str, bool]
_KINDS: list[_Kind] = [(name, stars) for stars in (False, True) for name in _TEST_ERRORS]


def kind_name(kind: _Kind) -> str:
    """Name and unit of a test error."""
    return f"{_TEST_ERRORS[kind[0]]} ({'stars' if kind[1] else 'z'})"


def distances_by_kind(runs: Runs) -> dict[_Kind, float]:
    """Mean absolute logarithm of our mean error over the printed one, by kind of error."""
    found = {}
    for kind in _KINDS:
        ratios = []
        for method, numbers in table3.PRINTED.items():
            for data, printed in zip(table3.DATA, numbers, strict=True):
                errors = [*runs.values(method, data, _test_error(*kind)).values()]
                if errors and printed is not None:
                    ratios.append(abs(np.log(np.mean(errors) / printed[0])))
        if ratios:
            found[kind] = float(np.mean(ratios))
    return found


def closest_kind(runs: Runs) -> _Kind:
    """The test error that is closest to the printed numbers."""
    distances = distances_by_kind(runs)
    return min(distances, key=lambda kind: distances[kind]) if distances else _KINDS[0]


def error_tables(runs: Runs, methods: list[str], data: Iterable[str]) -> list[TableBlock]:
    """All test errors in both units, one table per data set."""
    columns = [*map(kind_name, _KINDS), "lowest on the way: attacked values (z)"]
    blocks = []
    for one in data:
        if any(runs.find(method, one) for method in methods):
            rows = []
            for method in methods:
                found = [runs.values(method, one, _test_error(*kind)) for kind in _KINDS]
                found.append(runs.values(method, one, _lowest))
                cells = [mean_and_deviation([*values.values()], 3) for values in found]
                rows.append([Cell(method), *map(Cell, cells)])
            blocks.append(TableBlock([f"{one}: method", *columns], rows))
    return blocks


def _absent(records: Records) -> list[str]:
    """Data sets that were not found when their sizes were recorded."""
    found = records.latest("statistics").values()
    return [record["data"] for record in found if record["status"] == "no data"]


def of_all_fits(result: dict[str, Any]) -> float | None:
    """CPU seconds of a run, for all values of λ or α."""
    seconds = result.get("seconds")
    return None if seconds is None else float(seconds * max(1, len(result.get("tried", {}))))


def time_on_ratings(records: Records) -> Callable[[str, str], float | None]:
    """Times of all fits of a run, by the number of ratings from the largest recorded set."""
    counted = Runs(records.latest("statistics"))
    sizes = {
        data: found[0]["result"]["entries"]
        for data in statistics.PRINTED
        if (found := counted.find("sizes", data))
    }
    if "Netflix" in sizes:
        sizes[ratings.NETFLIX_PART] = ratings.NETFLIX_SHARE * sizes["Netflix"]
    smaller = (
        ("larger", ratings.NETFLIX_PART),
        ("table3", "MovieLens-1M"),
        ("table3", "MovieLens-100K"),
    )

    def time_at(method: str, data: str) -> float | None:
        for name, one in smaller:
            found = [*Runs(records.latest(name)).values(method, one, of_all_fits).values()]
            if found and data in sizes and one in sizes:
                return float(np.mean(found)) * sizes[data] / sizes[one]
        return None

    return time_at


def compared_table3(records: Records) -> Comparison:
    """MovieLens, by the test error that is closest to the printed numbers."""
    extrapolate = time_on_ratings(records)
    runs = Runs(records.latest("table3"))
    return Comparison(
        [*table3.PRINTED, *table3.ADDED],
        table3.DATA,
        table3.PRINTED,
        _test_error(*closest_kind(runs)),
        "RMSE",
        reasons=known.TABLE3,
        time_at=lambda *cell: known.TIMES.get(cell) or extrapolate(*cell),
        absent=_absent(records),
        closest="interpretation",
    )


def compared_larger(records: Records) -> Comparison:
    """Netflix and Yahoo, by the same test error."""
    printed = {
        method: [(error, 0.0, 60 * minutes, 0.0) for error, minutes in numbers]
        for method, numbers in larger.PRINTED.items()
    }
    return Comparison(
        [*printed, "RobustMF"],
        larger.DATA,
        printed,
        _test_error(*closest_kind(Runs(records.latest("table3")))),
        "RMSE",
        reasons=known.LARGER,
        time_at=time_on_ratings(records),
        planned=1,
        absent=_absent(records),
        closest="interpretation",
    )
