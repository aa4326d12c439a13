"""``python docs/tools/readme_figure.py``: draw the figure of the README.

It shows a fit that is made here, and the record of the benchmark ``breakdown``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from robustmf import RobustMF

_ROOT = Path(__file__).parents[2]
_RANK = 4
_SHAPE = (80, 160)
_COLOURS = {
    "RobustMF": "#0b6e4f",
    "RMFNL lsp": "#c1666b",
    "RMFNL l1": "#d4b483",
    "LIBMF l1": "#4a6fa5",
}
_NAMES = {
    "RMFNL lsp": "RMFNL, log-sum loss (the paper)",
    "RMFNL l1": "RMFNL, l1 loss",
    "LIBMF l1": "LIBMF, l1 loss",
}


def draw() -> Figure:
    """Draw the data, two fits, the detected entries, and the error against the outlier share."""
    truth, observed, bad = _simulate()
    present = ~np.isnan(observed)
    robust = RobustMF(rank=_RANK, bias=False, random_state=0).fit(observed)
    least_squares = RobustMF(rank=_RANK, loss="l2", bias=False, random_state=0).fit(observed)
    completed = [fit.row_factors_ @ fit.column_factors_.T for fit in (least_squares, robust)]
    errors = [float(np.sqrt(np.mean((X - truth) ** 2)) / np.std(truth)) for X in completed]
    flagged = np.zeros(_SHAPE, bool)
    flagged[present] = robust.outlier_scores() < 1e-4
    figure = Figure(figsize=(11, 4.9), layout="constrained", facecolor="white")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    panels = upper.subplots(1, 4)
    titles = [
        f"Data: {1 - present.mean():.0%} missing, {bad[present].mean():.0%} of the rest wrong",
        f"Least squares: error {errors[0]:.0%} of the signal",
        f"RobustMF: error {errors[1]:.1%}",
    ]
    limit = float(np.abs(truth).max())
    for axes, image, title in zip(panels, (observed, *completed), titles, strict=False):
        axes.imshow(image, "RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        axes.set_facecolor("#d9d9d9")
        axes.set_title(title, fontsize=9)
    panels[3].imshow(
        flagged, ListedColormap(["#f3f3f3", "#b2182b"]), aspect="auto", interpolation="nearest"
    )
    n_found = int((flagged & bad).sum())
    n_false = int((flagged & ~bad).sum())
    panels[3].set_title(
        f"Found: {n_found:,} of {int(bad.sum()):,} bad cells, {n_false} false", fontsize=9
    )
    for axes in panels:
        axes.set(xticks=[], yticks=[])
    _draw_breakdown(lower.subplots(1, 2, sharey=True))
    return figure


def _simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return truth, data and bad cells: waves of rank 4, 1 % noise, single outliers and bursts."""
    rng = np.random.default_rng(7)
    y, x = (np.linspace(0, 1, size)[:, None] for size in _SHAPE)
    U = np.hstack(
        [np.sin(2 * np.pi * (f * y + p)) for f, p in ((1, 0), (1.7, 0.3), (0.6, 0.6), (2.4, 0.1))]
    )
    V = np.hstack(
        [np.sin(2 * np.pi * (f * x + p)) for f, p in ((1.5, 0.2), (2.6, 0), (0.8, 0.5), (3.5, 0.4))]
    )
    truth = U @ V.T
    data = truth + 0.01 * rng.standard_normal(_SHAPE)
    bad = rng.random(_SHAPE) < 0.10
    for row in rng.choice(_SHAPE[0], 12, replace=False):
        begin = int(rng.integers(0, _SHAPE[1] - 50))
        bad[row, begin : begin + 50] = True
    data[bad] += rng.choice([-1.0, 1.0], int(bad.sum())) * rng.uniform(1, 4, int(bad.sum()))
    missing = rng.random(_SHAPE) < 0.6
    data[missing] = np.nan
    return truth, data, bad & ~missing


def _draw_breakdown(panels: np.ndarray) -> None:
    """Draw the median error relative to the oracle against the share of outliers."""
    ratios: dict[tuple[str, float], dict[float, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    record = json.loads((_ROOT / "benchmarks" / "records" / "breakdown.json").read_text())
    for run in record["results"]:
        ratios[run["method"], run["magnitude"]][run["outliers"]].append(run["ratio"])
    for axes, magnitude in zip(panels, (5.0, 50.0), strict=True):
        for method, colour in _COLOURS.items():
            runs = ratios[method, magnitude]
            axes.plot(
                [100 * share for share in runs],
                [float(np.median(found)) for found in runs.values()],
                "o-",
                markersize=4,
                linewidth=2,
                color=colour,
                label=_NAMES.get(method, method),
            )
        axes.set_title(
            f"The paper's problem, outliers of ±{magnitude:g} (values are of size 2)", fontsize=9
        )
        axes.set_xlabel("outliers, % of the observed entries", fontsize=8)
        axes.set(yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("error relative to the oracle\n(outliers known)", fontsize=8)
    panels[0].legend(fontsize=8, loc="upper left")


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "docs" / "assets" / "readme.png"
    draw().savefig(path, dpi=160, metadata={"Software": None})
    print(path)
