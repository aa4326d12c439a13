"""Charts as SVG files, and the report as one self-contained HTML page with the same drawings."""

from __future__ import annotations

import io
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduction.sections import Chart, Section, Series, TableBlock
from robustmf.report.page import figure, table, write_page

#: Colours that people with colour-blindness can tell apart (Okabe and Ito), and line styles.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#7e57c2", "#777777")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))

#: Colour of axes and their labels; a page replaces it by that of its text.
_INK = "#010203"
_INK_STYLE = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}

#: Least distance of two labels, as a share of the height of the axes.
_LABEL_DISTANCE = 0.062

#: Ratio of the limits of an axis below which its ticks are equidistant numbers, and above which
#: they are powers of ten.
_NARROW = 4.0
_WIDE = 100.0

#: Exponents.
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: A file names the checksum of its chart in a comment.
_DIGEST = re.compile(r"<!-- data ([0-9a-f]+) -->")


def draw(chart: Chart, folder: Path) -> Path:
    """Write ``chart.name`` as .svg; the same chart gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{chart.name}.svg"
    path.write_text(svg(chart), encoding="utf-8")
    return path


def drawn_digest(path: Path) -> str:
    """The checksum of the chart that a file shows."""
    found = _DIGEST.search(path.read_text(encoding="utf-8"))
    return found.group(1) if found else ""


def svg(chart: Chart, background: str = "white") -> str:
    """The chart, with a label at the end of each curve instead of a legend."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    drawing = Figure(figsize=(6.4, 3.6), facecolor=background)
    with mpl.rc_context(_INK_STYLE):
        axes = drawing.add_axes((0.12, 0.14, 0.65, 0.76), facecolor=background)
    for series in chart.series:
        colour = _COLOURS[series.style]
        style = _STYLES[series.style]
        axes.plot(series.x, series.y, color=colour, linestyle=style, linewidth=1.8)
        if series.low is not None and series.high is not None:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, lw=0)
        if chart.log_x:
            axes.plot(series.x[-1], series.y[-1], "o", color=colour, markersize=4)
    axes.set(xlabel=chart.x_title, ylabel=chart.y_title)
    axes.set_title(chart.caption, fontsize=9, loc="left", color=_INK)
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.autoscale_view()  # ticks and labels need the final limits
    for axis, logarithmic in ((axes.xaxis, chart.log_x), (axes.yaxis, chart.log_y)):
        if logarithmic:
            _label_powers(axis)
    if chart.log_y:
        _label_heights(axes)
    _label_ends(axes, chart.series)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "robustmf", "svg.fonttype": "none"}):
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    return text.replace("<defs>", f"<!-- data {chart.digest()} -->\n<defs>", 1)


def _label_powers(axis: Any) -> None:
    """Powers of ten as plain text, which a page can set in its own font."""
    from matplotlib.ticker import NullFormatter  # noqa: PLC0415 - an extra

    axis.set_major_formatter(lambda value, _: "10" + f"{np.log10(value):.0f}".translate(_RAISED))
    axis.set_minor_formatter(NullFormatter())


