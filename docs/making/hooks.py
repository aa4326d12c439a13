"""What MkDocs does beside turning Markdown into pages: run the code in them, list the design notes, leave out what is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
import blocks

_DESIGN = "Design notes"

#: Pages that come from elsewhere: in the navigation where they exist.
_OPTIONAL = ("cli.md", "report.md")

#: Stands in for the page that a command writes, so that links to it hold before the command was run.
_UNREPRODUCED = """# Reproduction of the paper

This page is written by the runs themselves:

    robustmf reproduce table2
    robustmf report --out docs

It was not written in the checkout that this site was built from. How runs, records and verdicts work:
[design notes](design/reproduction.md).
"""

_pictures: dict[str, dict[str, str]] = {}


def on_config(config: Any) -> Any:
    """Complete the navigation."""
    docs = Path(config.docs_dir)
    notes = sorted(path.relative_to(docs).as_posix() for path in (docs / "design").glob("*.md"))
    config.nav = _completed(config.nav, notes, [name for name in _OPTIONAL if not (docs / name).exists()])
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand in for absent ones."""
    if files.get_file_from_path("reproduction.md") is None:
        files.append(File.generated(config, "reproduction.md", content=_UNREPRODUCED))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Run the page's Python blocks."""
    if not blocks.blocks(markdown):
        return markdown
    ran = blocks.run_page(markdown, Path(page.file.abs_src_path))
    _pictures[page.file.src_uri] = ran.pictures
    return ran.text


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Put the pictures in, after the search index was made of the text."""
    return blocks.with_pictures(output, _pictures.get(page.file.src_uri, {}))


def _completed(nav: Any, notes: list[str], absent: list[str]) -> Any:
    if isinstance(nav, list):
        return [_completed(entry, notes, absent) for entry in nav if not (isinstance(entry, dict) and next(iter(entry.values())) in absent)]
    if isinstance(nav, dict):
        return {title: notes if title == _DESIGN else _completed(entry, notes, absent) for title, entry in nav.items()}
    return nav
