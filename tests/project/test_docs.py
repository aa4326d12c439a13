"""The documentation: Python blocks run, docstring examples hold, links lead somewhere."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import robustmf

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "```python" in path.read_text())


@pytest.fixture(scope="session")
def executor():
    """Return the module that executes the blocks when the site is built."""
    spec = importlib.util.spec_from_file_location("blocks", DOCS / "tools" / "blocks.py")
    module = sys.modules["blocks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.pages
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_page_runs(executor, path):
    text = path.read_text()
    page = executor.run_page(text, path)
    assert "```python check" not in page.text
    assert sum(block.word == "picture" for block in executor.blocks(text)) <= len(page.figures), (
        "a picture block draws a figure"
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_the_sensors_tutorial_reads_the_table_of_the_user(executor, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    readings = 20 + rng.standard_normal((150, 2)) @ rng.standard_normal((2, 12))
    readings += 0.1 * rng.standard_normal(readings.shape)
    readings[rng.random(readings.shape) < 0.05] = np.nan
    readings[[7, 40, 90], 3] = 80
    times = pd.date_range("2026-03-01", periods=150, freq="h", name="time")
    names = [f"hall {k}" for k in range(12)]
    pd.DataFrame(readings, times, names).to_csv(tmp_path / "sensors.csv")
    monkeypatch.setenv("ROBUSTMF_DATA", str(tmp_path))
    path = DOCS / "tutorials" / "sensors.md"
    page = executor.run_page(path.read_text(), path)
    assert "your readings (150, 12)" in page.text
    assert "most of them of hall 3" in page.text
    assert "most suspicious: hour 5, sensor hall 1," in page.text


def test_the_other_libraries_are_summarized_in_a_table_of_tasks(executor):
    path = DOCS / "background" / "side-by-side.md"
    text = executor.run_page(path.read_text(), path).text
    record = json.loads((DOCS.parent / "benchmarks" / "side_by_side" / "record.json").read_text())
    header = f"| task | {' | '.join(record)} |\n|---|---|---|---|---|---|---|\n"
    rows = text.partition(header)[2].partition("\n\n")[0].splitlines()
    assert len(rows) == 11
    cells = [row.strip("| ").split(" | ") for row in rows]
    for row in cells[:-1]:
        task = row[0].partition("(#")[2].rstrip(")")
        assert f"{{ #{task} }}" in text
        expected = [str(library[task].get("lines", "–")) for library in record.values()]
        assert row[1:] == expected
    for k, number in enumerate(cells[-1][1:], 1):
        assert number == f"**{sum(row[k] != '–' for row in cells[:-1])} of 10**"


def test_output_and_figures_are_below_the_code(executor):
    code = [
        "import matplotlib.pyplot as plt",
        "plt.plot([1, 2])",
        "plt.title('A < b')",
        "print(6 * 7)",
    ]
    text = "\n".join(["Before.", "", "```python", *code, "```", "", "After.", ""])
    page = executor.run_page(text, Path("page.md"))
    code, printed, drawn, after = (
        page.text.index(part)
        for part in ("6 * 7", "\n42\n", '<figure id="picture-page-1">', "After.")
    )
    assert code < printed < drawn < after
    html = executor.with_figures(page.text, page.figures)
    assert 'aria-label="A &lt; b"' in html
    assert "currentColor" in html
    assert re.findall(r'\bid="((?!picture-page-1)[^"]*)"', html) == []


def test_words_after_python(executor):
    text = (
        "```python fragment\nundefined\n```\n\n"
        "```python check\nx = 1\n```\n\n"
        "```python table\nprint('| a |')\n```\n"
    )
    page = executor.run_page(text, Path("page.md"))
    assert "undefined" in page.text
    assert "x = 1" not in page.text
    assert "\n| a |\n" in "\n" + page.text
    with pytest.raises(ValueError, match=r"line 3.*'tabel'"):
        executor.run_page("\n\n```python tabel\n```\n", Path("page.md"))


def test_an_error_names_the_line_of_the_page(executor):
    with pytest.raises(ZeroDivisionError) as caught:
        executor.run_page("One.\n\n```python\nx = 1\nx / 0\n```\n", Path("page.md"))
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
        for name in ("losses", "datasets", "baselines", "selection", "metrics", "io", "plot")
    ),
]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_in_the_reference(module):
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


def headings(page):
    """Return the anchors of a page, as MkDocs derives them from headings and API entries."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    anchors = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        given = re.search(r"\{ *#([\w-]+) *\}", heading)
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
        words = re.sub(r"[^\w\s-]", "", plain).strip().lower()
        anchors.add(given[1] if given else re.sub(r"[-\s]+", "-", words))
    return anchors


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.relative_to(DOCS).as_posix()
)
def test_links_lead_to_pages_and_headings(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.is_file(), link
        assert not anchor or path.suffix != ".md" or anchor in headings(path), link


def test_docstring_states_the_default_of_every_parameter():
    text = inspect.getdoc(robustmf.RobustMF)
    for name, parameter in inspect.signature(robustmf.RobustMF).parameters.items():
        stated = re.search(rf"^{name} : .*default=(.*)$", text, re.MULTILINE)
        assert stated, name
        assert ast.literal_eval(stated[1]) == parameter.default, name


def test_citation_names_this_release():
    citation = (DOCS.parent / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == robustmf.__version__
