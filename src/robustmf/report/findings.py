"""Tables that are searched and sorted in the page, by a few lines of JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
.find { display: flex; gap: .5rem 1rem; flex-wrap: wrap; align-items: center; margin: .5rem 0; }
.find input { font: inherit; padding: .35rem .6rem; border: 1px solid var(--soft); border-radius: .3rem; }
.find input { min-width: 0; width: 16rem; max-width: 100%; }
.find input { color: var(--ink); background: var(--paper); }
.findings { max-height: 30rem; overflow: auto; border: 1px solid var(--line); border-radius: .4rem; }
.findings thead th { position: sticky; top: 0; background: var(--paper); padding: 0; }
.findings th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; }
.findings th button { padding: .4rem .7rem; cursor: pointer; width: 100%; text-align: inherit; }
.findings th button::after { content: " \\2195"; color: var(--soft); }
.findings th[aria-sort=ascending] button::after { content: " \\2191"; color: inherit; }
.findings th[aria-sort=descending] button::after { content: " \\2193"; color: inherit; }
.findings td, .findings th { text-align: right; } .findings .text { text-align: left; }
.findings td.text { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; max-width: 22rem; }
.findings td.why { min-width: 17rem; max-width: 40rem; }
@media (max-width: 40rem) {
  .findings { font-size: .85rem; } .findings td, .findings th button { padding: .3rem .4rem; }
  .findings td.text { min-width: 5rem; } .findings td.why { min-width: 19rem; }
}
"""

SCRIPT = """
for (const block of document.querySelectorAll('[data-findings]')) {
  const table = block.querySelector('table'), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const lines = [...body.rows], count = block.querySelector('[role=status]'), search = block.querySelector('input');
  const words = new Map(lines.map(line => [line, line.textContent.toLowerCase()]));
  const find = () => {
    const asked = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const line of lines) { line.hidden = !asked.every(word => words.get(line).includes(word)); shown += !line.hidden; }
    count.textContent = shown + ' of ' + lines.length + ' shown';
  };
  search.addEventListener('input', find);
  const order = new Intl.Collator(undefined, { numeric: true });
  heads.forEach((head, k) => head.querySelector('button').addEventListener('click', () => {
    const up = head.getAttribute('aria-sort') !== 'ascending';
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const key = line => line.cells[k].dataset.number ?? line.cells[k].textContent;
    const compare = (a, b) => 'number' in a.cells[k].dataset ? Number(key(a)) - Number(key(b)) : order.compare(key(a), key(b));
    lines.sort((a, b) => up ? compare(a, b) : compare(b, a));
    body.append(...lines);
  }));
  find();
}
"""


@dataclass(frozen=True)
class Column:
    """A column of a table: ``kind`` is "number" (shown with so many ``digits``), "text" or "why" (a sentence)."""

    title: str
    kind: str = "number"
    digits: int = 4


def findings(
    name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str | float]]
) -> str:
    """A table to search and sort. Text cells are HTML that is already escaped; numbers are shown short and sorted as they are."""
    heads = "".join(
        f'<th scope="col"{_css(column)}><button type="button">{escape(column.title)}</button></th>'
        for column in columns
    )
    lines = "".join(
        f"<tr>{''.join(_cell(column, value) for column, value in zip(columns, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f'<div data-findings id="{name}"><div class="find"><label for="{name}-search">Search</label>'
        f'<input id="{name}-search" type="search" autocomplete="off"><span role="status" class="soft">{len(rows)} shown</span></div>'
        f'<div class="findings" tabindex="0" role="region" aria-label="{escape(caption)}"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div></div>"
    )


def _css(column: Column) -> str:
    return (
        "" if column.kind == "number" else f' class="text{" why" if column.kind == "why" else ""}"'
    )


def _cell(column: Column, value: str | float) -> str:
    if isinstance(value, str):
        return f"<td{_css(column)}>{value}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:.{column.digits}g}"
    return f'<td data-number="{value!r}">{text}</td>'
