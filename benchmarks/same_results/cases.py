"""The cases by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.same_results.library import Case, make_model

CASES: dict[str, Case] = {}


def add(name: str, case: Case) -> None:
    """Add a case under a name that is not taken."""
    if name in CASES:
        raise ValueError(f"there are two cases {name!r}")
    CASES[name] = case


def fit(data: Any, *, weights: Any = None, **settings: Any) -> Any:
    """Fit a model; ``weights`` may be a function that makes them for the data."""
    made = weights(data) if callable(weights) else weights
    return make_model(**settings).fit(data, weights=made)


def add_fit(name: str, data: Callable[[], Any], **settings: Any) -> None:
    """Add a fit with given settings to data that are made when the case runs."""
    add(name, lambda: fit(data(), **settings))
