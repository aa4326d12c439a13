"""The page that ``robustmf demo`` ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustmf.report import fit_page
from robustmf.report.findings import SCRIPT, STYLE
from robustmf.report.page import figure, table, write_page

HEADER = ["method", "RMSE", "× oracle", "seconds", "found", "false"]


def rows(record: dict[str, Any]) -> list[list[str]]:
    """The table's cells, oracle first."""
    oracle, planted = record["oracle_rmse"], record["data"]["outliers"]
    lines = [["oracle (told the bad)", f"{oracle:.4f}", "1.00", "", "", ""]]
    for method in record["methods"]:
        ratio = f"{method['rmse'] / oracle:.2f}"
        found = f"{method['found']} of {planted}"
        lines.append(
            [
                method["title"],
                f"{method['rmse']:.4f}",
                ratio,
                f"{method['seconds']:.2f}",
                found,
                str(method["false_alarms"]),
            ]
        )
    return lines


def lead(record: dict[str, Any]) -> str:
    """What the demo did, in words."""
    data = record["data"]
    share = 100 * data["entries"] / (data["rows"] * data["columns"])
    return (
        f"A {data['rows']} × {data['columns']} matrix of rank {data['rank']}: {data['entries']} entries seen ({share:.1f} %), with noise "
        f"of standard deviation 0.1, and {data['outliers']} of them off by ±5. The error is measured against the clean matrix on the "
        "entries never seen; found and false: bad and good entries that are flagged."
    )


def tracks_lead(found: dict[str, Any]) -> str:
    """What was made of the tracks, in words."""
    robust, plain = found["errors"]["l1"], found["errors"]["l2"]
    return (
        f"Tracks of {found['points']} points in {found['frames']} frames, {found['wrong']} coordinates of them wrong by 30 to 100 pixels. "
        f"Where the tracks are right, least squares is {plain['pixels']:.2f} pixels off, the l1 loss {robust['pixels']:.2f}; "
        f"of the {found['wrong']} largest residuals {plain['found']} and {robust['found']} are the wrong coordinates."
    )


def write(record: dict[str, Any], tracks: dict[str, Any], path: Path) -> None:
    """Draw the records: the paper's problem, and the points that tracks show."""
    import plotly.graph_objects as go  # noqa: PLC0415 - an extra, imported only when a page is written

    best = min(record["methods"], key=lambda method: method["rmse"])
    lines = rows(record)
    progress = go.Figure()
    for method in record["methods"]:
        if method["title"].startswith("RMFNL"):
            history = method["history"]
            first = history["objective"][0]
            progress.add_scatter(
                x=history["seconds"],
                y=[value / first for value in history["objective"]],
                name=method["title"],
                mode="lines+markers",
            )
    progress.update_xaxes(title="seconds").update_yaxes(title="objective / objective at the start")
    histogram = go.Figure(layout={"barmode": "overlay"})
    for kind, title in (("clean", "clean entries"), ("outliers", "planted outliers")):
        histogram.add_histogram(
            x=best["residuals"][kind],
            name=title,
            xbins={"start": -7, "end": 7, "size": 0.1},
            opacity=0.75,
        )
    for side in (-1, 1):
        histogram.add_vline(x=side * best["flag_at"], line={"dash": "dot", "color": "gray"})
    histogram.update_xaxes(title="residual").update_yaxes(title="entries", type="log")
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    write_page(
        path,
        "robustmf: the paper's synthetic problem",
        lead(record),
        [
            table(HEADER, lines, best=1 + record["methods"].index(best)),
            '<div class="figures">',
            figure(
                histogram,
                f"{best['title']}: residuals of the training entries. Beyond the dotted lines an entry is flagged as bad.",
            ),
            figure(progress, "Objective over time; every step is guaranteed to descend."),
            "</div>",
            *(
                [
                    f"<h2>{record['methods'][-1]['title']}, in detail</h2>",
                    *fit_page.sections(record["fit"]),
                ]
                if record["fit"]
                else ()
            ),
            f"<h2>Points in space from tracks with wrong matches</h2><p>{tracks_lead(tracks)}</p>",
            fit_page.cloud_figure(tracks["fit"]),
            f'<p class="soft">Seed {record["data"]["seed"]}; {versions}.</p>',
        ],
        style=STYLE,
        script=SCRIPT,
    )
