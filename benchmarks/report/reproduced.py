"""The reproduction of the paper as sections, from records alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.report import known
from benchmarks.report.comparison import Comparison
from benchmarks.reproduction import figure2, larger, statistics, table1, table2, table3, table4
from benchmarks.reproduction.cells import Runs, mean_and_deviation
from benchmarks.reproduction.records import Records
from benchmarks.reproduction.sections import Cell, Chart, Section, Series, TableBlock

_SYNTHETIC = [f"m = {m}" for m in table2.SIZES]


def _error(result: dict[str, Any]) -> float | None:
    return result["rmse"]


def _figure1(records: Records) -> Section:
    blocks: list[TableBlock | Chart] = []
    for record in records.latest("figure1").values():
        if record["status"] == "done":
            curve = record["result"]
            series = [
                Series("loss φ(|α|)", curve["alpha"], curve["loss"]),
                Series("tangent at β = 1", curve["alpha"], curve["bound"]),
            ]
            blocks.append(
                Chart(
                    f"figure1_{record['method']}",
                    f"{record['method']}, {record['data']}",
                    "α",
                    "",
                    series,
                )
            )
    return Section(
        "figure1", "Figure 1: losses and their upper bounds", known.LEADS["figure1"], blocks
    )


def _figure2(records: Records) -> Section:
    runs = Runs(records.latest("figure2"))
    blocks: list[TableBlock | Chart] = [
        TableBlock(
            ["optimizer", "time an iteration", "space"],
            [[Cell(name), *map(Cell, cost)] for name, cost in figure2.COMPLEXITIES.items()],
        )
    ]
    for data in ("m = 250", "m = 1000"):
        curves = {name: runs.find(name, data) for name in figure2.COMPLEXITIES}
        for axis, title in (("iteration", "iterations"), ("seconds", "seconds")):
            series = []
            for name, found in curves.items():
                if found:
                    curve = found[0]["result"]["curve"]
                    series.append(Series(name, curve[axis], curve["excess"]))
            if series:
                stem = f"figure2_{data.replace(' = ', '')}_{axis}"
                blocks.append(
                    Chart(
                        stem,
                        f"{data}: distance from the minimum against {title}",
                        title,
                        "F − min F",
                        series,
                        axis == "seconds",
                        True,
                    )
                )
    return Section(
        "figure2", "Figure 2: optimizers of the surrogate", known.LEADS["figure2"], blocks
    )


def _curves(
    runs: Runs, name: str, methods: list[str], data: list[str], y_title: str
) -> list[TableBlock | Chart]:
    charts: list[TableBlock | Chart] = []
    for one in data:
        series = []
        for method in methods:
            found = runs.find(method, one)
            if found and "curve" in found[0]["result"]:
                curve = found[0]["result"]["curve"]
                pairs = [
                    (x, y) for x, y in zip(curve["seconds"], curve["value"], strict=True) if x and y
                ]
                series.append(Series(method, [x for x, _ in pairs], [y for _, y in pairs]))
        if series:
            stem = f"{name}_{one.replace(' = ', '').replace(' ', '-')}"
            charts.append(Chart(stem, f"{one}, one seed", "seconds", y_title, series, True, True))
    return charts


def _floors(records: Records) -> dict[str, float]:
    """The oracle's mean error on the synthetic data."""
    runs = Runs(records.latest("table2"))
    found = {data: list(runs.values(table2.ORACLE, data, _error).values()) for data in _SYNTHETIC}
    return {data: float(np.mean(errors)) for data, errors in found.items() if errors}


def _table1(records: Records) -> Section:
    runs = Runs(records.latest("table1"))
    compared = Comparison(
        list(table1.PRINTED),
        _SYNTHETIC,
        table1.PRINTED,
        _error,
        "RMSE",
        floors=_floors(records),
        reasons=dict.fromkeys(table1.PRINTED, known.TABLE1),
    )
    return Section(
        "table1",
        "Table 1: RMFNL with each optimizer",
        known.LEADS["table1"],
        [compared.table(runs), compared.verdicts(runs)],
    )


def _table2(records: Records) -> Section:
    runs = Runs(records.latest("table2"))
    methods = [*table2.PRINTED, *table2.ADDED]
    compared = Comparison(
        methods,
        _SYNTHETIC,
        table2.PRINTED,
        _error,
        "RMSE",
        table2.ORACLE,
        _floors(records),
        known.TABLE2,
    )
    charts = _curves(
        runs, "figure3", [m for m in methods if m != table2.ORACLE], _SYNTHETIC, "test RMSE"
    )
    return Section(
        "table2",
        "Table 2 and Figure 3: all methods on synthetic data",
        known.LEADS["table2"],
        [compared.table(runs), compared.verdicts(runs), *charts],
    )


