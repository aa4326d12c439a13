"""The table, texts and page of ``robustmf demo``, drawn from its records."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from robustmf.report import fit_page
from robustmf.report.page import figure, plotly, table, write_page
from robustmf.report.search_table import SCRIPT, STYLE

HEADER = ["method", "RMSE", "× oracle", "seconds", "detected", "false"]


def table_rows(record: dict[str, Any]) -> list[list[str]]:
    """Return the cells of the table of methods; the oracle is the first row."""
    oracle = record["oracle_rmse"]
    n_outliers = record["data"]["outliers"]
    rows = [["oracle (outliers known)", f"{oracle:.4f}", "1.00", "", "", ""]]
    for method in record["methods"]:
        rows.append(
            [
                method["title"],
                f"{method['rmse']:.4f}",
                f"{method['rmse'] / oracle:.2f}",
                f"{method['seconds']:.2f}",
                f"{method['detected']} of {n_outliers}",
                str(method["false_positives"]),
            ]
        )
    return rows


def synthetic_summary(record: dict[str, Any]) -> str:
    """Return the description of the synthetic problem."""
    data = record["data"]
    observed = 100 * data["entries"] / (data["rows"] * data["columns"])
    return (
        f"A {data['rows']} × {data['columns']} matrix of rank {data['rank']}: {data['entries']}"
        f" entries are observed ({observed:.1f} %) with noise of standard deviation 0.1, and"
        f" {data['outliers']} of them are outliers with an error of ±5. The RMSE is measured"
        " against the clean matrix at the unobserved entries. Detected and false: outliers and"
        " clean entries that are flagged."
    )


def tracks_summary(record: dict[str, Any]) -> str:
    """Return the description of the feature tracks and the results."""
    robust = record["errors"]["l1"]
    least_squares = record["errors"]["l2"]
    return (
        f"Tracks of {record['points']} points in {record['frames']} frames, of which"
        f" {record['wrong']} coordinates are wrong by 30 to 100 pixels. The mean absolute residual"
        f" of the correct coordinates is {least_squares['pixels']:.2f} pixels for least squares and"
        f" {robust['pixels']:.2f} for the l1 loss; among the {record['wrong']} largest residuals"
        f" {least_squares['detected']} and {robust['detected']} belong to wrong coordinates."
    )


def write(record: dict[str, Any], tracks: dict[str, Any], path: Path) -> None:
    """Write the page.

    Parameters
    ----------
    record : dict
        Made by :func:`robustmf.cli.demo_records.synthetic_record`.
    tracks : dict
        Made by :func:`robustmf.cli.demo_records.tracks_record`.
    path : Path
        Output file.
    """
    methods = record["methods"]
    best = min(methods, key=lambda method: method["rmse"])
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    write_page(
        path,
        "robustmf: the paper's synthetic problem",
        synthetic_summary(record),
        [
            table(HEADER, table_rows(record), best=1 + methods.index(best)),
            '<div class="figures">',
            figure(
                _residual_plot(best),
                f"{best['title']}: residuals of the training entries. Entries beyond the dotted"
                " lines are flagged as outliers.",
            ),
            figure(_objective_plot(methods), "Objective over time, which decreases in every step."),
            "</div>",
            f"<h2>{escape(methods[-1]['title'])}: details</h2>",
            *fit_page.sections(record["fit"]),
            "<h2>Points in space from tracks with wrong matches</h2>",
            f"<p>{escape(tracks_summary(tracks))}</p>",
            fit_page.scene_figure(tracks["fit"]),
            f'<p class="soft">Seed {record["data"]["seed"]}; {escape(versions)}.</p>',
        ],
        style=STYLE,
        script=SCRIPT,
    )


def _objective_plot(methods: list[dict[str, Any]]) -> Any:
    """Return the objectives of the methods with guaranteed descent, relative to the first one."""
    plot = plotly().Figure()
    for method in methods:
        if method["title"].startswith("RMFNL"):
            history = method["history"]
            first = history["objective"][0]
            plot.add_scatter(
                x=history["seconds"],
                y=[value / first for value in history["objective"]],
                name=method["title"],
                mode="lines+markers",
            )
    return plot.update_xaxes(title="seconds").update_yaxes(title="objective / initial objective")


def _residual_plot(method: dict[str, Any]) -> Any:
    """Return the histogram of the residuals of clean entries and of outliers."""
    plot = plotly().Figure(layout={"barmode": "overlay"})
    for kind, title in (("clean", "clean entries"), ("outliers", "outliers")):
        plot.add_histogram(
            x=method["residuals"][kind],
            name=title,
            xbins={"start": -7, "end": 7, "size": 0.1},
            opacity=0.75,
        )
    for sign in (-1, 1):
        plot.add_vline(x=sign * method["threshold"], line={"dash": "dot", "color": "gray"})
    return plot.update_xaxes(title="residual").update_yaxes(title="entries", type="log")
