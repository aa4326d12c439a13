"""docs/background/benchmarks.md and the figures of the README, from the records."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import accuracy, breakdown, numerics, records, registry
from benchmarks.measure import column, grouped, markdown

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs" / "background" / "benchmarks.md"

_HEAD = """# Benchmarks

This page is written by `python -m benchmarks tables` from the records in `benchmarks/records`; do
not edit it. `python -m benchmarks NAME --record` runs a benchmark again, `python -m benchmarks
--list` lists all. Every record names the commit, the settings and the machine. Times were taken on
shared cores: compare them within a table, not with other machines. Where the line below a table
states that default fits have other results since, the algorithm, most often the initialization, was
changed after the measurement: errors of default fits differ from those in the table.
"""


def text() -> str:
    """The page."""
    return "\n".join([_HEAD, *map(_section, registry.NAMES)])


def write() -> Path:
    """Write the page, and the numerical version of the code that it is about."""
    numerics.write()
    PATH.write_text(text(), encoding="utf-8")
    return PATH


def _section(name: str) -> str:
    source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstring = (ast.get_docstring(tree) or "").replace("``", "`")
    parts = [f"## {name}\n", f"{docstring}\n"]
    if not (records.FOLDER / f"{name}.json").exists():
        return "\n".join([*parts, f"Not recorded; `python -m benchmarks {name} --record` does.\n"])
    record = records.load(name)
    if any(isinstance(node, ast.FunctionDef) and node.name == "figure" for node in tree.body):
        parts.append(
            f'```python picture\nfrom benchmarks.page import draw\n\ndraw("{name}")\n```\n'
        )
    body = registry.load(name).table(record["results"])
    return "\n".join([*parts, body, f"*{_origin(record)}*\n"])


def _origin(record: dict[str, Any]) -> str:
    machine = record["machine"]
    where = machine["gpu"] or f"{machine['processor']}, {machine['cores']} cores"
    commit = (record["commit"] or "unknown")[:10]
    given = {name: value for name, value in (record["settings"] or {}).items() if value != ""}
    options = ", ".join(f"{name} {value}" for name, value in given.items())
    settings = f", {options}" if options else ""
    return f"Recorded {record['date'][:10]}, commit {commit}, {where}{settings}.{_since(record)}"


def _since(record: dict[str, Any]) -> str:
    """Whether results have changed; records without a numerical version precede the first one."""
    same = numerics.agrees(record.get("numerical_version", ()), numerics.recorded())
    return "" if same else " Default fits have other results since."


def draw(name: str) -> None:
    """Draw the record of a benchmark; called by the page when the site is built."""
    benchmark: Any = registry.load(name)
    benchmark.figure(records.load(name)["results"])


def readme_rows() -> list[list[str]]:
    """The five figures of the README: quantity, figure, command."""
    runs = records.load("accuracy")["results"]
    medians = [f"{np.median(column(own, 'ratio')):.3f}" for own in grouped(runs, "m").values()]
    reached = f"{(column(runs, 'ratio') <= accuracy.WITHIN).sum()} of {len(runs)}"
    robust = breakdown.successes(records.load("breakdown")["results"], "RobustMF", 5.0)
    shares = (0.2, 0.25, 0.3)
    irls = records.load("irls")["results"]
    step = next(line["nanoseconds"] for line in irls["half_steps"] if line["rank"] == 10)
    netflix = records.load("netflix")["results"]
    loads = [f"{np.median(one['seconds']):.1f} s" for one in records.load("loading")["results"][:2]]
    return [
        [
            "RMSE, rank not given, relative to an oracle (m = 250, 500, 1000)",
            f"{', '.join(medians)}; {reached} runs within {accuracy.WITHIN}",
            "accuracy",
        ],
        [
            f"runs, rank not given, within {breakdown.WITHIN} × oracle with 20, 25, 30 % outliers",
            ", ".join(robust[share] for share in shares),
            "breakdown",
        ],
        [
            "half-step at rank 10, one core",
            f"{step['one thread']:.1f} ns per entry, "
            f"{step['plain'] / step['one thread']:.1f} × faster than a plain Numba kernel",
            "irls",
        ],
        [
            '480,189 × 17,770, 100 million entries, rank 10, `init="ridge"`, θ and λ given, '
            "30 sweeps, two cores",
            f"{netflix['fit_seconds']:.0f} s, peak {netflix['peak_gigabytes']:.1f} GB",
            "netflix",
        ],
        ["10 million ratings read from CSV / Parquet", " / ".join(loads), "loading"],
    ]


def readme_table() -> str:
    """The five figures as a Markdown table."""
    rows = [
        [what, figure, f"`python -m benchmarks {name}`"] for what, figure, name in readme_rows()
    ]
    return markdown("", ["quantity", "measured", "command"], rows)
