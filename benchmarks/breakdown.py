"""RMSE relative to the oracle as the share of outliers grows from 5 to 35 %, at m = 500.

Every run has its own data set and its own seed of the initialization. RobustMF is not given the
rank, which is 5; the others are.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from benchmarks.accuracy import Run, run_all
from benchmarks.measure import column, grouped, markdown

SMALL = {"runs": 1, "peer_runs": 0, "jobs": 1, "m": 150}
SHARES = (0.05, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35)
MAGNITUDES = (5.0, 50.0)

#: A run succeeds within this multiple of the oracle's RMSE.
WITHIN = 1.1


def run(
    runs: int = 100, peer_runs: int = 20, first_seed: int = 20_000, jobs: int = 2, m: int = 500
) -> list[dict[str, Any]]:
    """``runs`` fits of RobustMF per share and magnitude, ``peer_runs`` of RMFNL and LIBMF."""
    peers = ["RMFNL l1", "RMFNL lsp"]
    if importlib.util.find_spec("libmf"):
        peers.append("LIBMF l1")
    plan = [
        Run(method, m, share, magnitude, first_seed + k, 3 * first_seed + k)
        for method in ("RobustMF", *peers)
        for magnitude in MAGNITUDES
        for share in SHARES
        for k in range(runs if method == "RobustMF" else peer_runs)
    ]
    return run_all(plan, jobs)


def successes(results: list[dict[str, Any]], method: str, magnitude: float) -> dict[float, str]:
    """Runs within 1.1 times the oracle's RMSE, by the share of outliers."""
    own = grouped(results, "method", "magnitude", "outliers")
    found = {}
    for share in SHARES:
        ratios = column(own.get((method, magnitude, share), []), "ratio")
        found[share] = f"{(ratios <= WITHIN).sum()} of {len(ratios)}"
    return found


def table(results: list[dict[str, Any]]) -> str:
    """Runs that succeed, and median ratios, by method and magnitude."""
    counts = []
    medians = []
    for (method, magnitude), own in grouped(results, "method", "magnitude").items():
        name = [method, f"±{magnitude:g}"]
        by_share = grouped(own, "outliers")
        counts.append([*name, *successes(results, method, magnitude).values()])
        ratios = (np.median(column(by_share[share,], "ratio")) for share in SHARES)
        medians.append([*name, *(f"{ratio:.3g}" for ratio in ratios)])
    header = ["method", "outliers of", *(f"{share:.0%}" for share in SHARES)]
    return "\n".join(
        [
            markdown(f"Runs with an RMSE within {WITHIN} × the oracle's", header, counts),
            markdown("Median RMSE relative to the oracle's", header, medians),
        ]
    )


def figure(results: list[dict[str, Any]]) -> None:
    """Share of runs that succeed against the share of outliers."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    _, panels = plt.subplots(1, 2, sharey=True)
    for axes, magnitude in zip(panels, MAGNITUDES, strict=True):
        for (method,), own in grouped(results, "method").items():
            by_share = grouped((r for r in own if r["magnitude"] == magnitude), "outliers")
            within = [np.mean(column(runs, "ratio") <= WITHIN) for runs in by_share.values()]
            shares = [100 * share for (share,) in by_share]
            axes.plot(shares, 100 * np.array(within), "o-", markersize=4, label=method)
        title = f"Outliers of ±{magnitude:g}: runs within {WITHIN} × oracle, %"
        axes.set(xlabel="outliers, %", title=title)
    panels[0].legend(loc="center left")
