"""``python -m benchmarks report``: tables and figures of the reproduction, from records alone.

``--docs`` writes the page of the documentation, its figures and the table of the README from the
committed records.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import announce, markdown
from benchmarks.reproduction import drawing
from benchmarks.reproduction.comparison import KINDS
from benchmarks.reproduction.content import counts, sections
from benchmarks.reproduction.sections import Chart, Section
from benchmarks.reproduction.store import DEFAULT, Records
from benchmarks.reproduction.versions import outdated_methods

TITLE = "What reproduces, and what does not"

LEAD = (
    "Every table and figure of 'Scalable Robust Matrix Factorization with Nonconvex Loss' "
    "(NeurIPS 2018), the paper's numbers beside ours."
)

_NOTE = (
    "Written by `python -m benchmarks report --docs` from the records in "
    "`benchmarks/records/reproduction`; do not edit this page."
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: What surrounds the table in the README.
_BEGIN = "<!-- python -m benchmarks report --docs writes this table -->\n"
_END = "<!-- end of the table -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks report", description=__doc__)
    parser.add_argument("--records", type=Path, default=DEFAULT, help="folder of the records")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder to write to")
    parser.add_argument("--no-html", action="store_true", help="write no HTML page")
    parser.add_argument(
        "--docs", action="store_true", help="write the documentation and the README's table"
    )
    options = parser.parse_args(arguments)
    if not any(options.records.glob("*.jsonl")):
        parser.error(
            f"there are no records in {options.records}; 'python -m benchmarks reproduce --all "
            "--quick' makes some"
        )
    records = Records(options.records)
    if options.docs:
        announce("Comparing the records with the code")
        records.write_outdated(outdated_methods(records))
    found = sections(records)
    if options.docs:
        _write(found, DOCS)
        readme = ROOT / "README.md"
        text = with_table(readme.read_text(encoding="utf-8"), readme_table(records))
        readme.write_text(text, encoding="utf-8")
        announce("Written to docs and README.md")
        return 0
    _write(found, options.out)
    if not options.no_html:
        drawing.write_html(found, options.out / "reproduction.html", TITLE, LEAD)
    announce(f"Written to {options.out}")
    return 0


def page(found: list[Section]) -> str:
    """The page as Markdown."""
    head = f"# {TITLE}\n\n{LEAD}\n{_NOTE}\n"
    return "\n".join([head, *(section.markdown("figures") for section in found)])


def charts(found: list[Section]) -> list[Chart]:
    """All charts of the page."""
    return [block for one in found for block in one.blocks if isinstance(block, Chart)]


def _write(found: list[Section], folder: Path) -> None:
    """Write page and figures, and remove figures that the page no longer has."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    drawn = {drawing.draw(chart, figures) for chart in charts(found)}
    for path in figures.glob("figure*.svg"):
        if path not in drawn:
            path.unlink()
    (folder / "reproduction.md").write_text(page(found), encoding="utf-8")


def readme_table(records: Records) -> str:
    """How many printed numbers have which verdict, by table."""
    rows = [
        [name, *(str(found[kind] or "") for kind in KINDS)]
        for name, found in counts(records).items()
    ]
    used = [k for k in range(len(KINDS)) if any(row[k + 1] for row in rows)]
    header = ["printed numbers", *(KINDS[k] for k in used)]
    return markdown("", header, [[row[0], *(row[k + 1] for k in used)] for row in rows])


def with_table(readme: str, table: str) -> str:
    """The README with this table."""
    pattern = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"the README has no place for the table: {_BEGIN.strip()}")
    return pattern.sub(lambda _: f"{_BEGIN}\n{table.strip()}\n\n{_END}", readme)
