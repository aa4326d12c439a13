"""The sections of the report, each made of the records of one experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from benchmarks.reproduction import (
    figure2,
    known,
    minima,
    noise,
    statistics,
    synthetic,
    table1,
    table2,
    table3,
    table4,
)
from benchmarks.reproduction.comparison import (
    KINDS,
    RULE,
    Comparison,
    Runs,
    extrapolated,
    mean_and_deviation,
    times_faster,
)
from benchmarks.reproduction.content_ratings import (
    closest_kind,
    compared_larger,
    compared_table3,
    distances_by_kind,
    error_tables,
    kind_name,
)
from benchmarks.reproduction.curves import Curve, first_positive, summarized
from benchmarks.reproduction.plan import NAMES
from benchmarks.reproduction.sections import Cell, Chart, Section, Series, TableBlock
from benchmarks.reproduction.store import Records, machine_of

_SYNTHETIC = [f"m = {m}" for m in table2.SIZES]

#: Methods of Figures 3 and 4; all others are in the tables.
FIGURE3 = ("RobustMF", "ScaledASD", "GRASTA", "RMC", "RMF-MM", "RMFNL LSP", "AltGrad")
FIGURE4 = ("RobustMF", "ScaledASD", "GRASTA", "RMC", "ALT-Impute", "RMFNL LSP", "AltGrad")

#: Names of the losses of Figure 1.
_LOSSES = {
    "geman": "Geman",
    "laplace": "Laplace",
    "lsp": "LSP",
    "mcp": "MCP",
    "scad": "SCAD",
}

Blocks = list[TableBlock | Chart]


def sections(records: Records) -> list[Section]:
    """All sections in the paper's order; tables name the cells that were not run."""
    return [make(records) for make in _SECTIONS]


def counts(records: Records) -> dict[str, dict[str, int]]:
    """How many printed numbers of each table have which verdict."""
    found = {
        title: compared.counts(Runs(records.latest(name)))
        for name, title, compared in comparisons(records)
    }
    total = {kind: sum(one[kind] for one in found.values()) for kind in KINDS}
    return {**found, "all": total}


def comparisons(records: Records) -> list[tuple[str, str, Comparison]]:
    """Name of the experiment, title and comparison of each table with printed numbers."""
    return [
        ("table1", "Table 1", _compared1(records)),
        ("table2", "Table 2", _compared2(records)),
        ("table3", "Table 3", compared_table3(records)),
        ("table4", "Table 4", _compared4(records)),
        ("larger", "Appendix", compared_larger(records)),
    ]


def _rmse(result: dict[str, Any]) -> float | None:
    return result["rmse"]


def _section(name: str, title: str, blocks: Iterable[TableBlock | Chart]) -> Section:
    return Section(name, title, known.LEADS[name], list(blocks))


def _runs(records: Records, name: str) -> Runs:
    return Runs(records.latest(name), records.outdated(name))


def _summary(records: Records) -> Section:
    found = counts(records)
    rows = [
        [Cell(name), *(Cell(str(one[kind] or "")) for kind in KINDS)] for name, one in found.items()
    ]
    table = TableBlock(["printed numbers", *KINDS], rows)
    return Section("summary", "Verdicts", RULE, [table])


def _origin(records: Records) -> Section:
    used: Counter[str] = Counter()
    mixed = []
    for name in NAMES:
        versions: dict[str, set[str]] = {}
        for record in records.latest(name).values():
            if record["status"] == "done":
                used[record["environment"]] += 1
                versions.setdefault(record["method"], set()).add(record["numerical_version"])
        mixed += [f"{name}: {method}" for method, own in versions.items() if len(own) > 1]
    environments = records.environments()
    rows = []
    for key, number in used.most_common():
        one = environments[key]
        packages = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
        commit = (one["commit"] or "unknown")[:10]
        rows.append(list(map(Cell, (str(number), commit, machine_of(one), packages))))
    old = [f"{name}: {method}" for name in NAMES for method in records.outdated(name)]
    note = (
        f"Records of different numerical versions are mixed in: {', '.join(mixed)}."
        if mixed
        else "No method has records of different numerical versions."
    )
    if old:
        note += f" An earlier version of the code made those of {', '.join(old)}."
    table = TableBlock(["records", "commit", "machine", "packages"], rows, note)
    return _section("origin", "Records", [table])


def _figure1(records: Records) -> Section:
    blocks = []
    for record in records.latest("figure1").values():
        if record["status"] == "done":
            curve = record["result"]
            series = [
                Series("loss", curve["alpha"], curve["loss"]),
                Series("tangent at β = 1", curve["alpha"], curve["bound"], style=1),
            ]
            caption = f"{_LOSSES[record['method']]}, {record['data']}"
            blocks.append(Chart(f"figure1_{record['method']}", caption, "α", "φ(|α|)", series))
    return _section("figure1", "Figure 1: losses and their upper bounds", blocks)


