"""The page of benchmarks and the README agree with the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import page, registry

ROOT = Path(__file__).parents[2]


def test_page_is_what_the_records_give():
    assert page.PATH.read_text(encoding="utf-8") == page.text(), "run python -m benchmarks tables"


def test_every_benchmark_has_a_section():
    text = page.text()
    assert all(f"\n## {name}\n" in text for name in registry.NAMES)


def test_readme_has_the_five_figures():
    rows = page.readme_rows()
    assert len(rows) == 5
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in page.readme_table().splitlines():
        assert line in readme, line


@pytest.mark.parametrize("name", ["breakdown", "growth", "irls"])
def test_figures_are_drawn(name):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    page.draw(name)
    axes = plt.gcf().axes
    assert all(panel.lines for panel in axes)
    plt.close("all")
