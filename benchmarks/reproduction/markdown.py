"""Sections as Markdown."""

from __future__ import annotations

from benchmarks.reproduction.sections import Cell, Chart, Section, TableBlock


def section_text(section: Section, figures: str) -> str:
    """One section; charts are linked as files under ``figures``."""
    parts = [f"## {section.title}", section.lead]
    for block in section.blocks:
        parts.append(_table(block) if isinstance(block, TableBlock) else _chart(block, figures))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(block: TableBlock) -> str:
    lines = [
        "| " + " | ".join(map(_escaped, block.header)) + " |",
        "|" + "---|" * len(block.header),
    ]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in block.rows]
    return "\n".join(lines) + (f"\n\n{block.note}" if block.note else "")


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return f"**{text}**" if cell.best and text else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _chart(chart: Chart, figures: str) -> str:
    return f"![{_escaped(chart.caption)}]({figures}/{chart.name}.svg)"
