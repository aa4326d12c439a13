"""The page of a fit, drawn from its record."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from robustmf.outliers.audit import share_of_outliers
from robustmf.report.names import cell, hover
from robustmf.report.page import figure, pairs_table, plotly, write_page
from robustmf.report.search_table import SCRIPT, STYLE, Column, search_table

_BLUE = "#3b7dd8"
_ORANGE = "#d97b16"
_RED = "#d63a3a"

_SCENE_CAPTION = (
    "The points in space reconstructed from the tracks under affine cameras; drag to rotate. "
    "Color is the mean absolute residual of a point."
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
    """Return the sections of the page as HTML, which needs STYLE and SCRIPT of search_table."""
    parts = [_section("Model", pairs_table(record["summary"]))]
    if "scene" in record:
        parts.append(_section("Points in space", scene_figure(record)))
    return [
        *parts,
        _section("Suspicious entries", _entry_table(record)),
        _section("Suspicious rows", _side_table(record, "rows")),
        _section("Suspicious columns", _side_table(record, "columns")),
        _section("Fit", f'<div class="figures">{"".join(_figures(record))}</div>'),
        _section("Reproduction", pairs_table(record["reproduction"])),
    ]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _entry_table(record: dict[str, Any]) -> str:
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
        (cell(row), cell(column), value, expected, score, escape(reason))
        for row, column, value, expected, score, reason in record["entries"]
    ]
    return _explanation(record, "entries", "good entries") + search_table(
        "entries", "Suspicious entries", columns, rows
    )


def _side_table(record: dict[str, Any], side: str) -> str:
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
        (cell(key), entries, score, escape(reason)) for key, entries, score, reason in record[side]
    ]
    return _explanation(record, side, f"clean {side}") + search_table(
        side, f"Suspicious {side}", columns, rows
    )


def _explanation(record: dict[str, Any], side: str, good: str) -> str:
    """Return what the scores mean and how many are listed."""
    return (
        f'<p class="soft">The {len(record[side])} smallest scores of at most'
        f" {record['at_most']:g}. A score is the fraction of {good} that would look as bad or"
        " worse.</p>"
    )


def _no_suspects(record: dict[str, Any], kind: str) -> str:
    return f"<p>No {kind} has a score of at most {record['at_most']:g}.</p>"


def _figures(record: dict[str, Any]) -> list[str]:
    """Return the figures about the fit."""
    history = record["history"]
    best = record["best_iteration"]
    figures = [
        figure(_residual_plot(record["residuals"]), _residual_caption(record["residuals"])),
        figure(
            _history_plot(history["objective"], "objective", best),
            "Convergence: the objective after each iteration; 0 is the initial point.",
        ),
    ]
    if "validation" in history:
        figures.append(
            figure(
                _history_plot(history["validation"], "validation error", best),
                "Validation: the mean absolute error of the held-out entries. The marked iteration"
                " was selected.",
            )
        )
    if record["map"] is not None:
        share = 100 * record["map"]["share"]
        figures.append(
            figure(
                _map_plot(record["map"]),
                "Factor map: rows and columns along the first two principal axes of the"
                f" predictions, which contain {share:.0f} % of their sum of squares. A row has"
                " large predictions for columns in its direction.",
            )
        )
    return figures


def _residual_caption(residuals: dict[str, Any]) -> str:
    caption = (
        "Histogram of the residuals of the fitted entries, and the weight that the loss assigns to"
        " a residual."
    )
    if residuals["beyond"]:
        caption += f" The outermost bins include {residuals['beyond']:,} larger residuals."
    return caption


def _residual_plot(residuals: dict[str, Any]) -> Any:
    plot = plotly().Figure(layout={"bargap": 0})
    plot.add_bar(
        x=residuals["centers"],
        y=residuals["counts"],
        name="entries",
        marker={"color": _BLUE, "line": {"width": 0}},
    )
    plot.add_scatter(
        x=residuals["centers"],
        y=residuals["weights"],
        name="weight",
        yaxis="y2",
        mode="lines",
        line={"color": _ORANGE, "width": 2.5},
    )
    plot.update_layout(
        xaxis={"title": "residual"},
        yaxis={"title": "entries", "type": "log", "dtick": 1},
        yaxis2={
            "title": "weight",
            "overlaying": "y",
            "side": "right",
            "range": [0, 1.05],
            "tickvals": [0, 0.5, 1],
            "showgrid": False,
            "zeroline": False,
            "tickmode": "array",
        },
    )
    return plot


def _history_plot(values: list[float], title: str, best: int) -> Any:
    plot = plotly().Figure(layout={"showlegend": False})
    plot.add_scatter(
        x=list(range(len(values))),
        y=values,
        mode="lines+markers",
        name=title,
        line={"color": _BLUE},
        marker={"size": 5},
    )
    if best < len(values):
        plot.add_scatter(
            x=[best],
            y=[values[best]],
            mode="markers",
            name="selected",
            marker={"size": 13, "color": _ORANGE, "symbol": "circle-open", "line": {"width": 3}},
        )
    plot.update_xaxes(title="iteration", dtick=max(1, len(values) // 8))
    return plot.update_yaxes(title=title)


def _map_plot(factor_map: dict[str, Any]) -> Any:
    plot = plotly().Figure()
    for side, color, symbol in (("rows", _BLUE, "circle"), ("columns", _ORANGE, "diamond")):
        points = factor_map[side]
        n_shown = len(points["ids"])
        plot.add_scatter(
            x=points["x"],
            y=points["y"],
            mode="markers",
            name=side if n_shown == points["of"] else f"{n_shown:,} of {points['of']:,} {side}",
            text=[f"{side[:-1]} {hover(key)}" for key in points["ids"]],
            hovertemplate="%{text}<extra></extra>",
            marker={
                "size": 6,
                "opacity": 0.75,
                "color": color,
                "symbol": symbol,
                "line": {
                    "width": [
                        2.0 if is_suspicious else 0.0 for is_suspicious in points["suspicious"]
                    ],
                    "color": _RED,
                },
            },
        )
    if any(factor_map["rows"]["suspicious"]) or any(factor_map["columns"]["suspicious"]):
        edge = {"size": 7, "color": "rgba(0,0,0,0)", "line": {"width": 2, "color": _RED}}
        plot.add_scatter(x=[None], y=[None], mode="markers", name="suspicious", marker=edge)
    return plot.update_xaxes(title="first axis").update_yaxes(title="second axis")


def scene_figure(record: dict[str, Any]) -> str:
    """Return the 3-D figure of a record with tracks."""
    return figure(_scene_plot(record["scene"]), _SCENE_CAPTION, height=480)


def _scene_plot(scene: dict[str, Any]) -> Any:
    x, y, z = zip(*scene["points"], strict=True)
    ordered = sorted(scene["errors"])
    # A quantile, so that a few large errors do not occupy most of the range of colors.
    largest_error = ordered[int(0.95 * (len(ordered) - 1))]
    labels = [
        f"point {hover(key)}, seen in {count // 2} frames, residual {error:.3g}"
        for key, count, error in zip(scene["ids"], scene["counts"], scene["errors"], strict=True)
    ]
    plot = plotly().Figure()
    plot.add_scatter3d(
        x=x,
        y=y,
        z=z,
        mode="markers",
        text=labels,
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
        marker={
            "size": 3,
            "color": scene["errors"],
            "colorscale": "Turbo",
            "cmin": 0,
            "cmax": largest_error,
            "colorbar": {
                "title": {"text": "residual", "side": "bottom"},
                "orientation": "h",
                "thickness": 10,
                "len": 0.7,
                "y": -0.06,
            },
        },
    )
    ranges = {axis: _central_range(values) for axis, values in (("x", x), ("y", y), ("z", z))}
    hidden = {"showticklabels": False, "title": {"text": ""}, "showspikes": False}
    axes = {f"{axis}axis": {**hidden, "range": ends} for axis, ends in ranges.items()}
    extents = {axis: ends[1] - ends[0] for axis, ends in ranges.items()}
    largest = max(extents.values()) or 1.0
    plot.update_layout(
        scene={
            **axes,
            "camera": {"eye": {"x": 0.5, "y": -1.5, "z": 0.35}},
            "aspectmode": "manual",
            "aspectratio": {axis: max(extent / largest, 0.05) for axis, extent in extents.items()},
        }
    )
    return plot


def _central_range(values: Any) -> list[float]:
    """Return an interval that contains 99 % of the values, which a few outliers do not extend."""
    ordered = sorted(values)
    low = ordered[int(0.005 * (len(ordered) - 1))]
    high = ordered[int(0.995 * (len(ordered) - 1))]
    margin = 0.08 * (high - low) or 1.0
    return [low - margin, high + margin]
