"""Metrics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robustmf import metrics
from stress.bad_input.cell import Cell, Raises


def metric_cells() -> Iterator[Cell]:
    """Metrics of predictions, of detection and of rankings."""
    for name, other in (
        ("rmse", "predicted"),
        ("mae", "predicted"),
        ("prediction_shift", "after"),
        ("paired_t_test", "second"),
    ):
        call = getattr(metrics, name)
        yield Cell(
            f"metrics.{name}",
            "different lengths",
            lambda call=call: call([1.0, 2.0], [1.0]),
            Raises(ValueError, f"and {other} must have the same number of values"),
        )
        yield Cell(
            f"metrics.{name}",
            "NaN",
            lambda call=call: call([1.0, 2.0], [1.0, np.nan]),
            Raises(ValueError, f"{other} must be finite"),
        )
        yield Cell(
            f"metrics.{name}",
            "text",
            lambda call=call: call([1.0, 2.0], ["a", "b"]),
            Raises(TypeError, f"{other} must hold numbers"),
        )
    for name in ("detection_auc", "detection_average_precision", "precision_at_k"):
        call = getattr(metrics, name)
        yield Cell(
            f"metrics.{name}",
            "bad that is not bool",
            lambda call=call: call([1, 0], [0.1, 0.2]),
            Raises(TypeError, "bad must be an array of bool"),
        )
        yield Cell(
            f"metrics.{name}",
            "all of one kind",
            lambda call=call: call([True, True], [0.1, 0.2]),
            Raises(ValueError, "bad must contain both True and False"),
        )
        yield Cell(
            f"metrics.{name}",
            "NaN",
            lambda call=call: call([True, False], [0.1, np.nan]),
            Raises(ValueError, "scores must not be NaN"),
        )
        yield Cell(
            f"metrics.{name}",
            "text",
            lambda call=call: call([True, False], ["a", "b"]),
            Raises(TypeError, "scores must hold numbers"),
        )
    yield Cell(
        "metrics.hit_ratio",
        "targets out of range",
        lambda: metrics.hit_ratio([[1, 2]], [5], 1),
        Raises(ValueError, "targets its columns"),
    )
    yield Cell(
        "metrics.hit_ratio",
        "no targets",
        lambda: metrics.hit_ratio([[1, 2]], [], 1),
        Raises(ValueError, "targets its columns"),
    )
    yield Cell(
        "metrics.hit_ratio",
        "NaN",
        lambda: metrics.hit_ratio([[1, np.nan]], [0], 1),
        Raises(ValueError, "scores must not be NaN"),
    )
    yield Cell(
        "metrics.hit_ratio",
        "n = 0",
        lambda: metrics.hit_ratio([[1, 2]], [0], 0),
        Raises(ValueError, "n must be an integer >= 1"),
    )
