"""Self-contained HTML pages: offline, light or dark, for phones and desktops."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from html import escape
from pathlib import Path
from typing import Any

from robustmf.io.atomic import write_atomically
from robustmf.report import charts

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
h1 { font-size: 1.6rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
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
  table.pairs th { width: 1%; white-space: normal; overflow-wrap: normal; }
}
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; }
.tiles div { flex: 1 1 8.3rem; }
.tiles div { background: var(--mark); border-radius: .5rem; padding: .6rem .8rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.3; }
.tiles b { font-weight: inherit; white-space: nowrap; }
.tiles small { display: block; font-size: .85rem; font-weight: 400; color: var(--soft); }
.figures { display: grid; gap: 1rem; grid-template-columns: minmax(0, 1fr); }
@media (min-width: 60rem) {
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  /* A figure without a neighbour has its caption beside it. */
  .figures > figure:last-child:nth-child(odd) { grid-column: 1 / -1; display: grid; gap: 1rem; }
  .figures > figure:last-child:nth-child(odd) { grid-template-columns: inherit; }
  .figures > figure:last-child:nth-child(odd) figcaption { align-self: center; }
}
figure { margin: 0; min-width: 0; } figcaption { color: var(--soft); font-size: .9rem; }
"""

#: Cells with more characters are sentences, which wrap.
_SENTENCE_LENGTH = 45


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


def tiles(found: Collection[tuple[str, str, str]]) -> str:
    """Return tiles of a name, a number and a note, all escaped."""
    content = "".join(
        f"<div><dt>{escape(name)}</dt>"
        f"<dd><b>{escape(number)}</b><small>{escape(note)}</small></dd></div>"
        for name, number, note in found
    )
    return f'<dl class="tiles">{content}</dl>'


def figure(content: str, caption: str) -> str:
    """Return a chart with a caption as HTML."""
    return f"<figure><div>{content}</div><figcaption>{escape(caption)}</figcaption></figure>"


def data_element(name: str, value: Any) -> str:
    """Return data for the script of a page, as JSON in an element that is not executed."""
    # Escaped, "<" cannot end the element or begin a comment.
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def write_page(
    path: Path, title: str, lead: str, parts: list[str], style: str = "", script: str = ""
) -> None:
    """Write a page that loads nothing and executes its own script only.

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
    style = f"{_STYLE}{charts.STYLE}{style}"
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    executed = f"<script>{script}</script>" if script else ""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{style}</style></head>"
        f"<body><main><h1>{escape(title)}</h1><p>{escape(lead)}</p>{''.join(parts)}</main>"
        f"{executed}</body></html>\n"
    )
    # lone surrogates occur in undecodable file names
    write_atomically(path, page.encode("utf-8", "backslashreplace"))


def _source(text: str) -> str:
    """Return the source expression of a Content-Security-Policy that allows this text only."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
