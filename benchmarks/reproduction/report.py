"""``python -m benchmarks report``: tables and figures of the reproduction, from records alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import announce
from benchmarks.reproduction import (
    drawing,
    figure2,
    known,
    larger,
    statistics,
    table1,
    table2,
    table3,
    table4,
)
from benchmarks.reproduction.comparison import Comparison, Runs, mean_and_deviation
from benchmarks.reproduction.sections import Cell, Chart, Section, Series, TableBlock
from benchmarks.reproduction.store import DEFAULT, Records

TITLE = "What reproduces, and what does not"

LEAD = (
    "Every table and figure of 'Scalable Robust Matrix Factorization with Nonconvex Loss' "
    "(NeurIPS 2018), the paper's numbers beside ours."
)

_NOTE = (
    "Written by `python -m benchmarks report` from the records of `python -m benchmarks "
    "reproduce`; do not edit this page."
)

_SYNTHETIC = [f"m = {m}" for m in table2.SIZES]

#: Test errors on ratings, by their name in the records.
_TEST_ERRORS = {
    "attacked": "attacked values",
    "clean": "clean values",
    "spared": "items not attacked",
}

Blocks = list[TableBlock | Chart]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks report", description=__doc__)
    parser.add_argument("--records", type=Path, default=DEFAULT, help="folder of the records")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder to write to")
    parser.add_argument("--no-html", action="store_true", help="write no HTML page")
    options = parser.parse_args(arguments)
    if not any(options.records.glob("*.jsonl")):
        parser.error(
            f"there are no records in {options.records}; 'python -m benchmarks reproduce --all "
            "--quick' makes some"
        )
    found = sections(Records(options.records))
    figures = options.out / "figures"
    options.out.mkdir(parents=True, exist_ok=True)
    for section in found:
        for block in section.blocks:
            if isinstance(block, Chart):
                drawing.draw(block, figures)
    head = f"# {TITLE}\n\n{LEAD}\n{_NOTE}\n"
    text = "\n".join([head, *(section.markdown("figures") for section in found)])
    (options.out / "reproduction.md").write_text(text, encoding="utf-8")
    if not options.no_html:
        drawing.write_html(found, options.out / "reproduction.html", TITLE, LEAD)
    announce(f"Written to {options.out}")
    return 0


def sections(records: Records) -> list[Section]:
    """All sections in the paper's order; tables name the cells that were not run."""
    return [make(records) for make in _SECTIONS]


def _rmse(result: dict[str, Any]) -> float | None:
    return result["rmse"]


def _section(name: str, title: str, blocks: Iterable[TableBlock | Chart]) -> Section:
    return Section(name, title, known.LEADS[name], list(blocks))


def _figure1(records: Records) -> Section:
    blocks = []
    for record in records.latest("figure1").values():
        if record["status"] == "done":
            curve = record["result"]
            series = [
                Series("loss φ(|α|)", curve["alpha"], curve["loss"]),
                Series("tangent at β = 1", curve["alpha"], curve["bound"]),
            ]
            caption = f"{record['method']}, {record['data']}"
            blocks.append(Chart(f"figure1_{record['method']}", caption, "α", "", series))
    return _section("figure1", "Figure 1: losses and their upper bounds", blocks)


def _figure2(records: Records) -> Section:
    runs = Runs(records.latest("figure2"))
    costs = [[Cell(name), *map(Cell, cost)] for name, cost in figure2.COMPLEXITIES.items()]
    blocks: Blocks = [TableBlock(["optimizer", "time per iteration", "memory"], costs)]
    for data in ("m = 250", "m = 1000"):
        found = {name: runs.find(name, data) for name in figure2.COMPLEXITIES}
        curves = {name: own[0]["result"]["curve"] for name, own in found.items() if own}
        for axis, title in (("iteration", "iterations"), ("seconds", "seconds")):
            series = [Series(name, curve[axis], curve["excess"]) for name, curve in curves.items()]
            stem = f"figure2_{data.replace(' = ', '')}_{axis}"
            caption = f"{data}: distance from the minimum against {title}"
            log_x = axis == "seconds"
            if series:
                blocks.append(Chart(stem, caption, title, "F − min F", series, log_x, True))
    return _section("figure2", "Figure 2: optimizers of the surrogate", blocks)


def _curves(
    runs: Runs, name: str, methods: Iterable[str], data: Iterable[str], y_title: str
) -> list[Chart]:
    """Error against seconds, one chart per data set, of the first seed."""
    methods = list(methods)
    charts = []
    for one in data:
        series = []
        for method in methods:
            found = runs.find(method, one)
            if found and "curve" in found[0]["result"]:
                curve = found[0]["result"]["curve"]
                pairs = zip(curve["seconds"], curve["value"], strict=True)
                x, y = zip(*((x, y) for x, y in pairs if x and y), strict=True)
                series.append(Series(method, list(x), list(y)))
        if series:
            stem = f"{name}_{one.replace(' = ', '').replace(' ', '-')}"
            charts.append(Chart(stem, f"{one}, one seed", "seconds", y_title, series, True, True))
    return charts