def _figure2(records: Records) -> Section:
    runs = Runs(records.latest("figure2"))
    costs = [[Cell(name), *map(Cell, cost)] for name, cost in figure2.COMPLEXITIES.items()]
    blocks: Blocks = [TableBlock(["optimizer", "time per iteration", "memory"], costs)]
    for data in figure2.SIZES:
        for axis, title in (("iteration", "iterations"), ("seconds", "CPU seconds")):
            curves = _curves(runs, figure2.COMPLEXITIES, data)
            series = _medians(curves, axis, "excess")
            stem = f"figure2_{data.replace(' = ', '')}_{axis}"
            if series:
                caption = f"{data}, by {title}: {_seeds(curves)}"
                blocks.append(Chart(stem, caption, title, "F − min F", series, True, True))
    return _section("figure2", "Figure 2: optimizers of the surrogate", blocks)


def _curves(runs: Runs, methods: Iterable[str], data: str) -> dict[str, list[Curve]]:
    """The curves of one machine by method, marked where it is not that of the other methods."""
    return {
        runs.marked(method, method, data): [
            record["result"]["curve"] for record in runs.timed(method, data)
        ]
        for method in methods
    }


def _medians(curves: dict[str, list[Curve]], x: str, y: str, left: float = 0.0) -> list[Series]:
    """The median over seeds of each method that has curves."""
    found = []
    for k, (method, own) in enumerate(curves.items()):
        one = summarized(method, own, x, y, left)
        if one is not None:
            found.append(replace(one, style=k))
    return found


def _seeds(curves: dict[str, list[Curve]]) -> str:
    """What curves and bands show."""
    numbers = sorted({len(own) for own in curves.values() if own})
    count = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return "one seed" if numbers == [1] else f"median and range of {count} seeds"


def _error_charts(
    runs: Runs, name: str, methods: Iterable[str], data: Iterable[str], y_title: str
) -> list[Chart]:
    """Error against seconds, one chart per data set."""
    methods = list(methods)
    charts = []
    for one in data:
        curves = _curves(runs, methods, one)
        left = first_positive(chain.from_iterable(curves.values()), "seconds")
        if series := _medians(curves, "seconds", "value", left):
            stem = f"{name}_{one.replace(' = ', '').replace(' ', '-')}"
            caption = f"{one}: {_seeds(curves)}"
            charts.append(Chart(stem, caption, "CPU seconds", y_title, series, True, True))
    return charts


def _floors(records: Records, name: str = "table2") -> dict[str, float]:
    """The oracle's mean error on the synthetic data."""
    runs = Runs(records.latest(name))
    found = {data: [*runs.values(synthetic.ORACLE, data, _rmse).values()] for data in _SYNTHETIC}
    return {data: float(np.mean(errors)) for data, errors in found.items() if errors}


def _time_at(runs: Runs) -> Callable[[str, str], float | None]:
    """Extrapolated times of runs on synthetic data."""

    def time_at(method: str, data: str) -> float | None:
        return extrapolated(runs, method, int(data.removeprefix("m = ")), table2.SIZES)

    return time_at


def _compared1(records: Records) -> Comparison:
    return Comparison(
        list(table1.PRINTED),
        _SYNTHETIC,
        table1.PRINTED,
        _rmse,
        "RMSE",
        floors=_floors(records),
        reasons={method: known.TABLE1[method.split(",")[0]] for method in table1.PRINTED},
        corrections=table1.CORRECTIONS,
        time_at=_time_at(Runs(records.latest("table1"))),
    )


def _table1(records: Records) -> Section:
    runs = _runs(records, "table1")
    compared = _compared1(records)
    blocks = (compared.table(runs), compared.verdicts(runs), _speed(runs))
    return _section("table1", "Table 1: RMFNL with each optimizer", blocks)


def _speed(runs: Runs) -> TableBlock:
    """How many times faster whole runs are with APG, here and in the paper."""
    rows = []
    for loss in table1.LOSSES:
        for slow in ("LADMPSAP", "APG(dense)"):
            row = [f"{loss}: APG against {slow}"]
            for k, data in enumerate(_SYNTHETIC):
                ratio = times_faster(runs, f"{loss}, {slow}", f"{loss}, APG", data)
                printed = [table1.PRINTED[f"{loss}, {name}"][k][2] for name in (slow, "APG")]
                row += ["—" if ratio is None else f"{ratio:.1f}"]
                row += [f"{printed[0] / printed[1]:.1f}"]
            rows.append(list(map(Cell, row)))
    header = ["times faster", *(text for data in _SYNTHETIC for text in (data, "paper"))]
    return TableBlock(header, rows, known.SPEED)


def _compared2(records: Records) -> Comparison:
    return Comparison(
        [*table2.PRINTED, *table2.ADDED],
        _SYNTHETIC,
        table2.PRINTED,
        _rmse,
        "RMSE",
        table2.ORACLE,
        _floors(records),
        known.TABLE2,
        time_at=_time_at(Runs(records.latest("table2"))),
    )


def _table2(records: Records) -> Section:
    runs = _runs(records, "table2")
    compared = _compared2(records)
    charts = _error_charts(runs, "figure3", FIGURE3, _SYNTHETIC, "test RMSE")
    blocks: Blocks = [compared.table(runs), compared.verdicts(runs), *charts]
    return _section("table2", "Table 2 and Figure 3: all methods on synthetic data", blocks)


