"""Tables with search and sorting in the page, by a few lines of JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
.search { display: flex; gap: .5rem 1rem; flex-wrap: wrap; align-items: center; margin: .5rem 0; }
.search input { font: inherit; padding: .35rem .6rem; }
.search input { border: 1px solid var(--soft); border-radius: .3rem; }
.search input { min-width: 0; width: 16rem; max-width: 100%; }
.search input { color: var(--ink); background: var(--paper); }
.search-table { max-height: 30rem; overflow: auto; }
.search-table { border: 1px solid var(--line); border-radius: .4rem; }
.search-table thead th { position: sticky; top: 0; background: var(--paper); padding: 0; }
.search-table th button { font: inherit; font-weight: 600; color: inherit; }
.search-table th button { background: none; border: 0; }
.search-table th button { padding: .4rem .7rem; cursor: pointer; width: 100%; text-align: inherit; }
.search-table th button::after { content: " \\2195"; color: var(--soft); }
.search-table th[aria-sort=ascending] button::after { content: " \\2191"; color: inherit; }
.search-table th[aria-sort=descending] button::after { content: " \\2193"; color: inherit; }
.search-table td, .search-table th { text-align: right; }
.search-table .text { text-align: left; }
.search-table td.text { white-space: normal; overflow-wrap: anywhere; }
.search-table td.text { min-width: 6rem; max-width: 22rem; }
.search-table td.reason { min-width: 17rem; max-width: 40rem; }
@media (max-width: 40rem) {
  .search-table { font-size: .85rem; }
  .search-table td, .search-table th button { padding: .3rem .4rem; }
  .search-table td.text { min-width: 5rem; }
  .search-table td.reason { min-width: 19rem; }
}
"""

SCRIPT = """
for (const block of document.querySelectorAll('[data-search-table]')) {
  const table = block.querySelector('table'), body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
  const count = block.querySelector('[role=status]'), search = block.querySelector('input');
  const texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const filter = () => {
    const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every(word => texts.get(row).includes(word));
      shown += !row.hidden;
    }
    count.textContent = shown + ' of ' + rows.length + ' shown';
  };
  search.addEventListener('input', filter);
  const collator = new Intl.Collator(undefined, { numeric: true });
  heads.forEach((head, k) => head.querySelector('button').addEventListener('click', () => {
    const up = head.getAttribute('aria-sort') !== 'ascending';
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const key = row => row.cells[k].dataset.number ?? row.cells[k].textContent;
    const compare = (a, b) => 'number' in a.cells[k].dataset
      ? Number(key(a)) - Number(key(b)) : collator.compare(key(a), key(b));
    rows.sort((a, b) => up ? compare(a, b) : compare(b, a));
    body.append(...rows);
  }));
  filter();
}
"""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    title : str
        Its heading.
    kind : {"number", "text", "reason"}, default="number"
        Numbers are aligned on the right; a reason is a sentence.
    digits : int, default=4
        Number of significant digits of numbers that are not integers.
    """

    title: str
    kind: str = "number"
    digits: int = 4

    @property
    def css(self) -> str:
        """The HTML attribute ``class`` of its cells."""
        return {"number": "", "text": ' class="text"', "reason": ' class="text reason"'}[self.kind]


def search_table(
    name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str | float]]
) -> str:
    """Return a table with search and sorting as HTML.

    Parameters
    ----------
    name : str
        Id of the HTML element.
    caption : str
        Label for screen readers.
    columns : sequence of Column
        The columns.
    rows : sequence of sequences
        Strings are escaped HTML; numbers are shown rounded and sorted by their value.
    """
    heads = "".join(
        f'<th scope="col"{column.css}><button type="button">{escape(column.title)}</button></th>'
        for column in columns
    )
    body = "".join(
        f"<tr>{''.join(_cell(*pair) for pair in zip(columns, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f'<div data-search-table id="{name}"><div class="search">'
        f'<label for="{name}-search">Search</label>'
        f'<input id="{name}-search" type="search" autocomplete="off">'
        f'<span role="status" class="soft">{len(rows)} shown</span></div>'
        f'<div class="search-table" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _cell(column: Column, value: str | float) -> str:
    if isinstance(value, str):
        return f"<td{column.css}>{value}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:.{column.digits}g}"
    return f'<td data-number="{value!r}">{text}</td>'
