"""Self-contained HTML pages: offline, light or dark, for phones and desktops."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape
from pathlib import Path
from typing import Any

from robustmf.io.atomic import write_atomically

_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1b1f24; --paper: #ffffff; --soft: #5b6570; --line: #d8dee4; --mark: #eef4fb;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --paper: #15191d; --soft: #a0a9b2; --line: #333a41; --mark: #1f2b38; }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { margin: 0 auto; padding: 1.5rem 1rem; max-width: 68rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { max-width: 46rem; } .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .4rem .7rem; border-bottom: 1px solid var(--line); }
th, td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.best { background: var(--mark); font-weight: 600; }
td.sentence { text-align: left; white-space: normal; min-width: 20rem; }
table.pairs th, table.pairs td { text-align: left; white-space: normal; }
table.pairs th, table.pairs td { overflow-wrap: anywhere; vertical-align: top; }
table.pairs th { white-space: nowrap; font-weight: 600; width: 9rem; }
@media (max-width: 40rem) {
  table.pairs th, table.pairs td { padding: .35rem .4rem; }
  table.pairs th { width: 6.5rem; white-space: normal; }
}
.figures { display: grid; gap: 1rem; }
.figures { grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
figure { margin: 0; min-width: 0; } figcaption { color: var(--soft); font-size: .9rem; }
"""

#: Adapts the colors of all plots to the light or dark scheme of the page.
_RESTYLE = r"""
const dark = matchMedia('(prefers-color-scheme: dark)');
function restyle() {
  const ink = dark.matches ? '#e6e9ec' : '#1b1f24', line = dark.matches ? '#333a41' : '#d8dee4';
  const clear = 'rgba(0,0,0,0)';
  for (const plot of document.querySelectorAll('.js-plotly-plot')) {
    const style = { 'paper_bgcolor': clear, 'plot_bgcolor': clear, 'font.color': ink };
    for (const name of Object.keys(plot._fullLayout)) {
      if (/^[xy]axis\d*$/.test(name))
        for (const part of ['gridcolor', 'zerolinecolor', 'linecolor'])
          style[name + '.' + part] = line;
      if (/^scene\d*$/.test(name)) for (const axis of ['xaxis', 'yaxis', 'zaxis']) {
        const prefix = name + '.' + axis + '.';
        style[prefix + 'gridcolor'] = style[prefix + 'zerolinecolor'] = line;
        style[prefix + 'backgroundcolor'] = clear;
      }
    }
    Plotly.relayout(plot, style);
  }
}
dark.addEventListener('change', restyle); restyle();
"""

#: Cells with more characters are sentences, which wrap.
_SENTENCE_LENGTH = 45


def plotly() -> Any:
    """Import ``plotly.graph_objects``, a package of the extra 'plot'."""
    try:
        import plotly.graph_objects as go  # noqa: PLC0415 - optional
    except ImportError:
        raise ImportError("a page needs Plotly: pip install 'robustmf[plot]'") from None
    return go


def table(
    header: list[str],
    rows: list[list[str]],
    best: int | None = None,
    bold: Collection[tuple[int, int]] = (),
) -> str:
    """Return an HTML table of escaped texts.

    Parameters
    ----------
    header : list of str
        Titles of the columns.
    rows : list of lists of str
        The cells.
    best : int or None, default=None
        Index of a row to highlight.
    bold : collection of (row, column), default=()
        Indices of single cells to highlight.
    """
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        ('<tr class="best">' if k == best else "<tr>")
        + "".join(_cell(cell, (k, j) in bold) for j, cell in enumerate(row))
        + "</tr>"
        for k, row in enumerate(rows)
    )
    label = escape(", ".join(header))
    content = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Table: {label}">{content}</div>'
    )


def _cell(text: str, bold: bool) -> str:
    kind = ' class="sentence"' if len(text) > _SENTENCE_LENGTH else ""
    content = f"<strong>{escape(text)}</strong>" if bold else escape(text)
    return f"<td{kind}>{content}</td>"


def pairs_table(pairs: Mapping[str, str]) -> str:
    """Return an HTML table of names and escaped texts."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
        for name, text in pairs.items()
    )
    return f'<table class="pairs"><tbody>{rows}</tbody></table>'


def figure(plot: Any, caption: str, height: int = 340) -> str:
    """Return a Plotly figure with a caption as HTML, without the Plotly library."""
    if any(trace.type == "scatter3d" for trace in plot.data):
        margin = {"l": 0, "r": 0, "t": 0, "b": 45}
    else:
        margin = {"l": 55, "r": 50 if "yaxis2" in plot.layout else 10, "t": 10, "b": 45}
    plot.update_layout(
        margin=margin, height=height, template="none", legend={"orientation": "h", "y": 1.12}
    )
    plot.update_yaxes(automargin=True, title_standoff=8)
    drawn = plot.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displayModeBar": False, "responsive": True},
    )
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def write_page(
    path: Path, title: str, lead: str, parts: list[str], style: str = "", script: str = ""
) -> None:
    """Write a page that contains the Plotly library.

    Parameters
    ----------
    path : Path
        Output file.
    title : str
        Title and main heading.
    lead : str
        First paragraph.
    parts : list of str
        HTML of the content.
    style, script : str, default=""
        Additional CSS and JavaScript.
    """
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - optional

    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE}{style}</style><script>{get_plotlyjs()}</script></head>"
        f"<body><main><h1>{escape(title)}</h1><p>{escape(lead)}</p>{''.join(parts)}</main>"
        f"<script>{_RESTYLE}{script}</script></body></html>\n"
    )
    # lone surrogates occur in undecodable file names
    write_atomically(path, page.encode("utf-8", "backslashreplace"))