def _noise(records: Records) -> Section:
    runs = _runs(records, "noise")
    printed = {name: table2.PRINTED[name] for name in noise.METHODS if name in table2.PRINTED}
    compared = Comparison(
        noise.METHODS,
        _SYNTHETIC,
        printed,
        _rmse,
        "RMSE",
        synthetic.ORACLE,
        _floors(records, "noise"),
        known.NOISE,
    )
    blocks = (compared.table(runs), compared.verdicts(runs))
    return _section("noise", "Table 2 with noise of standard deviation 1.7/√m", blocks)


def _minima(records: Records) -> Section:
    runs = Runs(records.latest("minima"))
    rows = []
    for method in minima.METHODS_COMPARED:
        found = [record["result"] for record in runs.find(method, minima.SIZE)]
        if found:
            above = [one["own"]["objective"] - one["true"]["objective"] for one in found]
            cells = [", ".join(f"{value:.1f}" for value in above)]
            cells += [
                ", ".join(f"{one[name]['rmse']:.3f}" for one in found) for name in ("own", "true")
            ]
            rows.append([Cell(method), *map(Cell, cells)])
    header = [
        "method",
        "objective above that from the true factors",
        "RMSE, own initialization",
        "RMSE, true factors",
    ]
    blocks = [TableBlock(header, rows)] if rows else []
    return _section("minima", "Seeds that end in worse local minima", blocks)


def _table3(records: Records) -> Section:
    runs = _runs(records, "table3")
    compared = compared_table3(records)
    distances = distances_by_kind(runs)
    chosen = closest_kind(runs)
    rows = [
        [Cell(kind_name(kind)), Cell(f"{distance:.3f}", kind == chosen)]
        for kind, distance in distances.items()
    ]
    blocks: Blocks = [
        TableBlock(["test error", "mean absolute logarithm of ours over printed"], rows),
        compared.table(runs),
        compared.verdicts(runs),
        *error_tables(runs, list(compared.methods), table3.DATA),
        *_error_charts(runs, "figure4", FIGURE4, table3.DATA, "RMSE, attacked values (z)"),
    ]
    return _section("table3", "Table 3 and Figure 4: MovieLens under the love/hate attack", blocks)


def _compared4(records: Records) -> Comparison:
    return Comparison(
        table4.METHODS,
        list(table4.VIEWS),
        table4.PRINTED,
        lambda result: result["mae"],
        "MAE",
        reasons=known.TABLE4,
        closest="coordinates and initialization",
    )


def _table4(records: Records) -> Section:
    runs = _runs(records, "table4")
    compared = _compared4(records)
    blocks = (compared.table(runs), compared.verdicts(runs), _centring(runs))
    return _section("table4", "Table 4: Dinosaur tracks", blocks)


def _centring(runs: Runs) -> TableBlock:
    """Why the l1 minimum depends on the origin of the coordinates."""
    rows = []
    for method in table4.METHODS:
        for data in table4.VIEWS if "varpro" in method else ():
            found = [record["result"] for record in runs.find(method, data)]
            if found:
                errors = [
                    mean_and_deviation([one[name] for one in found], digits)
                    for name, digits in (("mae", 4), ("ones_distance", 3), ("mae_after_shift", 2))
                ]
                rows.append([Cell(method), Cell(data), *map(Cell, errors)])
    header = ["method", "data", "MAE", "distance of ones", "MAE after the shift"]
    return TableBlock(header, rows, known.CENTRING)


def _statistics(records: Records) -> Section:
    runs = Runs(records.latest("statistics"))
    rows = []
    for data in (*statistics.PRINTED, "MovieLens latest-small"):
        printed = statistics.PRINTED.get(data)
        paper = ours = same = ""
        if printed is not None:
            percent = "" if printed[3] is None else f", {printed[3]} %"
            paper = f"{printed[0]:,} × {printed[1]:,}{percent}"
        found = runs.find("sizes", data)
        if found:
            size = found[0]["result"]
            shape = f"{size['rows']:,} × {size['columns']:,}"
            ours = f"{shape}, {size['entries']:,} entries, {size['percent']:.2f} %"
            if printed is not None:
                equal = (size["rows"], size["columns"]) == printed[:2]
                same = "same" if equal else "differs"
        rows.append([Cell(data), Cell(ours or "not found"), Cell(paper), Cell(same)])
    table = TableBlock(["data", "here", "paper", ""], rows)
    return _section("statistics", "Appendix: sizes of the data sets", [table])


def _larger(records: Records) -> Section:
    runs = _runs(records, "larger")
    compared = compared_larger(records)
    blocks = (compared.table(runs), compared.verdicts(runs))
    return _section("larger", "Appendix: Netflix and Yahoo", blocks)


_SECTIONS = (
    _summary,
    _figure1,
    _figure2,
    _table1,
    _table2,
    _noise,
    _minima,
    _table3,
    _table4,
    _statistics,
    _larger,
    _origin,
)
