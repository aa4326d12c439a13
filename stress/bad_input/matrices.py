"""Functions of a matrix, with every kind of bad matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustmf import RMFNL, RobustMF, baselines, selection
from robustmf.exceptions import DuplicateEntryError
from robustmf.intervals import ConformalIntervals
from stress.bad_input.cell import Answers, Cell, Raises
from stress.bad_input.samples import (
    ALL_MISSING,
    FINITE,
    ZEROS,
    N,
    NotATable,
    fitted,
    fresh,
    refittable,
    table,
)


def _new(array: Any) -> Callable[[], Any]:
    return lambda: array


#: Kinds of bad matrices: a function that makes one, and the error that most functions raise.
MATRICES: dict[str, tuple[Callable[[], Any], Raises]] = {
    "no rows": (_new(np.empty((0, N))), Raises(ValueError, "X must have rows and columns")),
    "one dimension": (_new(np.ones(N)), Raises(ValueError, "Expected 2D array")),
    "text": (
        _new(np.full((3, N), "x")),
        Raises(TypeError, "X must hold real numbers, got dtype <U1"),
    ),
    "objects": (_new(np.full((3, N), None)), Raises(ValueError, "at least one observed entry")),
    "integers beyond all floats": (
        _new(np.full((3, N), 10**400, object)),
        Raises(TypeError, "X must hold real numbers, got an object array"),
    ),
    "complex": (_new(np.ones((3, N), complex)), Raises(ValueError, "Complex data not supported")),
    "infinity": (_new(np.full((3, N), np.inf)), Raises(ValueError, "values must be finite")),
    "too large": (_new(np.full((3, N), 1e80)), Raises(ValueError, "X has values of size 1e[+]80")),
    "all missing": (_new(ALL_MISSING), Raises(ValueError, "at least one observed entry")),
    "wrong number of columns": (
        _new(np.ones((3, N + 1))),
        Raises(ValueError, f"X has {N + 1} features"),
    ),
    "sparse with duplicate entries": (
        lambda: sp.coo_array((np.ones(2), ([0, 0], [1, 1])), (3, N)),
        Raises(DuplicateEntryError, "duplicate entry at row 0, column 1"),
    ),
    "sparse with padding (dia)": (
        lambda: sp.dia_array(np.eye(3, N)),
        Raises(ValueError, "dia format, which stores zeros"),
    ),
    "not a table": (
        _new(NotATable()),
        Raises(TypeError, "X must hold real numbers, got an object array"),
    ),
    "None": (_new(None), Raises(ValueError, "Expected 2D array")),
    "ids where the fit had none": (
        table,
        Raises(
            ValueError,
            "X has (row|column) ids, but the fit had none|by indices so far, by ids in this batch",
        ),
    ),
}

_FITTED = Answers("a fit", lambda answer: isinstance(answer, RobustMF) or np.isfinite(answer).all())
_NOTHING = Answers("no scores: there are no entries", lambda answer: len(answer) == 0)
_DENSE = Raises(TypeError, "X must be a table or a dense array, since the result is dense")
_SHAPE = Raises(ValueError, "X must have the shape of the fitted matrix")

#: Functions of a matrix, and the kinds for which the result differs from the usual error.
_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], dict[str, Raises | Answers]]] = {
    "RobustMF.fit": (
        lambda X: fresh().fit(X),
        {"wrong number of columns": _FITTED, "ids where the fit had none": _FITTED},
    ),
    "RobustMF.fit_transform": (
        lambda X: fresh().fit_transform(X),
        {"wrong number of columns": _FITTED, "ids where the fit had none": _FITTED},
    ),
    "RMFNL.fit": (
        lambda X: RMFNL(1, n_jobs=1).fit(X),
        {"wrong number of columns": _FITTED, "ids where the fit had none": _FITTED},
    ),
    "RobustMF.partial_fit": (lambda X: refittable().partial_fit(X), {}),
    "RobustMF.transform": (lambda X: fitted().transform(X), {"all missing": ZEROS}),
    "RobustMF.predict (rows)": (
        lambda X: fitted().predict(X),
        {
            "all missing": ZEROS,
            "sparse with duplicate entries": Raises(
                TypeError, "predict of a whole sparse matrix would be a dense one"
            ),
            "sparse with padding (dia)": Raises(
                TypeError, "predict of a whole sparse matrix would be a dense one"
            ),
            "ids where the fit had none": Raises(
                TypeError, "predict of a whole sparse matrix would be a dense one"
            ),
        },
    ),
    "RobustMF.score": (lambda X: fitted().score(X), {}),
    "RobustMF.score (fitted rows)": (
        lambda X: fitted().score(X, rows="fitted"),
        {"wrong number of columns": _SHAPE},
    ),
    "RobustMF.entry_weights": (
        lambda X: fitted().entry_weights(X),
        {"wrong number of columns": _SHAPE},
    ),
    "RobustMF.outlier_scores": (
        lambda X: fitted().outlier_scores(X),
        {"wrong number of columns": _SHAPE, "None": FINITE},
    ),
    "RobustMF.outlier_scores (new rows)": (
        lambda X: fitted().outlier_scores(X, rows="new"),
        {
            "all missing": _NOTHING,
            "None": Raises(ValueError, "rows='new' needs X"),
        },
    ),
    "RobustMF.row_scores": (
        lambda X: fitted().row_scores(X),
        {"wrong number of columns": _SHAPE, "None": FINITE},
    ),
    "RobustMF.column_scores": (
        lambda X: fitted().column_scores(X),
        {"wrong number of columns": _SHAPE, "None": FINITE},
    ),
    "RobustMF.audit": (
        lambda X: [s.score for s in fitted().audit(X).entries],
        {"wrong number of columns": _SHAPE, "None": FINITE},
    ),
    "RobustMF.impute": (
        lambda X: fitted().impute(X, rows="new"),
        {
            "all missing": Answers("the same", lambda answer: np.isnan(answer).all()),
            "sparse with duplicate entries": _DENSE,
            "sparse with padding (dia)": _DENSE,
            "ids where the fit had none": _DENSE,
        },
    ),
    "RobustMF.clean": (
        lambda X: fitted().clean(X, rows="new").data,
        {"all missing": Answers("the same", lambda answer: np.isnan(answer).all())},
    ),
    "RobustMF.memory_estimate": (
        lambda X: fresh().memory_estimate(X),
        {
            "wrong number of columns": FINITE,
            "ids where the fit had none": FINITE,
            "too large": FINITE,
            "None": Raises(ValueError, "memory_estimate needs X"),
        },
    ),
    "selection.entry_split": (
        lambda X: [part.n_entries for part in selection.entry_split(X, (1, 1), 0)],
        {
            "wrong number of columns": FINITE,
            "ids where the fit had none": FINITE,
            "too large": FINITE,
        },
    ),
    "selection.entry_train_test_split": (
        lambda X: [part.n_entries for part in selection.entry_train_test_split(X, random_state=0)],
        {
            "wrong number of columns": FINITE,
            "ids where the fit had none": FINITE,
            "too large": FINITE,
        },
    ),
    "selection.EntryKFold.split": (
        lambda X: [part.n_entries for part, _ in selection.EntryKFold(2, random_state=0).split(X)],
        {
            "wrong number of columns": FINITE,
            "ids where the fit had none": FINITE,
            "too large": FINITE,
        },
    ),
    "selection.RobustMFCV.fit": (
        lambda X: selection.RobustMFCV([1], cv=2, random_state=0).fit(X).best_score_,
        {
            "wrong number of columns": FINITE,
            "ids where the fit had none": FINITE,
        },
    ),
    "intervals.ConformalIntervals": (
        lambda X: ConformalIntervals(fitted(), X),
        {"wrong number of columns": _SHAPE},
    ),
    **{
        f"baselines.{name}.fit": (
            lambda X, name=name: np.asarray(
                getattr(baselines, name)(1, max_iter=2, n_jobs=1, random_state=0)
                .fit(X)
                .row_factors_
            ),
            {"wrong number of columns": FINITE, "ids where the fit had none": FINITE},
        )
        for name in baselines.__all__
        if name != "Baseline"
    },
}


def matrix_cells() -> Iterator[Cell]:
    """Every function of a matrix with every kind of bad matrix."""
    for function, (call, changed) in _FUNCTIONS.items():
        for kind, (make, usual) in MATRICES.items():
            yield Cell(
                function,
                kind,
                lambda call=call, make=make: call(make()),
                changed.get(kind, usual),
            )
