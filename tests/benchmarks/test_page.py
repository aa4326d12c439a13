"""The page of benchmarks and the README agree with the records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import numerics, page, records, registry

ROOT = Path(__file__).parents[2]


def test_page_is_what_the_records_give():
    assert page.PATH.read_text(encoding="utf-8") == page.text(), "run python -m benchmarks tables"


def test_the_page_is_about_the_results_of_the_present_code():
    """After a change of results: ``python -m benchmarks tables``."""
    assert numerics.agrees(numerics.recorded(), numerics.version())


def test_a_record_states_whether_default_fits_have_other_results_since():
    changed = "Default fits have other results since."
    machine = {"processor": "a processor", "cores": 2, "gpu": None}
    record = {"date": "2030-01-01", "commit": None, "machine": machine, "settings": None}
    present = list(numerics.recorded())
    assert changed in page._origin(record)
    assert changed in page._origin(
        record | {"numerical_version": [present[0] * 1.01, *present[1:]]}
    )
    assert changed not in page._origin(record | {"numerical_version": present})


def test_new_records_have_the_numerical_version(tmp_path):
    path = records.save("irls", {}, {"error": 1.0}, tmp_path / "irls.json")
    assert json.loads(path.read_text())["numerical_version"] == list(numerics.version())


def test_every_benchmark_has_a_section():
    text = page.text()
    assert all(f"\n## {name}\n" in text for name in registry.NAMES)


def test_readme_has_the_five_figures():
    rows = page.readme_rows()
    assert len(rows) == 5
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in page.readme_table().splitlines():
        assert line in readme, line


@pytest.mark.parametrize("name", ["breakdown", "default_fits", "growth", "irls"])
def test_figures_are_drawn(name):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    page.draw(name)
    axes = plt.gcf().axes
    assert all(panel.lines for panel in axes)
    plt.close("all")
