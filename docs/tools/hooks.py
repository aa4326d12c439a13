"""MkDocs hooks: execute the Python blocks of the pages, and complete the navigation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
import blocks

#: The section of the navigation that takes the top-level pages which ``mkdocs.yml`` does not name.
_GUIDES = "Guides"

_NAMED_PAGES = ("index.md", "reproduction.md")

#: Placeholder for the page that ``python -m benchmarks report`` writes: links to it stay valid.
_NOT_REPRODUCED = """# Reproduction of the paper

This page is written by the runs themselves:

    python -m benchmarks reproduce table2
    python -m benchmarks report --out docs

It does not exist in the checkout that this site was built from. How runs, records and verdicts
work: [comparison systems and reproduction](design/baselines.md#reproduction-of-the-paper).
"""

_figures: dict[str, dict[str, str]] = {}


def on_config(config: Any) -> Any:
    """Complete the navigation, and make the checkout importable for pages that print its tables."""
    docs = Path(config.docs_dir)
    sys.path.insert(0, str(docs.parent))
    unnamed = sorted(path.name for path in docs.glob("*.md") if path.name not in _NAMED_PAGES)
    config.nav = [
        {_GUIDES: item[_GUIDES] + unnamed} if isinstance(item, dict) and _GUIDES in item else item
        for item in config.nav
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the placeholder of a page that does not exist yet."""
    if files.get_file_from_path("reproduction.md") is None:
        files.append(File.generated(config, "reproduction.md", content=_NOT_REPRODUCED))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Execute the Python blocks of the page."""
    if not blocks.blocks(markdown):
        return markdown
    executed = blocks.run_page(markdown, Path(page.file.abs_src_path))
    _figures[page.file.src_uri] = executed.figures
    return executed.text


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Insert the figures, after the search index was built from the text."""
    return blocks.with_figures(output, _figures.get(page.file.src_uri, {}))
