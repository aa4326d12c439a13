"""What the documentation shows: every block of Python in it runs, every example in a public docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import robustmf

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "```python" in path.read_text())


@pytest.fixture(scope="session")
def making():
    """The module that runs the blocks, the same one that the build of the site uses."""
    spec = importlib.util.spec_from_file_location("blocks", DOCS / "tools" / "blocks.py")
    module = sys.modules["blocks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_page_runs(making, path):
    text = path.read_text()
    page = making.run_page(text, path)
    assert "```python check" not in page.text
    assert sum(block.word == "picture" for block in making.blocks(text)) <= len(page.figures), (
        "a picture block draws something"
    )


def test_output_and_pictures_stand_below_the_code(making):
    text = "Before.\n\n```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('A < b')\nprint(6 * 7)\n```\n\nAfter.\n"
    page = making.run_page(text, Path("page.md"))
    code, printed, drawn, after = (
        page.text.index(part)
        for part in ("6 * 7", "\n42\n", '<figure id="picture-page-1">', "After.")
    )
    assert code < printed < drawn < after
    html = making.with_figures(page.text, page.figures)
    assert 'aria-label="A &lt; b"' in html
    assert "currentColor" in html
    assert re.findall(r'\bid="((?!picture-page-1)[^"]*)"', html) == []


def test_words_after_python(making):
    text = "```python fragment\nundefined\n```\n\n```python check\nx = 1\n```\n\n```python table\nprint('| a |')\n```\n"
    page = making.run_page(text, Path("page.md"))
    assert "undefined" in page.text
    assert "x = 1" not in page.text
    assert "\n| a |\n" in "\n" + page.text
    with pytest.raises(ValueError, match=r"line 3.*'tabel'"):
        making.run_page("\n\n```python tabel\n```\n", Path("page.md"))


def test_an_error_names_the_line_of_the_page(making):
    with pytest.raises(ZeroDivisionError) as caught:
        making.run_page("One.\n\n```python\nx = 1\nx / 0\n```\n", Path("page.md"))
    last = caught.traceback[-1]
    assert (str(last.path).endswith("page.md"), last.lineno + 1) == (True, 5)


def modules_with_examples():
    names = [
        module.name
        for module in pkgutil.walk_packages(robustmf.__path__, "robustmf.")
        if not module.name.endswith("__main__")
    ]
    sources = {name: importlib.util.find_spec(name).origin for name in names}
    return [name for name, origin in sources.items() if ">>>" in Path(origin).read_text()]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


PUBLIC = [
    "robustmf",
    *(
        f"robustmf.{name}"
        for name in ("losses", "datasets", "baselines", "selection", "metrics", "io")
    ),
]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_stand_in_the_reference(module):
    """Everything that a public module offers has an entry on a page of the API reference."""
    reference = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    entries = set(re.findall(r"^::: (\S+)", reference, re.MULTILINE))
    home = importlib.import_module(module)
    names = getattr(home, "__all__", None) or [
        n for n, v in vars(home).items() if getattr(v, "__module__", "") == module and n[0] != "_"
    ]
    missing = []
    for name in names:
        thing = inspect.unwrap(getattr(home, name))
        if not {f"{thing.__module__}.{name}", f"{module}.{name}", thing.__module__} & entries:
            missing.append(name)
    assert missing == []


def test_citation_names_this_release():
    citation = (DOCS.parent / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == robustmf.__version__
