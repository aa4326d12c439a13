"""Parameters of estimators, splitters and queries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robustmf import Observed, RobustMF, selection
from robustmf.intervals import ConformalIntervals
from stress.bad_input.cell import Cell, Raises
from stress.bad_input.samples import (
    ALL_MISSING,
    ZEROS,
    M,
    N,
    fitted,
    fresh,
    intervals,
    matrix,
    search,
)


def parameter_cells() -> Iterator[Cell]:
    """Bad values of parameters and arguments."""
    for kind, given, expected in (
        ("rank 0", {"rank": 0}, Raises(ValueError, "rank must be an integer from 1 to 9 = min")),
        (
            "rank too large",
            {"rank": 99},
            Raises(ValueError, "rank must be an integer from 1 to 9 = min"),
        ),
        (
            "rank of another type",
            {"rank": 1.5},
            Raises(TypeError, "rank must be an integer from 1 to 9"),
        ),
        (
            "rank of text",
            {"rank": "all"},
            Raises(TypeError, "rank must be an integer from 1 to 9 .* or 'auto'"),
        ),
        ("unknown loss", {"loss": "l3"}, Raises(ValueError, "loss must be one of")),
        (
            "negative theta",
            {"theta": -1.0},
            Raises(ValueError, "theta must be a finite number > 0"),
        ),
        ("reg of text", {"reg": "much"}, Raises(TypeError, "reg must be a finite number > 0")),
        ("unknown solver", {"solver": "sgd"}, Raises(ValueError, "solver must be")),
        (
            "unknown init",
            {"init": "zeros"},
            Raises(ValueError, "init must be 'auto', 'ridge', 'random'"),
        ),
        ("unknown device", {"device": "tpu"}, Raises(ValueError, "device must be")),
        ("n_jobs 0", {"n_jobs": 0}, Raises(ValueError, "n_jobs must be a positive integer")),
        (
            "bounds upside down",
            {"bounds": (5, 1)},
            Raises(ValueError, "bounds must be .low, high. with low < high"),
        ),
        (
            "random_state of text",
            {"random_state": "x"},
            Raises(TypeError, "random_state must be None, an integer"),
        ),
        (
            "nonnegative of text",
            {"nonnegative": "yes"},
            Raises(TypeError, "nonnegative must be True or False"),
        ),
        (
            "non-negative factors with biases",
            {"nonnegative": True, "bias": True},
            Raises(ValueError, "nonnegative=True is for a model without biases"),
        ),
        (
            "non-negative factors by mm",
            {"nonnegative": True, "solver": "mm", "loss": "lsp"},
            Raises(ValueError, "nonnegative=True needs solver='irls'"),
        ),
        (
            "non-negative factors from negative ones",
            {"nonnegative": True, "init": (-np.ones((M, 1)), np.ones((N, 1)))},
            Raises(ValueError, r"init=\(U, V\) must be non-negative"),
        ),
        (
            "a loss that mm cannot take",
            {"solver": "mm", "loss": "l2"},
            Raises(ValueError, "concave"),
        ),
    ):
        yield Cell(
            "RobustMF.fit",
            kind,
            lambda given=given: RobustMF(**{"rank": 1, "n_jobs": 1} | given).fit(matrix()),
            expected,
        )
    for kind, weights, expected in (
        (
            "weights of the wrong length",
            [1.0],
            Raises(ValueError, "weights must have one number per observed entry"),
        ),
        (
            "negative weights",
            -np.ones((M, N)),
            Raises(ValueError, "weights must be finite, >= 0 and not all 0"),
        ),
        (
            "weights beyond the range of the precision",
            np.full((M, N), 1e300),
            Raises(ValueError, "weights have a maximum of 1e.300; in float64 it must lie between"),
        ),
        ("weights of text", np.full((M, N), "x"), Raises(TypeError, "weights must hold numbers")),
    ):
        yield Cell(
            "RobustMF.fit",
            kind,
            lambda weights=weights: fresh().fit(matrix(), weights=weights),
            expected,
        )
    for function, call in (
        ("RobustMF.inverse_transform", lambda T: fitted().inverse_transform(T)),
        ("selection.RobustMFCV.inverse_transform", lambda T: search().inverse_transform(T)),
    ):
        yield Cell(
            function,
            "wrong number of columns",
            lambda call=call: call(np.ones((2, 4))),
            Raises(ValueError, r"T must have shape \(rows, 1\)"),
        )
        yield Cell(
            function,
            "text",
            lambda call=call: call(np.full((2, 1), "x")),
            Raises(TypeError, "T must hold real numbers"),
        )
    yield Cell(
        "RobustMF.recommend",
        "n = 0",
        lambda: fitted().recommend(0, n=0),
        Raises(ValueError, "n must be an integer >= 1"),
    )
    yield Cell(
        "RobustMF.audit",
        "top = 0",
        lambda: fitted().audit(top=0),
        Raises(ValueError, "top must be an integer >= 1"),
    )
    yield Cell(
        "RobustMF.report",
        "tracks that are none",
        lambda: fitted().report("p.html", tracks=True),
        Raises(ValueError, "tracks"),
    )
    yield Cell(
        "RobustMF.transform",
        "columns that the fit did not know",
        lambda: fitted(True).transform(Observed.from_triplets(row=["n"], col=["new"], value=[1.0])),
        ZEROS,
    )
    yield Cell(
        "selection.RobustMFCV.transform",
        "wrong number of columns",
        lambda: search().transform(np.ones((2, 4))),
        Raises(ValueError, "X has 4 features"),
    )
    yield Cell(
        "selection.RobustMFCV.score",
        "all missing",
        lambda: search().score(ALL_MISSING),
        Raises(ValueError, "at least one observed entry"),
    )
    yield Cell(
        "selection.RobustMFCV.fit",
        "unknown scoring",
        lambda: selection.RobustMFCV([1], scoring="r2").fit(matrix()),
        Raises(ValueError, "scoring must be one of"),
    )
    yield Cell(
        "selection.entry_split",
        "negative share",
        lambda: selection.entry_split(matrix(), (1, -1)),
        Raises(ValueError, "shares must be two or more numbers > 0"),
    )
    yield Cell(
        "selection.entry_train_test_split",
        "share above 1",
        lambda: selection.entry_train_test_split(matrix(), 1.5),
        Raises(ValueError, "test_size must be below 1"),
    )
    yield Cell(
        "selection.EntryKFold",
        "one fold",
        lambda: selection.EntryKFold(1),
        Raises(ValueError, "n_splits must be an integer >= 2"),
    )
    yield Cell(
        "intervals.ConformalIntervals.predict",
        "level 1",
        lambda: intervals().predict("u01", "i1", 1.0),
        Raises(ValueError, "level must be below 1"),
    )
    yield Cell(
        "intervals.ConformalIntervals",
        "entries of the fit",
        lambda: ConformalIntervals(fitted(), matrix()),
        Raises(ValueError, "entries that the model was not fitted to"),
    )
