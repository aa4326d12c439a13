"""The reproduction as one self-contained HTML page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from benchmarks.reproduction.sections import Chart, Section, TableBlock
from robustmf.report.page import figure, table, write_page


def write(sections: list[Section], path: Path) -> None:
    """Write the page."""
    links = "".join(
        f'<li><a href="#{section.name}">{escape(section.title)}</a></li>' for section in sections
    )
    parts = [
        f"<nav aria-label='Tables and figures'><ul>{links}</ul></nav>",
        *map(_section, sections),
    ]
    lead = "Every table and figure of 'Scalable Robust Matrix Factorization with Nonconvex Loss', the paper's numbers beside ours."
    write_page(path, "What reproduces, and what does not", lead, parts)


def _section(section: Section) -> str:
    charts, rest = [], []
    for block in section.blocks:
        if isinstance(block, TableBlock):
            rest.append(_table(block))
        else:
            charts.append(_chart(block))
    drawn = f'<div class="figures">{"".join(charts)}</div>' if charts else ""
    return f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.lead)}</p>{"".join(rest)}{drawn}</section>'


def _table(block: TableBlock) -> str:
    best = {(k, j) for k, row in enumerate(block.rows) for j, cell in enumerate(row) if cell.best}
    note = f'<p class="soft">{escape(block.note)}</p>' if block.note else ""
    return (
        table(block.header, [[cell.text for cell in row] for row in block.rows], bold=best) + note
    )


def _chart(chart: Chart) -> str:
    import plotly.graph_objects as go  # noqa: PLC0415 - an extra, imported only when a page is written

    plot = go.Figure()
    for series in chart.series:
        plot.add_scatter(x=series.x, y=series.y, name=series.name, mode="lines")
    plot.update_xaxes(title=chart.x_title, type="log" if chart.log_x else "linear")
    plot.update_yaxes(title=chart.y_title, type="log" if chart.log_y else "linear")
    return figure(plot, chart.caption)
