"""Charts as PNG and SVG files."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reproduction.sections import Chart


def draw(chart: Chart, folder: Path) -> list[Path]:
    """Write ``chart.name`` as .svg and .png; the same chart gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, imported only when something is drawn
    from matplotlib.figure import Figure  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for series in chart.series:
        axes.plot(series.x, series.y, label=series.name, linewidth=1.4)
    axes.set(xlabel=chart.x_title, ylabel=chart.y_title, title=chart.caption)
    axes.title.set_fontsize(9)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, ncols=2 if len(chart.series) > 6 else 1)
    paths = [folder / f"{chart.name}.{kind}" for kind in ("svg", "png")]
    with mpl.rc_context({"svg.hashsalt": "robustmf", "svg.fonttype": "none"}):
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=110, metadata={"Software": None})
    return paths
