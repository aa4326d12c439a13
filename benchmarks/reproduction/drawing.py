"""Charts as PNG and SVG files, and the report as one self-contained HTML page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from benchmarks.reproduction.sections import Chart, Section, TableBlock
from robustmf.report.page import figure, table, write_page


def draw(chart: Chart, folder: Path) -> list[Path]:
    """Write ``chart.name`` as .svg and .png; the same chart gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    drawing = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = drawing.subplots()
    for series in chart.series:
        axes.plot(series.x, series.y, label=series.name, linewidth=1.4)
    axes.set(xlabel=chart.x_title, ylabel=chart.y_title, title=chart.caption)
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    axes.title.set_fontsize(9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, ncols=2 if len(chart.series) > 6 else 1)
    paths = [folder / f"{chart.name}.{kind}" for kind in ("svg", "png")]
    with mpl.rc_context({"svg.hashsalt": "robustmf", "svg.fonttype": "none"}):
        drawing.savefig(paths[0], metadata={"Date": None})
        drawing.savefig(paths[1], dpi=110, metadata={"Software": None})
    return paths


def write_html(sections: list[Section], path: Path, title: str, lead: str) -> None:
    """Write the page."""
    links = (f'<li><a href="#{one.name}">{escape(one.title)}</a></li>' for one in sections)
    contents = f"<nav aria-label='Tables and figures'><ul>{''.join(links)}</ul></nav>"
    write_page(path, title, lead, [contents, *map(_section, sections)])


def _section(section: Section) -> str:
    tables = [_table(block) for block in section.blocks if isinstance(block, TableBlock)]
    charts = [_chart(block) for block in section.blocks if isinstance(block, Chart)]
    drawn = f'<div class="figures">{"".join(charts)}</div>' if charts else ""
    head = f"<h2>{escape(section.title)}</h2><p>{escape(section.lead)}</p>"
    return f'<section id="{section.name}">{head}{"".join(tables)}{drawn}</section>'


def _table(block: TableBlock) -> str:
    best = {(k, j) for k, row in enumerate(block.rows) for j, cell in enumerate(row) if cell.best}
    note = f'<p class="soft">{escape(block.note)}</p>' if block.note else ""
    texts = [[cell.text for cell in row] for row in block.rows]
    return table(block.header, texts, bold=best) + note


def _chart(chart: Chart) -> str:
    import plotly.graph_objects as go  # noqa: PLC0415 - an extra

    plot = go.Figure()
    for series in chart.series:
        plot.add_scatter(x=series.x, y=series.y, name=series.name, mode="lines")
    plot.update_xaxes(title=chart.x_title, type="log" if chart.log_x else "linear")
    plot.update_yaxes(title=chart.y_title, type="log" if chart.log_y else "linear")
    return figure(plot, chart.caption)
