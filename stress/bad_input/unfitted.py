"""Methods called before ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from robustmf import baselines, plot, selection
from robustmf.intervals import ConformalIntervals
from stress.bad_input.cell import Answers, Cell, Raises
from stress.bad_input.samples import fresh, matrix


def unfitted_cells() -> Iterator[Cell]:
    """Use before fit."""
    calls: dict[str, Callable[[], Any]] = {
        "RobustMF.transform": lambda: fresh().transform(matrix()),
        "RobustMF.inverse_transform": lambda: fresh().inverse_transform(np.ones((1, 1))),
        "RobustMF.predict": lambda: fresh().predict([0], [0]),
        "RobustMF.score": lambda: fresh().score(matrix()),
        "RobustMF.recommend": lambda: fresh().recommend(0),
        "RobustMF.similar_items": lambda: fresh().similar_items(0),
        "RobustMF.entry_weights": lambda: fresh().entry_weights(matrix()),
        "RobustMF.outlier_scores": lambda: fresh().outlier_scores(),
        "RobustMF.row_scores": lambda: fresh().row_scores(),
        "RobustMF.column_scores": lambda: fresh().column_scores(),
        "RobustMF.audit": lambda: fresh().audit(),
        "RobustMF.impute": lambda: fresh().impute(matrix()),
        "RobustMF.clean": lambda: fresh().clean(matrix()),
        "RobustMF.save": lambda: fresh().save("m"),
        "RobustMF.report": lambda: fresh().report("p.html"),
        "RobustMF.get_feature_names_out": lambda: fresh().get_feature_names_out(),
        **{f"plot.{name}": lambda name=name: getattr(plot, name)(fresh()) for name in plot.__all__},
        "intervals.ConformalIntervals": lambda: ConformalIntervals(fresh(), matrix()),
        "selection.RobustMFCV.predict": lambda: selection.RobustMFCV().predict([0], [0]),
        "selection.RobustMFCV.transform": lambda: selection.RobustMFCV().transform(matrix()),
        "selection.RobustMFCV.inverse_transform": lambda: selection.RobustMFCV().inverse_transform(
            np.ones((1, 1))
        ),
        "selection.RobustMFCV.score": lambda: selection.RobustMFCV().score(matrix()),
        **{
            f"baselines.{name}.predict": lambda name=name: getattr(baselines, name)(1).predict(
                [0], [0]
            )
            for name in baselines.__all__
            if name != "Baseline"
        },
    }
    for function, call in calls.items():
        yield Cell(
            function, "not fitted", call, Raises(NotFittedError, "not fitted yet|has no model")
        )
    yield Cell(
        "RobustMF.partial_fit",
        "not fitted",
        lambda: fresh().partial_fit(matrix()),
        Answers("as `fit`", lambda a: hasattr(a, "theta_")),
    )