def _reading(name: str, in_ratings: bool) -> Callable[[dict[str, Any]], float | None]:
    return lambda result: result["rmse"][name] * (result["spread"] if in_ratings else 1)


def _readings(runs: Runs, methods: list[str], data: list[str]) -> list[TableBlock]:
    blocks = []
    for one in data:
        if not any(runs.find(method, one) for method in methods):
            continue
        header, rows = ["method"], []
        kinds = [(name, unit) for unit in (False, True) for name in ("attacked", "clean", "spared")]
        words = {
            "attacked": "attacked values",
            "clean": "clean values",
            "spared": "items not attacked",
        }
        header += [f"{words[name]} ({'stars' if unit else 'z'})" for name, unit in kinds]
        for method in methods:
            cells = [
                mean_and_deviation(list(runs.values(method, one, _reading(*kind)).values()), 3)
                for kind in kinds
            ]
            rows.append([Cell(method), *map(Cell, cells)])
        blocks.append(TableBlock([f"{one}: {header[0]}", *header[1:]], rows))
    return blocks


def _table3(records: Records) -> Section:
    runs = Runs(records.latest("table3"))
    methods = [*table3.PRINTED, *table3.ADDED]
    compared = Comparison(
        methods,
        table3.DATA,
        table3.PRINTED,
        _reading("attacked", False),
        "RMSE",
        reasons=dict.fromkeys(table3.PRINTED, known.TABLE3),
    )
    charts = _curves(runs, "figure4", methods, list(table3.DATA), "test RMSE (z)")
    blocks = [
        compared.table(runs),
        compared.verdicts(runs),
        *_readings(runs, methods, list(table3.DATA)),
        *charts,
    ]
    return Section(
        "table3",
        "Table 3 and Figure 4: MovieLens under the love/hate attack",
        known.LEADS["table3"],
        blocks,
    )


def _table4(records: Records) -> Section:
    runs = Runs(records.latest("table4"))
    methods = list(dict.fromkeys(run.method for run in table4.EXPERIMENT.runs(False)))
    compared = Comparison(
        methods,
        list(table4.VIEWS),
        table4.PRINTED,
        lambda result: result["mae"],
        "MAE",
        reasons=known.TABLE4,
    )
    return Section(
        "table4",
        "Table 4: Dinosaur tracks",
        known.LEADS["table4"],
        [compared.table(runs), compared.verdicts(runs)],
    )


def _statistics(records: Records) -> Section:
    runs = Runs(records.latest("statistics"))
    rows = []
    for data in (*statistics.PRINTED, "MovieLens latest-small"):
        printed = statistics.PRINTED.get(data)
        found = runs.find("sizes", data)
        shown = (
            ""
            if printed is None
            else f"{printed[0]:,} × {printed[1]:,}"
            + ("" if printed[3] is None else f", {printed[3]} %")
        )
        if found:
            size = found[0]["result"]
            same = printed is None or (size["rows"], size["columns"]) == tuple(printed[:2])
            ours = f"{size['rows']:,} × {size['columns']:,}, {size['entries']:,} entries, {size['percent']:.2f} %"
            rows.append(
                [
                    Cell(data),
                    Cell(ours),
                    Cell(shown),
                    Cell("" if printed is None else "same" if same else "differs"),
                ]
            )
        else:
            rows.append([Cell(data), Cell("not found"), Cell(shown), Cell("")])
    return Section(
        "statistics",
        "Appendix: sizes of the data sets",
        "",
        [TableBlock(["data", "here", "paper", ""], rows)],
    )


def _larger(records: Records) -> Section:
    runs = Runs(records.latest("larger"))
    rows = []
    for method, printed in larger.PRINTED.items():
        row = [Cell(method)]
        for data, (error, minutes) in zip(larger.DATA, printed, strict=True):
            errors = list(runs.values(method, data, _reading("attacked", False)).values())
            seconds = list(runs.values(method, data, lambda result: result["seconds"]).values())
            row += [Cell(mean_and_deviation(errors, 3)), Cell(f"{error:.3f}")]
            row += [Cell(f"{seconds[0] / 60:.1f}" if seconds else "—"), Cell(f"{minutes:.1f}")]
        rows.append(row)
    header = [
        "method",
        *(
            f"{data}: {what}"
            for data in larger.DATA
            for what in ("RMSE", "paper", "minutes", "paper")
        ),
    ]
    return Section(
        "larger", "Appendix: Netflix and Yahoo", known.LEADS["larger"], [TableBlock(header, rows)]
    )


_SECTIONS = (_figure1, _figure2, _table1, _table2, _table3, _table4, _statistics, _larger)


def sections(records: Records) -> list[Section]:
    """All sections, in the paper's order; where nothing was run the tables say so."""
    return [make(records) for make in _SECTIONS]
