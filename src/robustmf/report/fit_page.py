"""The page of a fit: one file, off line, light or dark, on a phone or a desk."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from robustmf.report.findings import SCRIPT, STYLE, Column, findings
from robustmf.report.names import cell, hover
from robustmf.report.page import figure, pairs_table, write_page

_BLUE, _ORANGE, _RED, _GRAY = "#3b7dd8", "#d97b16", "#d63a3a", "#7f8a95"


def write(record: dict[str, Any], path: Path, title: str) -> None:
    """Draw the record."""
    bad = 100 * (1 - record["good_share"])
    lead = f"About {bad:.1f} % of the entries do not fit their rows and columns."
    write_page(path, title, lead, sections(record), style=STYLE, script=SCRIPT)


def sections(record: dict[str, Any]) -> list[str]:
    """The parts of the page; they need STYLE and SCRIPT of the tables."""
    parts = [_section("What was fitted", pairs_table(record["facts"]))]
    if "cloud" in record:
        parts.append(_section("Points in space", cloud_figure(record)))
    return [
        *parts,
        _section("Suspicious entries", _entries(record)),
        _section("Suspicious rows", _lines(record, "rows")),
        _section("Suspicious columns", _lines(record, "columns")),
        _section("The fit", f'<div class="figures">{"".join(_figures(record))}</div>'),
        _section("To repeat it", pairs_table(record["repeat"])),
    ]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _entries(record: dict[str, Any]) -> str:
    if not record["entries"]:
        return _nothing(record, "entry")
    columns = [
        Column("row", "text"),
        Column("column", "text"),
        Column("value"),
        Column("expected"),
        Column("score", digits=2),
        Column("why", "why"),
    ]
    lines = [
        (cell(row), cell(column), value, expected, score, escape(why))
        for row, column, value, expected, score, why in record["entries"]
    ]
    return _meaning(record, "entries", "good entries") + findings(
        "entries", "Suspicious entries", columns, lines
    )


def _lines(record: dict[str, Any], side: str) -> str:
    if not record[side]:
        return _nothing(record, side[:-1])
    columns = [
        Column(side[:-1], "text"),
        Column("entries"),
        Column("score", digits=2),
        Column("why", "why"),
    ]
    lines = [(cell(key), entries, score, escape(why)) for key, entries, score, why in record[side]]
    return _meaning(record, side, f"honest {side}") + findings(
        side, f"Suspicious {side}", columns, lines
    )


def _meaning(record: dict[str, Any], side: str, good: str) -> str:
    shown = f"Listed: {len(record[side])}, those with the smallest scores, none above {record['at_most']:g}."
    return f'<p class="soft">{shown} A score is the share of {good} that would look as bad or worse.</p>'


def _nothing(record: dict[str, Any], kind: str) -> str:
    return f"<p>No {kind} has a score up to {record['at_most']:g}.</p>"


def _figures(record: dict[str, Any]) -> list[str]:
    history, best = record["history"], record["best_iteration"]
    drawn = [
        figure(_residuals(record["residuals"]), _residual_caption(record["residuals"])),
        figure(
            _curve(history["objective"], "objective", best),
            "Convergence: the objective after each iteration; 0 is the start.",
        ),
    ]
    if "validation" in history:
        caption = "Validation: the mean absolute error on entries set aside. The marked iteration was kept."
        drawn.append(figure(_curve(history["validation"], "validation error", best), caption))
    if record["map"] is not None:
        share = 100 * record["map"]["share"]
        caption = (
            f"Factor map: rows and columns along the two main axes of the predictions, which hold {share:.0f} % of their squares. "
            "A row likes the columns in its direction."
        )
        drawn.append(figure(_map(record["map"]), caption))
    return drawn


def _residual_caption(residuals: dict[str, Any]) -> str:
    beyond = (
        f" {residuals['beyond']:,} that lie farther out are in the outermost bars."
        if residuals["beyond"]
        else ""
    )
    return f"Residuals of the fitted entries, and how far the loss trusts an entry with that residual.{beyond}"


def _residuals(residuals: dict[str, Any]) -> Any:
    go = _plotly()
    plot = go.Figure(layout={"bargap": 0})
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


def _curve(values: list[float], title: str, best: int) -> Any:
    plot = _plotly().Figure(layout={"showlegend": False})
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
            name="kept",
            marker={"size": 13, "color": _ORANGE, "symbol": "circle-open", "line": {"width": 3}},
        )
    return plot.update_xaxes(title="iteration", dtick=max(1, len(values) // 8)).update_yaxes(
        title=title
    )


def _map(found: dict[str, Any]) -> Any:
    plot = _plotly().Figure()
    for side, color, symbol in (("rows", _BLUE, "circle"), ("columns", _ORANGE, "diamond")):
        points = found[side]
        name = (
            side
            if len(points["ids"]) == points["of"]
            else f"{len(points['ids']):,} of {points['of']:,} {side}"
        )
        plot.add_scatter(
            x=points["x"], y=points["y"], mode="markers", name=name, text=[f"{side[:-1]} {hover(key)}" for key in points["ids"]],
            hovertemplate="%{text}<extra></extra>",
            marker={
                "size": 6, "opacity": 0.75, "color": color, "symbol": symbol,
                "line": {"width": [2.0 if bad else 0.0 for bad in points["suspicious"]], "color": _RED},
            },
        )  # fmt: skip
    if any(found["rows"]["suspicious"]) or any(found["columns"]["suspicious"]):
        edge = {"size": 7, "color": "rgba(0,0,0,0)", "line": {"width": 2, "color": _RED}}
        plot.add_scatter(x=[None], y=[None], mode="markers", name="suspicious", marker=edge)
    return plot.update_xaxes(title="first axis").update_yaxes(title="second axis")


_CLOUD_CAPTION = (
    "The points that the tracks show, as far as cameras far away can tell; turn them with the mouse or a finger. "
    "Colour is the mean absolute residual of a point."
)


def cloud_figure(record: dict[str, Any]) -> str:
    """The points of a record with tracks, to turn."""
    return figure(_cloud(record["cloud"]), _CLOUD_CAPTION, height=480)


def _cloud(found: dict[str, Any]) -> Any:
    x, y, z = zip(*found["points"], strict=True)
    ordered = sorted(found["errors"])
    most = ordered[
        int(0.95 * (len(ordered) - 1))
    ]  # a few wild points shall not take all the colours
    labels = [
        f"point {hover(key)}, seen in {seen // 2} frames, residual {error:.3g}"
        for key, seen, error in zip(found["ids"], found["seen"], found["errors"], strict=True)
    ]
    plot = _plotly().Figure()
    plot.add_scatter3d(
        x=x, y=y, z=z, mode="markers", text=labels, hovertemplate="%{text}<extra></extra>", showlegend=False,
        marker={
            "size": 3, "color": found["errors"], "colorscale": "Turbo", "cmin": 0, "cmax": most,
            "colorbar": {"title": {"text": "residual", "side": "bottom"}, "orientation": "h", "thickness": 10, "len": 0.7, "y": -0.06},
        },
    )  # fmt: skip
    reach = {axis: _central(values) for axis, values in (("x", x), ("y", y), ("z", z))}
    hidden = {"showticklabels": False, "title": {"text": ""}, "showspikes": False}
    axes = {f"{axis}axis": {**hidden, "range": reach[axis]} for axis in reach}
    sizes = {axis: ends[1] - ends[0] for axis, ends in reach.items()}
    largest = max(sizes.values()) or 1.0
    plot.update_layout(
        scene={
            **axes,
            "camera": {"eye": {"x": 0.5, "y": -1.5, "z": 0.35}},
            "aspectmode": "manual",
            "aspectratio": {axis: max(size / largest, 0.05) for axis, size in sizes.items()},
        }
    )
    return plot


def _central(values: Any) -> list[float]:
    """Ends between which nearly all lie: a few points thrown far away shall not make the rest a dot."""
    ordered = sorted(values)
    low, high = ordered[int(0.005 * (len(ordered) - 1))], ordered[int(0.995 * (len(ordered) - 1))]
    edge = 0.08 * (high - low) or 1.0
    return [low - edge, high + edge]


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go  # noqa: PLC0415 - an extra, imported only when a page is written
    except ImportError:
        raise ImportError("a page needs Plotly: pip install 'robustmf[plot]'") from None
    return go
