"""Functions of row and column ids, or of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from robustmf import baselines
from stress.bad_input.cell import Answers, Cell, Raises
from stress.bad_input.samples import baseline, fitted, intervals, search


def _unknown(name: str) -> Answers:
    return Answers(
        f"the prediction for an unknown id: {name}",
        lambda answer: bool(np.isfinite(np.asarray(answer, float)).all()),
    )


def id_cells() -> Iterator[Cell]:
    """Functions of ids."""
    calls: dict[str, tuple[Callable[[Any], Any], Answers | Raises]] = {
        "RobustMF.predict": (
            lambda ids: fitted(True).predict(ids, "i1"),
            _unknown("`median_`, or the biases where there are some"),
        ),
        "RobustMF.recommend": (
            lambda ids: fitted(True).recommend(ids),
            Raises(ValueError, "a model without biases cannot rank columns"),
        ),
        "RobustMF.similar_items": (
            lambda ids: fitted(True).similar_items(ids),
            Raises(ValueError, "items must be known to the fit"),
        ),
        "intervals.ConformalIntervals.predict": (
            lambda ids: intervals().predict(ids, "i1"),
            Raises(ValueError, "rows and columns must be known to the fit"),
        ),
        "selection.RobustMFCV.predict": (
            lambda ids: search().predict(ids, "i1"),
            _unknown("as `RobustMF.predict`"),
        ),
    }
    for function, (call, unknown) in calls.items():
        yield Cell(function, "unknown id", lambda call=call: call("nobody"), unknown)
        yield Cell(
            function,
            "id of another type",
            lambda call=call: call([3]),
            Raises(TypeError, "ids were of type str in fit"),
        )
        yield Cell(
            function,
            "missing id",
            lambda call=call: call(["u01", None]),
            Raises(ValueError, "ids must not be missing, got None"),
        )
        yield Cell(
            function,
            "NaN id",
            lambda call=call: call([float("nan")]),
            Raises(ValueError, "ids must not be missing, got nan"),
        )
        yield Cell(
            function,
            "id that cannot be one",
            lambda call=call: call([["u01"]]),
            Raises(TypeError, "ids must be hashable"),
        )
    numbers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "RobustMF.predict": ("rows", lambda rows: fitted().predict(rows, [0])),
        "RobustMF.recommend": ("users", lambda rows: fitted().recommend(rows)),
        "RobustMF.similar_items": ("items", lambda rows: fitted().similar_items(rows)),
        **{
            f"baselines.{name}.predict": (
                "rows",
                lambda rows, name=name: baseline(name).predict(rows, [0]),
            )
            for name in baselines.__all__
            if name != "Baseline"
        },
    }
    for function, (argument, call) in numbers.items():
        yield Cell(
            function,
            "number out of range",
            lambda call=call: call([99]),
            Raises(ValueError, f"{argument} must lie in 0 …"),
        )
        yield Cell(
            function,
            "negative number",
            lambda call=call: call([-1]),
            Raises(ValueError, f"{argument} must lie in 0 …"),
        )
        yield Cell(
            function,
            "number with a fraction",
            lambda call=call: call([0.5]),
            Raises(TypeError, f"{argument} must be integers"),
        )
        yield Cell(
            function,
            "text for a number",
            lambda call=call: call(["x"]),
            Raises(TypeError, f"{argument} must be integers"),
        )
