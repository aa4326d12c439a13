"""Tables with search, sorting, details and a download, by a few lines of JavaScript."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from robustmf.io.csv_records import csv_records
from robustmf.report.names import csv_text
from robustmf.report.page import data_element

#: Id of the element with the data of downloads and details.
_DATA = "table-data"

STYLE = """
.search { display: flex; gap: .5rem 1rem; flex-wrap: wrap; align-items: center; margin: .5rem 0; }
.search input, .search button, dialog button { font: inherit; padding: .35rem .6rem; }
.search input, .search button, dialog button { border: 1px solid var(--soft); }
.search input, .search button, dialog button { border-radius: .3rem; }
.search input, .search button, dialog button { color: var(--ink); background: var(--paper); }
.search button, dialog button { cursor: pointer; }
.search input { min-width: 0; width: 16rem; max-width: 100%; }
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
.search-table td.reason { min-width: 17rem; max-width: 40rem; overflow-wrap: break-word; }
.link { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
.link { text-align: left; text-decoration: underline; text-decoration-color: var(--soft); }
dialog { color: var(--ink); background: var(--paper); border: 1px solid var(--soft); }
dialog { border-radius: .5rem; width: min(38rem, 94vw); max-height: 86vh; padding: 1rem; }
dialog .head { display: flex; justify-content: space-between; align-items: start; gap: 1rem; }
dialog h3 { margin: 0; font-size: 1.05rem; overflow-wrap: anywhere; }
dialog td:first-child { white-space: normal; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .search-table { max-height: 34rem; }
  .search-table table, .search-table thead, .search-table tbody { display: block; }
  .search-table thead tr { display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--line); }
  .search-table thead th { border: 0; position: static; }
  .search-table tbody tr { display: grid; grid-template-columns: 1fr 1fr; padding: .35rem .3rem; }
  .search-table tbody tr { border-bottom: 1px solid var(--line); }
  .search-table tbody tr[hidden] { display: none; }
  .search-table td { border: 0; padding: .1rem .3rem; text-align: left; }
  .search-table td.text { min-width: 0; font-weight: 600; }
  .search-table td.reason { grid-column: 1 / -1; min-width: 0; font-weight: 400; }
  .search-table td[data-title]::before { content: attr(data-title) " "; color: var(--soft); }
  dialog th, dialog td { padding: .3rem .35rem; }
}
"""

SCRIPT = """
const tableData = JSON.parse(document.getElementById('table-data')?.textContent ?? '{}');
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
  block.querySelector('[data-download]').addEventListener('click', () => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([tableData.csv[block.id]], { type: 'text/csv' }));
    link.download = block.id + '.csv';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  filter();
}
const dialog = document.querySelector('dialog');
dialog?.querySelector('button').addEventListener('click', () => dialog.close());
for (const button of document.querySelectorAll('[data-detail]'))
  button.addEventListener('click', () => {
    const [side, k] = button.dataset.detail.split(' ');
    const { title, note, other, entries } = tableData.details[side][k];
    dialog.querySelector('h3').textContent = title;
    dialog.querySelector('p').textContent = note;
    dialog.querySelector('th').textContent = other;
    dialog.querySelector('tbody').replaceChildren(...entries.map(([label, ...numbers]) => {
      const row = document.createElement('tr');
      row.append(...[tableData.details.labels[label], ...numbers].map(cell => {
        const made = document.createElement('td');
        made.textContent = cell;
        return made;
      }));
      return row;
    }));
    dialog.showModal();
  });
"""

#: The element in which the entries of a row or column are shown.
DIALOG = (
    '<dialog aria-label="Entries"><div class="head"><h3></h3><button type="button">Close</button>'
    '</div><p class="soft"></p><div class="wide" tabindex="0" role="region" '
    'aria-label="Entries"><table><thead><tr><th scope="col"></th>'
    '<th scope="col">value</th><th scope="col">expected</th><th scope="col">score</th></tr></thead>'
    "<tbody></tbody></table></div></dialog>"
)


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
    """Return a table with search, sorting and a download as HTML.

    Parameters
    ----------
    name : str
        Id of the HTML element, of its text in ``downloads`` of :func:`table_data`, and of the file.
    caption : str
        Label for screen readers.
    columns : sequence of Column
        The columns.
    rows : sequence of sequences
        Strings are escaped HTML; numbers are shown rounded and sorted by their value.
    """
    # Roles are explicit because on narrow screens the rows are laid out as blocks, from which
    # browsers do not derive them.
    heads = "".join(
        f'<th scope="col" role="columnheader"{column.css}>'
        f'<button type="button">{escape(column.title)}</button></th>'
        for column in columns
    )
    body = "".join(
        f'<tr role="row">{"".join(_cell(*pair) for pair in zip(columns, row, strict=True))}</tr>'
        for row in rows
    )
    return (
        f'<div data-search-table id="{name}"><div class="search">'
        f'<label for="{name}-search">Search</label>'
        f'<input id="{name}-search" type="search" autocomplete="off">'
        f'<span role="status" class="soft">{len(rows)} shown</span>'
        '<button type="button" data-download>Download CSV</button></div>'
        f'<div class="search-table" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table role="table"><thead role="rowgroup"><tr role="row">{heads}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div></div>'
    )


def detail_button(side: str, number: int, content: str) -> str:
    """Return a button that shows the entries of a row or column; ``content`` is escaped HTML."""
    return f'<button type="button" class="link" data-detail="{side} {number}">{content}</button>'


def table_data(downloads: Mapping[str, str], details: Mapping[str, Any]) -> str:
    """Return the data of downloads and details as HTML.

    Parameters
    ----------
    downloads : mapping of str to str
        CSV by the names of the tables.
    details : mapping
        For "rows" and "columns" a list of dicts (title, note, other, entries), and "labels", to
        which the first number of an entry refers.
    """
    return data_element(_DATA, {"csv": dict(downloads), "details": dict(details)}) + DIALOG


def csv_of(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; texts that spreadsheets would evaluate are protected."""
    fields = (
        [repr(cell) if isinstance(cell, float) else csv_text(str(cell)) for cell in row]
        for row in rows
    )
    return "".join(f"{line}\n" for line in csv_records([header, *fields]))


def _cell(column: Column, value: str | float) -> str:
    if isinstance(value, str):
        return f'<td role="cell"{column.css}>{value}</td>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:.{column.digits}g}"
    title = escape(column.title)
    return f'<td role="cell" data-title="{title}" data-number="{value!r}">{text}</td>'
