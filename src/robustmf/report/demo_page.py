"""The table, texts and page of ``robustmf demo``, drawn from its records."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from robustmf.report import fit_page
from robustmf.report.charts import Axis, Chart
from robustmf.report.page import figure, table, write_page

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
                _residual_chart(best),
                f"{best['title']}: residuals of the training entries. Entries beyond the dotted"
                " lines are flagged as outliers.",
            ),
            figure(_objective_chart(methods), "Objective over time; it decreases in every step."),
            "</div>",
            f"<h2>{escape(methods[-1]['title'])}: details</h2>",
            *fit_page.sections(record["fit"]),
            "<h2>Points in space from tracks with wrong matches</h2>",
            f"<p>{escape(tracks_summary(tracks))}</p>",
            fit_page.scene_figure(tracks["fit"]),
            f'<p class="soft">Seed {record["data"]["seed"]}; {escape(versions)}.</p>',
        ],
        style=fit_page.STYLE,
        script=fit_page.SCRIPT,
    )


def _objective_chart(methods: list[dict[str, Any]]) -> str:
    """Return the objectives of the methods with guaranteed descent, relative to the first one."""
    curves = {
        method["title"]: (
            method["history"]["seconds"],
            np.divide(method["history"]["objective"], method["history"]["objective"][0]),
        )
        for method in methods
        if method["title"].startswith("RMFNL")
    }
    chart = Chart(
        Axis.over("seconds", np.concatenate([seconds for seconds, _ in curves.values()])),
        Axis.over(
            "objective / initial objective",
            np.concatenate([objective for _, objective in curves.values()]),
        ),
        "Objective over time",
    )
    for k, (title, (seconds, objective)) in enumerate(curves.items()):
        chart.line(seconds, objective, k, title)
        chart.points(seconds, objective, k)
    return chart.svg()


def _residual_chart(method: dict[str, Any]) -> str:
    """Return the histogram of the residuals of clean entries and of outliers."""
    edges = np.linspace(-7, 7, 141)
    counts = {
        title: np.histogram(method["residuals"][kind], edges)[0]
        for kind, title in (("clean", "clean entries"), ("outliers", "outliers"))
    }
    largest = max(count.max() for count in counts.values())
    chart = Chart(
        Axis("residual", -7.0, 7.0),
        Axis("entries", 0.5, 1.5 * max(largest, 1), log=True),
        "Residuals of clean entries and of outliers",
    )
    for k, (title, count) in enumerate(counts.items()):
        chart.bars(edges, count, k, title, opacity=0.75)
    for sign in (-1, 1):
        chart.rule(x=sign * method["threshold"])
    return chart.svg()
