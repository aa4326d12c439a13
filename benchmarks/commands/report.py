"""``robustmf report``: records in, tables and figures out; nothing is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.commands.reproduce import RECORDS
from benchmarks.report import reproduced, reproduction_page
from benchmarks.reproduction import drawing, markdown
from benchmarks.reproduction.records import Records
from benchmarks.reproduction.sections import Chart

_HEAD = """# What reproduces, and what does not

Every table and figure of "Scalable Robust Matrix Factorization with Nonconvex Loss" (NeurIPS 2018), the paper's numbers beside ours.
Made by `robustmf report` from the records of `robustmf reproduce`; edit neither this page nor the figures.
"""


def report(
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = RECORDS,
    out: Annotated[
        Path, typer.Option(help="Folder for reproduction.md, reproduction.html and figures/.")
    ] = Path("report"),
    page: Annotated[bool, typer.Option(help="Write the HTML page too.")] = True,
) -> None:
    """Turn records into Markdown tables, PNG and SVG figures, and one HTML page that opens off line.

    Examples:
        robustmf reproduce figure1 && robustmf report

        robustmf report --out there --no-page
    """
    console = Console()
    if not any(records.glob("*.jsonl")):
        raise typer.BadParameter(
            f"there are no records in {records}; make some with 'robustmf reproduce --all --quick'"
        )
    found = reproduced.sections(Records(records))
    out.mkdir(parents=True, exist_ok=True)
    for section in found:
        for block in section.blocks:
            if isinstance(block, Chart):
                drawing.draw(block, out / "figures")
    text = "\n".join([_HEAD, *(markdown.section_text(section, "figures") for section in found)])
    (out / "reproduction.md").write_text(text, encoding="utf-8")
    console.print(f"Tables: {out / 'reproduction.md'}, figures: {out / 'figures'}")
    if page:
        reproduction_page.write(found, out / "reproduction.html")
        console.print(f"Page: {out / 'reproduction.html'}")