def _label_heights(axes: Any) -> None:
    """Ticks at round numbers where a logarithmic axis spans less than a decade or two."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator  # noqa: PLC0415

    low, high = axes.get_ylim()
    if high / low > _WIDE:
        return
    ticks = MaxNLocator(6).tick_values(low, high)
    if high / low > _NARROW:
        ticks = np.array([k * 10.0**e for e in range(-9, 9) for k in (1, 2, 5)])
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _label_ends(axes: Any, series: list[Series]) -> None:
    """Write the names right of the axes, at the heights of the ends, without overlap."""
    ends = np.array([one.y[-1] for one in series])
    heights = axes.transAxes.inverted().transform(
        axes.transData.transform(np.column_stack([[one.x[-1] for one in series], ends]))
    )
    order = np.argsort(heights[:, 1])
    placed = separated(heights[order, 1], _LABEL_DISTANCE)
    for k, height in zip(order, placed, strict=True):
        axes.annotate(
            series[k].name,
            xy=(series[k].x[-1], series[k].y[-1]),
            xytext=(1.03, height),
            textcoords="axes fraction",
            color=_COLOURS[series[k].style],
            fontsize=8,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": _COLOURS[series[k].style],
                "lw": 0.5,
                "alpha": 0.6,
            },
            annotation_clip=False,
        )


def separated(heights: np.ndarray[Any, Any], distance: float) -> list[float]:
    """Ascending heights moved apart, so that neighbours are ``distance`` away from each other."""
    placed: list[float] = []
    for height in heights:
        low = placed[-1] + distance if placed else 0.0
        placed.append(max(float(height), low))
    over = placed[-1] - 1.0 if placed else 0.0
    high = 1.0
    if over > 0:
        for k in reversed(range(len(placed))):
            placed[k] = min(placed[k], high)
            high = placed[k] - distance
    return placed


def write_html(sections: list[Section], path: Path, title: str, lead: str) -> None:
    """Write the page."""
    links = (f'<li><a href="#{one.name}">{escape(one.title)}</a></li>' for one in sections)
    contents = f"<nav aria-label='Tables and figures'><ul>{''.join(links)}</ul></nav>"
    write_page(path, title, lead, [contents, *map(_section, sections)])


def _section(section: Section) -> str:
    tables = [_table(block) for block in section.blocks if isinstance(block, TableBlock)]
    charts = [_chart(block) for block in section.blocks if isinstance(block, Chart)]
    drawn = f'<div class="figures">{"".join(charts)}</div>' if charts else ""
    head = f"<h2>{escape(section.title)}</h2>{_paragraphs(section.lead)}"
    return f'<section id="{section.name}">{head}{"".join(tables)}{drawn}</section>'


def _paragraphs(text: str, attributes: str = "") -> str:
    """Paragraphs of plain text; the signs of Markdown for emphasis and code are dropped."""
    parts = re.split(r"\n\n|\n(?=\d+\. )", re.sub(r"[*`]", "", text))
    return "".join(f"<p{attributes}>{escape(' '.join(part.split()))}</p>" for part in parts)


def _table(block: TableBlock) -> str:
    best = {(k, j) for k, row in enumerate(block.rows) for j, cell in enumerate(row) if cell.best}
    note = _paragraphs(block.note, ' class="soft"') if block.note else ""
    texts = [[cell.text for cell in row] for row in block.rows]
    return table(block.header, texts, bold=best) + note


def _chart(chart: Chart) -> str:
    text = svg(chart, "none")
    inline = text[text.index("<svg") :].replace(_INK, "currentColor")
    label = escape(chart.caption, quote=True)
    opening = rf'\1 class="chart" role="img" aria-label="{label}" \2>'
    inline = re.sub(r'(<svg)[^>]*?(viewBox="[^"]*")[^>]*>', opening, inline, count=1)
    inline = inline.replace('<g id="xtick_', '<g class="xtick" fill="currentColor" id="xtick_')
    # The policy of the page forbids styles within elements.
    inline = re.sub(r"<style.*?</style>", "", inline, flags=re.DOTALL)
    inline = re.sub(r' style="([^"]*)"', lambda found: _attributes(found.group(1)), inline)
    inline = inline.replace("<text ", '<text class="label" ')
    # The page colours texts itself, but not the parts of a text: labels keep the colour of their
    # curve.
    inline = re.sub(
        r'(<text[^>]*) fill="(#[0-9a-f]{6})"([^>]*>)([^<]*)</text>',
        r'\1\3<tspan fill="\2">\4</tspan></text>',
        inline,
    )
    # Several drawings share one page: their ids must differ.
    for name in set(re.findall(r'\bid="([^"]+)"', inline)):
        inline = re.sub(
            rf'(id="|url\(#|href="#){re.escape(name)}(["\)])',
            rf"\g<1>{chart.name}-{name}\2",
            inline,
        )
    return figure(inline, chart.caption)


def _attributes(style: str) -> str:
    """The declarations of a style as attributes; the page chooses the fonts."""
    pairs = (part.split(":", 1) for part in style.split(";") if ":" in part)
    named = ((name.strip(), value.strip()) for name, value in pairs)
    return "".join(f' {name}="{value}"' for name, value in named if not name.startswith("font"))
