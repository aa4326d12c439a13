"""The page of ``robustmf bench growth``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustmf.report.page import figure, write_page

_CAPTIONS = {
    "entries": "Seconds a sweep against the number of entries, rank 10, one thread.",
    "rank": "Seconds a sweep against the rank, three million entries, one thread.",
}


def write(record: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw the record."""
    import plotly.graph_objects as go  # noqa: PLC0415 - an extra, imported only when a page is written

    parts = ['<div class="figures">']
    for axis, caption in _CAPTIONS.items():
        plot = go.Figure()
        plot.add_scatter(
            x=[p["x"] for p in record[axis]],
            y=[p["seconds"] for p in record[axis]],
            mode="lines+markers",
            name="measured",
        )
        plot.update_xaxes(title=axis, type="log").update_yaxes(title="seconds a sweep", type="log")
        parts.append(figure(plot, caption))
    plot = go.Figure()
    for rank in dict.fromkeys(p["rank"] for p in record["threads"]):
        points = [p for p in record["threads"] if p["rank"] == rank]
        plot.add_scatter(
            x=[p["x"] for p in points],
            y=[points[0]["seconds"] / p["seconds"] for p in points],
            mode="lines+markers",
            name=f"rank {rank}",
        )
    plot.update_xaxes(title="threads", dtick=1).update_yaxes(title="speed-up")
    parts += [figure(plot, "Speed-up with threads, three million entries."), "</div>"]
    write_page(
        path,
        "robustmf: how a sweep grows",
        "Reweighted least squares with the Welsch loss, float32, 100 entries a row.",
        parts,
    )
