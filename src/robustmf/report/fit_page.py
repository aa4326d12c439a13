"""The page of a fit, drawn from its record."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from robustmf.data.sampling import evenly_spaced
from robustmf.outliers.audit import share_of_outliers
from robustmf.report import scene, search_table
from robustmf.report.charts import Axis, Chart
from robustmf.report.names import cell, isolated, short, tick
from robustmf.report.page import figure, pairs_table, tiles, write_page
from robustmf.report.search_table import Column

#: CSS and JavaScript that the sections of a page need.
STYLE = search_table.STYLE + scene.STYLE
SCRIPT = search_table.SCRIPT + scene.SCRIPT

_BLUE = 0
_ORANGE = 1

_SCENE_CAPTION = (
    "The points in space reconstructed from the tracks under affine cameras; drag to rotate, or "
    "use the arrow keys. Color is the mean absolute residual of a point."
)


def write(record: dict[str, Any], path: Path, title: str) -> None:
    """Write the page of a fit.

    Parameters
    ----------
    record : dict
        Made by :func:`robustmf.report.fit_record.fit_record`.
    path : Path
        Output file.
    title : str
        Title of the page.
    """
    lead = share_of_outliers(record["clean_share"])
    write_page(path, title, lead, sections(record), style=STYLE, script=SCRIPT)


def sections(record: dict[str, Any]) -> list[str]:
    """Return the sections of the page as HTML, which needs STYLE and SCRIPT of this module."""
    numbers = {
        side: {key: k for k, key in enumerate(record["details"][side])}
        for side in ("rows", "columns")
    }
    parts = [
        tiles(record["tiles"]),
        _section("The table before and after", _table_figures(record["table"])),
    ]
    if "scene" in record:
        parts.append(_section("Points in space", scene_figure(record)))
    return [
        *parts,
        _section("Suspicious entries", _entry_table(record, numbers)),
        _section("Suspicious rows", _side_table(record, "rows", numbers)),
        _section("Suspicious columns", _side_table(record, "columns", numbers)),
        _section("What θ and λ mean here", pairs_table(record["meaning"])),
        _section("Why this rank", _rank_figures(record["rank"])),
        _section("Fit", f'<div class="figures">{"".join(_figures(record))}</div>'),
        _section("Model", pairs_table(record["summary"])),
        _section("Reproduction", pairs_table(record["reproduction"])),
        search_table.table_data(_downloads(record), _details(record["details"])),
    ]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


# --- The table ---


def _table_figures(table: dict[str, Any]) -> str:
    """Return the pictures of the table before and after cleaning."""
    height, width = table["blocks"]
    flagged = table["flagged"]
    is_reduced = height > 1 or width > 1
    reduced = f" A pixel is the mean of {height} × {width} cells." if is_reduced else ""
    marked = "all" if flagged <= len(table["marked"]) else f"the worst {len(table['marked'])}"
    captions = (
        f"Before: {flagged:,} cells have a score of at most {table['at_most']:g}; {marked} are"
        f" marked in red. Gray cells are missing.{reduced}",
        "After: these cells replaced by predictions. Both pictures have the colors of"
        f" {table['range'][0]:.4g} (dark) to {table['range'][1]:.4g} (bright).",
    )
    drawn = []
    for cells, caption, boxes in (
        (table["before"], captions[0], table["marked"]),
        (table["after"], captions[1], []),
    ):
        rows = [(k + 0.5, tick(label)) for k, label in table["row_ticks"]]
        columns = [(k + 0.5, tick(label)) for k, label in table["column_ticks"]]
        # The last block may extend beyond the table.
        right = float(width * cells.shape[1])
        bottom = float(height * cells.shape[0])
        chart = Chart(
            Axis("columns", 0.0, right, ticks=columns),
            Axis("rows", bottom, 0.0, ticks=rows),
            caption,
        )
        chart.cells(cells, *table["range"])
        chart.boxes(
            (
                *(j // width * width, i // height * height),
                *(j // width * width + width, i // height * height + height),
                f"row {isolated(row)}, column {isolated(column)}: {value:.4g}, expected"
                f" {expected:.4g}",
            )
            for i, j, row, column, value, expected in boxes
        )
        drawn.append(figure(chart.svg(), caption))
    notes = "".join(
        f"<p>{code:g} occurs {count:,} times, far from all other values. If it stands for missing"
        " values, replace it by NaN and fit again.</p>"
        for code, count in table["codes"]
    )
    return f'{notes}<div class="figures">{"".join(drawn)}</div>'


# --- Suspects ---


def _entry_table(record: dict[str, Any], numbers: dict[str, dict[Hashable, int]]) -> str:
    """Return the table of suspicious entries."""
    if not record["entries"]:
        return _no_suspects(record, "entry")
    columns = [
        Column("row", "text"),
        Column("column", "text"),
        Column("value"),
        Column("expected"),
        Column("score", digits=2),
        Column("reason", "reason"),
    ]
    rows = [
        (
            _linked("rows", row, numbers),
            _linked("columns", column, numbers),
            *(value, expected, score, escape(reason)),
        )
        for row, column, value, expected, score, reason in record["entries"]
    ]
    return _explanation(record, "entries", "clean entries") + search_table.search_table(
        "entries", "Suspicious entries", columns, rows
    )


def _side_table(record: dict[str, Any], side: str, numbers: dict[str, dict[Hashable, int]]) -> str:
    """Return the table of suspicious rows or columns."""
    if not record[side]:
        return _no_suspects(record, side[:-1])
    columns = [
        Column(side[:-1], "text"),
        Column("entries"),
        Column("score", digits=2),
        Column("reason", "reason"),
    ]
    rows = [
        (_linked(side, key, numbers), entries, score, escape(reason))
        for key, entries, score, reason in record[side]
    ]
    return _explanation(record, side, f"clean {side}") + search_table.search_table(
        side, f"Suspicious {side}", columns, rows
    )


def _linked(side: str, key: Hashable, numbers: dict[str, dict[Hashable, int]]) -> str:
    """Return an id as HTML, as a button that shows its entries where these are part of the page."""
    number = numbers[side].get(key)
    if number is None:
        return cell(key)
    return search_table.detail_button(side, number, cell(key))


def _explanation(record: dict[str, Any], side: str, good: str) -> str:
    """Return what the scores mean and how many are listed."""
    listed = len(record[side])
    count = "One score" if listed == 1 else f"The {listed} smallest scores"
    return (
        f'<p class="soft">{count} of at most'
        f" {record['at_most']:g}. A score is the fraction of {good} that would look as bad or"
        " worse. Select a row or column to see its entries.</p>"
    )


def _no_suspects(record: dict[str, Any], kind: str) -> str:
    return f"<p>No {kind} has a score of at most {record['at_most']:g}.</p>"


def _downloads(record: dict[str, Any]) -> dict[str, str]:
    """Return the tables of suspects as CSV."""
    of_entries = ("row", "column", "value", "expected", "score", "reason")
    of_groups = ("entries", "score", "reason")
    return {
        "entries": search_table.csv_of(of_entries, record["entries"]),
        "rows": search_table.csv_of(("row", *of_groups), record["rows"]),
        "columns": search_table.csv_of(("column", *of_groups), record["columns"]),
    }


def _details(details: Mapping[str, Mapping[Hashable, Any]]) -> dict[str, Any]:
    """Return what the dialog shows for rows and columns; labels, which repeat, by number."""
    numbers: dict[str, int] = {}
    found: dict[str, Any] = {}
    for side, other in (("rows", "column"), ("columns", "row")):
        found[side] = [
            {
                "title": f"{side[:-1].capitalize()} {isolated(key)}",
                "note": _shown(len(one["entries"]), one["count"]),
                "other": other,
                "entries": [
                    (numbers.setdefault(label, len(numbers)), *values)
                    for label, *values in one["entries"]
                ],
            }
            for key, one in details[side].items()
        ]
    return found | {"labels": list(numbers)}


def _shown(shown: int, count: int) -> str:
    if shown == count:
        return f"{count:,} entries, smallest scores first"
    return f"The {shown} entries with the smallest scores, of {count:,}"


# --- Rank ---


def _rank_figures(rank: dict[str, Any]) -> str:
    """Return the evidence for the rank."""
    contributions = [value for value in rank["contributions"] if value > 0]
    k = len(contributions)
    how = "found from the data" if rank["found"] else "given"
    factors = _count(len(rank["contributions"]), "factor")
    sentences = [f"The model has {factors}; the rank was {how}."]
    drawn = []
    if len(rank["candidates"]) > 1:
        caption = f"{_CANDIDATES} {rank['reason']}"
        drawn.append(figure(_candidate_chart(rank["candidates"]), caption))
    elif rank["candidates"]:
        sentences.append(rank["reason"])
    if k == 1:
        sentences.append(
            f"The factor contributes {contributions[0]:.3g} to the predictions (root mean square);"
            f" the noise of an entry is {rank['noise']:.3g}."
        )
    elif contributions:
        label = "Contribution of each factor to the predictions, and the noise"
        chart = Chart(
            Axis("factor", 0.5, k + 0.5, ticks=[(n, str(n)) for n in _few(k)]),
            _log_axis("root mean square", [*contributions, rank["noise"]]),
            label,
        )
        if rank["noise"] > 0:
            chart.rule(y=rank["noise"])
        chart.line(np.arange(k) + 1, contributions, _BLUE)
        chart.points(np.arange(k) + 1, contributions, _BLUE, radius=4)
        drawn.append(
            figure(
                chart.svg(),
                "Contribution of each factor to the predictions, largest first. The dashed line is"
                " the noise of an entry. A factor below it can still be reliable, as many entries"
                " share it.",
            )
        )
    text = escape(" ".join(sentences))
    return f'<p>{text}</p><div class="figures">{"".join(drawn)}</div>'


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


_CANDIDATES = (
    "Models compared: error of entries that are predicted from the others, with one standard "
    "error; the marked one was chosen."
)


def _candidate_chart(candidates: list[tuple[str, int, float, float, bool]]) -> str:
    names, _, errors, standard_errors, chosen = zip(*candidates, strict=True)
    x = np.arange(len(names))
    low = np.subtract(errors, standard_errors)
    high = np.add(errors, standard_errors)
    ticks = [(float(k), short(name).replace(" and ", "\nand ")) for k, name in enumerate(names)]
    chart = Chart(
        Axis("", -0.6, len(names) - 0.4, ticks=ticks),
        Axis.over("error of predicted entries", [*low, *high]),
        "Errors of the models that were compared",
    )
    chart.error_bars(x, low, high, _BLUE)
    chart.line(x, errors, _BLUE)
    texts = [f"{name}: {error:.4g}" for name, error in zip(names, errors, strict=True)]
    chart.points(x, errors, _BLUE, names=texts)
    selected = np.flatnonzero(chosen)
    chart.points(selected, np.asarray(errors)[selected], _ORANGE, radius=8, css="chosen")
    return chart.svg()


def _few(n: int, at_most: int = 10) -> list[int]:
    """Return some of the numbers 1 to n."""
    numbers: list[int] = (1 + evenly_spaced(n, at_most)).tolist()
    return numbers


# --- Fit ---


def _figures(record: dict[str, Any]) -> list[str]:
    """Return the figures about the fit."""
    history = record["history"]
    best = record["best_iteration"]
    figures = [
        figure(_residual_chart(record["residuals"]), _residual_caption(record["residuals"])),
        figure(
            _history_chart(history["objective"], "objective", best),
            "Convergence: the objective after each iteration; 0 is the initial point.",
        ),
    ]
    if "validation" in history:
        figures.append(
            figure(
                _history_chart(history["validation"], "validation error", best),
                "Validation: the mean absolute error of the held-out entries. The marked iteration"
                " was selected.",
            )
        )
    if record["map"] is not None:
        share = 100 * record["map"]["share"]
        figures.append(
            figure(
                _map_chart(record["map"]),
                "Factor map: rows and columns along the first two principal axes of the"
                f" predictions, which contain {share:.0f} % of their sum of squares. A row has"
                " large predictions for columns in its direction.",
            )
        )
    return figures


def _residual_caption(residuals: dict[str, Any]) -> str:
    caption = (
        "Histogram of the residuals of the fitted entries, and the weight that the loss assigns to"
        " a residual. Where the noise differs between rows or columns, residuals are divided by"
        " both scales."
    )
    if residuals["theta"] is not None:
        caption += f" The dashed lines are ±θ = {residuals['theta']:.4g}."
    if residuals["beyond"]:
        caption += f" The outermost bins include {residuals['beyond']:,} larger residuals."
    return caption


def _residual_chart(residuals: dict[str, Any]) -> str:
    edges = residuals["edges"]
    chart = Chart(
        Axis("residual", edges[0], edges[-1]),
        Axis("entries", 0.5, 1.5 * max(residuals["counts"]), log=True),
        "Histogram of the residuals, and the weights of residuals",
        secondary=Axis("weight", 0.0, 1.05, ticks=[(0, "0"), (0.5, "0.5"), (1, "1")]),
    )
    chart.bars(edges, residuals["counts"], _BLUE, "entries")
    theta = residuals["theta"]
    if theta is not None and theta < edges[-1]:
        chart.rule(x=-theta)
        chart.rule(x=theta)
    chart.line(residuals["centers"], residuals["weights"], _ORANGE, "weight", on_secondary=True)
    return chart.svg()


def _history_chart(values: list[float], title: str, best: int) -> str:
    iterations = list(range(len(values)))
    chart = Chart(
        Axis.over("iteration", [0, max(len(values) - 1, 1)]),
        Axis.over(title, values),
        f"{title} after each iteration",
    )
    chart.line(iterations, values, _BLUE)
    if len(values) <= 60:
        chart.points(iterations, values, _BLUE, radius=2.5)
    if best < len(values):
        chart.points([best], [values[best]], _ORANGE, radius=7, css="chosen")
    return chart.svg()


def _map_chart(factor_map: dict[str, Any]) -> str:
    both = [factor_map["rows"], factor_map["columns"]]
    chart = Chart(
        Axis.over("first axis", [x for points in both for x in points["x"]], margin=0.08),
        Axis.over("second axis", [y for points in both for y in points["y"]], margin=0.08),
        "Factor map of rows and columns",
        height=340,
    )
    for side, color in (("rows", _BLUE), ("columns", _ORANGE)):
        points = factor_map[side]
        n_shown = len(points["ids"])
        chart.points(
            points["x"],
            points["y"],
            color,
            names=[f"{side[:-1]} {isolated(key)}" for key in points["ids"]],
            rings=points["suspicious"],
        )
        everything = n_shown == points["of"]
        chart.legend(color, side if everything else f"{n_shown:,} of {points['of']:,} {side}")
    for points in both:
        for x, y, key, is_labelled in zip(
            points["x"], points["y"], points["ids"], points["labelled"], strict=True
        ):
            if is_labelled:
                chart.text(x, y, tick(key))
    if any(factor_map["rows"]["suspicious"]) or any(factor_map["columns"]["suspicious"]):
        chart.legend(4, "ring: suspicious")
    return chart.svg()


def scene_figure(record: dict[str, Any]) -> str:
    """Return the points in space of a record with tracks."""
    return figure(scene.scene_element(record["scene"]), _SCENE_CAPTION)


def _log_axis(title: str, values: list[float]) -> Axis:
    """Return a logarithmic axis for bars, with space below the smallest."""
    positive = [value for value in values if value > 0]
    return Axis(title, min(positive) / 2, max(positive) * 1.5, log=True)
