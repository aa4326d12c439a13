"""What MkDocs does beside turning Markdown into pages: run the code in them, list the design notes, stand in for what is not there yet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
import blocks

#: Sections that take what stands in a folder, and the pages at the top that the navigation does not name.
_DESIGN, _GUIDES = "Design notes", "Guides"

_NAMED = ("index.md", "reproduction.md")

#: Stands in for the page that a command writes, so that links to it hold before the command was run.
_UNREPRODUCED = """# Reproduction of the paper

This page is written by the runs themselves:

    robustmf reproduce table2
    robustmf report --out docs

It was not written in the checkout that this site was built from. How runs, records and verdicts work:
[design notes](design/baselines.md).
"""

_pictures: dict[str, dict[str, str]] = {}


def on_config(config: Any) -> Any:
    """Complete the navigation."""
    docs = Path(config.docs_dir)
    sys.path.insert(
        0, str(docs.parent)
    )  # for torture, whose tables pages print; MkDocs takes back what is inserted before this
    notes = sorted(f"design/{path.name}" for path in (docs / "design").glob("*.md"))
    config.nav = _completed(
        config.nav,
        notes,
        sorted(path.name for path in docs.glob("*.md") if path.name not in _NAMED),
    )
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


def _completed(nav: list[Any], notes: list[str], guides: list[str]) -> list[Any]:
    further = {_DESIGN: notes, _GUIDES: guides}

    def section(title: str, entry: Any) -> Any:
        return (
            _completed(entry, notes, guides) + further.get(title, [])
            if isinstance(entry, list)
            else entry
        )

    return [
        {title: section(title, entry) for title, entry in item.items()}
        if isinstance(item, dict)
        else item
        for item in nav
    ]