def _floors(records: Records) -> dict[str, float]:
    """The oracle's mean error on the synthetic data."""
    runs = Runs(records.latest("table2"))
    found = {data: list(runs.values(table2.ORACLE, data, _rmse).values()) for data in _SYNTHETIC}
    return {data: float(np.mean(errors)) for data, errors in found.items() if errors}


def _table1(records: Records) -> Section:
    runs = Runs(records.latest("table1"))
    compared = Comparison(
        list(table1.PRINTED), _SYNTHETIC, table1.PRINTED, _rmse, "RMSE", floors=_floors(records),
        reasons=dict.fromkeys(table1.PRINTED, known.TABLE1),
    )  # fmt: skip
    blocks = (compared.table(runs), compared.verdicts(runs))
    return _section("table1", "Table 1: RMFNL with each optimizer", blocks)


def _table2(records: Records) -> Section:
    runs = Runs(records.latest("table2"))
    methods = [*table2.PRINTED, *table2.ADDED]
    compared = Comparison(
        methods, _SYNTHETIC, table2.PRINTED, _rmse, "RMSE", table2.ORACLE, _floors(records),
        known.TABLE2,
    )  # fmt: skip
    competing = (method for method in methods if method != table2.ORACLE)
    charts = _curves(runs, "figure3", competing, _SYNTHETIC, "test RMSE")
    blocks: Blocks = [compared.table(runs), compared.verdicts(runs), *charts]
    return _section("table2", "Table 2 and Figure 3: all methods on synthetic data", blocks)


def _test_error(name: str, in_stars: bool = False) -> Callable[[dict[str, Any]], float | None]:
    return lambda result: result["rmse"][name] * (result["scale"] if in_stars else 1)


def _test_error_tables(runs: Runs, methods: list[str], data: Iterable[str]) -> list[TableBlock]:
    """All test errors in both units, one table per data set."""
    kinds = [(name, stars) for stars in (False, True) for name in _TEST_ERRORS]
    columns = [f"{_TEST_ERRORS[name]} ({'stars' if stars else 'z'})" for name, stars in kinds]
    blocks = []
    for one in data:
        if any(runs.find(method, one) for method in methods):
            rows = []
            for method in methods:
                found = [runs.values(method, one, _test_error(*kind)) for kind in kinds]
                cells = [mean_and_deviation([*values.values()], 3) for values in found]
                rows.append([Cell(method), *map(Cell, cells)])
            blocks.append(TableBlock([f"{one}: method", *columns], rows))
    return blocks


def _table3(records: Records) -> Section:
    runs = Runs(records.latest("table3"))
    methods = [*table3.PRINTED, *table3.ADDED]
    compared = Comparison(
        methods, table3.DATA, table3.PRINTED, _test_error("attacked"), "RMSE",
        reasons=dict.fromkeys(table3.PRINTED, known.TABLE3),
    )  # fmt: skip
    blocks: Blocks = [
        compared.table(runs),
        compared.verdicts(runs),
        *_test_error_tables(runs, methods, table3.DATA),
        *_curves(runs, "figure4", methods, table3.DATA, "test RMSE (z)"),
    ]
    return _section("table3", "Table 3 and Figure 4: MovieLens under the love/hate attack", blocks)


def _table4(records: Records) -> Section:
    runs = Runs(records.latest("table4"))
    methods = list(dict.fromkeys(run.method for run in table4.EXPERIMENT.runs(False)))
    compared = Comparison(
        methods, list(table4.VIEWS), table4.PRINTED, lambda result: result["mae"], "MAE",
        reasons=known.TABLE4,
    )  # fmt: skip
    blocks = (compared.table(runs), compared.verdicts(runs))
    return _section("table4", "Table 4: Dinosaur tracks", blocks)


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
    runs = Runs(records.latest("larger"))
    rows = []
    for method, printed in larger.PRINTED.items():
        row = [method]
        for data, (error, minutes) in zip(larger.DATA, printed, strict=True):
            errors = list(runs.values(method, data, _test_error("attacked")).values())
            seconds = list(runs.values(method, data, lambda result: result["seconds"]).values())
            row += [mean_and_deviation(errors, 3), f"{error:.3f}"]
            row += [f"{seconds[0] / 60:.1f}" if seconds else "—", f"{minutes:.1f}"]
        rows.append(list(map(Cell, row)))
    columns = ("RMSE", "paper", "minutes", "paper")
    header = ["method", *(f"{data}: {name}" for data in larger.DATA for name in columns)]
    return _section("larger", "Appendix: Netflix and Yahoo", [TableBlock(header, rows)])


_SECTIONS = (_figure1, _figure2, _table1, _table2, _table3, _table4, _statistics, _larger)
