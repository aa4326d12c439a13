"""The benchmarks by name."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

#: A new benchmark is a module of this package and its name here, in the order of the page.
NAMES = (
    "accuracy",
    "breakdown",
    "gauntlet",
    "bayes_reference",
    "peers",
    "nonnegative",
    "detection",
    "calibration",
    "defaults",
    "real_tables",
    "dinosaur",
    "irls",
    "growth",
    "default_fits",
    "fit_profile",
    "cold_start",
    "earlier_code",
    "mm",
    "baselines",
    "baseline_settings",
    "estimator",
    "loading",
    "holdout",
    "audit",
    "netflix",
    "gpu",
    "cluster",
    "cluster_initialization",
)


class Benchmark(Protocol):
    """What a module of the registry offers."""

    SMALL: dict[str, Any]
    run: Callable[..., Any]
    table: Callable[[Any], str]


def load(name: str) -> Benchmark:
    """Import the benchmark called ``name``."""
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    return cast(Benchmark, import_module(f"benchmarks.{name}"))


def description(name: str) -> str:
    """First line of the module's docstring, read without importing the module."""
    source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
