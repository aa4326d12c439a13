"""Any matrix, solver or baseline, and method of the model: a finite result or a named error."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import robustmf
from robustmf import RMFNL, RobustMF, baselines
from robustmf.data.checks import MAGNITUDES
from robustmf.data.observed import as_observed
from robustmf.exceptions import NumericalError, RobustMFWarning
from stress.generated import explore
from stress.matrices import Plan, fingerprint, plans
from stress.tally import Tally

TITLE = "any matrix, any solver, any question: a finite answer or a named error, input untouched"
CASES = 4500
FEW = 120

_MODELS: dict[str, Callable[..., Any]] = {
    "auto": RobustMF,
    "irls": lambda **parameters: RobustMF(solver="irls", **parameters),
    "irls random": lambda **parameters: RobustMF(solver="irls", init="random", **parameters),
    "irls huber": lambda **parameters: RobustMF(
        solver="irls", loss="huber", reg_by_count=True, **parameters
    ),
    "irls bias": lambda **parameters: RobustMF(solver="irls", bias=True, **parameters),
    "irls l1": lambda **parameters: RobustMF(solver="irls", loss="l1", init="ridge", **parameters),
    "irls held out": lambda **parameters: RobustMF(
        solver="irls", validation_fraction=0.3, **parameters
    ),
    "irls non-negative": lambda **parameters: RobustMF(nonnegative=True, **parameters),
    "mm": RMFNL,
    "mm random": lambda **parameters: RobustMF(
        solver="mm", loss="geman", init="random", **parameters
    ),
    "mm auto": lambda **parameters: RobustMF(solver="mm", loss="mcp", **parameters),
    "varpro": lambda **parameters: RobustMF(solver="varpro", **parameters),
    "varpro l1": lambda **parameters: RobustMF(
        solver="varpro", loss="l1", init="random", **parameters
    ),
    **{
        name: getattr(baselines, name)
        for name in baselines.__all__
        if name not in ("Baseline", "RMFMM")
    },
}

#: An error message must name a parameter or argument.
_NAMED = re.compile(
    r"\b(X|rank|values|value|weights|rows|cols|users|items|row|col|ids|loss|theta|reg"
    r"|validation_fraction|shape)\b"
)


def _everywhere(model: Any, X: Any) -> Any:
    m = len(model.row_factors_)
    n = len(model.column_factors_)
    i, j = np.divmod(np.arange(m * n), n)
    ids = getattr(model, "row_ids_", None), getattr(model, "column_ids_", None)
    return model.predict(
        *(
            k if names is None else [names[one] for one in k]
            for k, names in zip((i, j), ids, strict=True)
        )
    )


def _round_trip(model: Any, X: Any) -> Any:
    return model.inverse_transform(model.transform(X))


def _recommended(model: Any, X: Any) -> Any:
    scores = model.recommend(
        model.row_ids_ or np.arange(len(model.row_factors_)), n=3, exclude_seen=False
    ).scores
    return scores[:, : min(3, scores.shape[1], len(model.column_factors_))]


def _similar(model: Any, X: Any) -> Any:
    if not model.column_factors_.any():
        with suppress(ValueError):
            model.similar_items([model.column_ids_[0]] if model.column_ids_ else [0], n=2)
            raise AssertionError("similar items of a model without factors")
        return np.empty(0)
    scores = model.similar_items([model.column_ids_[0]] if model.column_ids_ else [0], n=2).scores
    return scores[:, : min(2, int(model.column_factors_.any(axis=1).sum()) - 1)]


def _audited(model: Any, X: Any) -> Any:
    found = model.audit(at_most=1.0)
    assert str(found)
    return [
        value
        for suspect in found.entries
        for value in (suspect.value, suspect.expected, suspect.score)
    ] + [found.clean_share]


def _continued(model: Any, X: Any) -> Any:
    model = model.partial_fit(X)
    return np.concatenate([model.row_factors_.ravel(), model.column_factors_.ravel()])


def _saved(model: Any, X: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "m")
        loaded = robustmf.load(Path(folder) / "m")
    assert loaded.row_factors_.tobytes() == model.row_factors_.tobytes(), "the loaded model differs"
    return loaded.column_factors_


#: Methods of a fitted model, called with the matrix.
_QUERIES: dict[str, Callable[[Any, Any], Any]] = {
    "predict": _everywhere,
    "transform": lambda model, X: model.transform(X),
    "round trip": _round_trip,
    "predict rows": lambda model, X: model.predict(X),
    "recommend": _recommended,
    "similar_items": _similar,
    "outlier_scores": lambda model, X: model.outlier_scores(X),
    "outlier_scores of new rows": lambda model, X: model.outlier_scores(X, rows="new"),
    "outlier_scores of attacks": lambda model, X: model.outlier_scores(attacks=True),
    "row_scores": lambda model, X: model.row_scores(X),
    "column_scores": lambda model, X: model.column_scores(),
    "entry_weights": lambda model, X: model.entry_weights(X),
    "score": lambda model, X: model.score(X),
    "score of fitted rows": lambda model, X: model.score(X, rows="fitted"),
    "audit": _audited,
    "partial_fit": _continued,
    "save": _saved,
}


@dataclass(frozen=True)
class Case:
    """A matrix, a model, and two queries."""

    plan: Plan
    model: str
    rank: int
    queries: tuple[str, ...]


def cases() -> st.SearchStrategy[Case]:
    """All cases."""
    return st.builds(
        Case,
        plan=plans(usual=True),
        model=st.sampled_from(list(_MODELS)),
        rank=st.integers(1, 3),
        queries=st.tuples(*[st.sampled_from(list(_QUERIES))] * 2),
    )


def check(case: Case) -> None:
    """Fit and query."""
    X = case.plan.make()
    before = fingerprint(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        try:
            _fit_and_query(case, X)
        except (ValueError, TypeError) as error:
            _require_named(error)
        except NumericalError:
            assert case.model in baselines.__all__ and _is_hard(X), (
                "only baselines may fail, and only on extreme values"
            )
    assert fingerprint(X) == before, "the input was modified"


def _fit_and_query(case: Case, X: Any) -> None:
    rank = (
        min(case.rank, *(np.shape(X) if not hasattr(X, "shape") else X.shape), 3)
        if _has_shape(X)
        else case.rank
    )
    model = _MODELS[case.model](rank=max(rank, 1), max_iter=8, n_jobs=1, random_state=0)
    try:
        model.fit(X)
    except (ValueError, TypeError) as error:
        assert not _is_plain(X) or "validation_fraction" in str(error), (
            f"refused valid data: {error}"
        )
        raise
    for name in (
        "row_factors_",
        "column_factors_",
        "row_bias_",
        "column_bias_",
        "center_",
        "theta_",
        "reg_",
        "median_",
        "scale_",
    ):
        if hasattr(model, name):
            assert np.isfinite(getattr(model, name)).all(), f"{name} is not finite"
    for query in ("predict",) if case.model in baselines.__all__ else ("predict", *case.queries):
        try:
            result = _QUERIES[query](model, X)
        except (ValueError, TypeError) as error:
            _require_named(error)
            continue
        assert np.isfinite(result).all(), f"the result of {query} is not finite"


def _require_named(error: Exception) -> None:
    assert not isinstance(error, NotFittedError)
    if not _NAMED.search(str(error)):
        raise AssertionError(
            f"the message names no parameter: {type(error).__name__}: {error}"
        ) from error


def _has_shape(X: Any) -> bool:
    return np.ndim(X) == 2 or hasattr(X, "shape") if not isinstance(X, list) else bool(X)


def _is_plain(X: Any) -> bool:
    """Whether X must be fitted: it has enough valid entries, none of them extreme."""
    try:
        observed = as_observed(X)
    except (ValueError, TypeError):
        return False
    return not _is_extreme(X) and observed.n_entries > 4


def _is_hard(X: Any) -> bool:
    """Whether a baseline may raise NumericalError for the values of X."""
    size = np.abs(as_observed(X).rows.values)
    return _is_extreme(X) or bool(size.max() > 1e6 * np.median(size))


def _is_extreme(X: Any) -> bool:
    values = as_observed(X).rows.values
    largest = float(np.abs(values).max())
    least, most = MAGNITUDES[str(values.dtype)]
    return not (least <= largest <= most or largest == 0)


def run(tally: Tally, cases_wanted: int, seed: int) -> None:
    """Matrices of up to 7 × 7, each fitted once and queried three times."""
    _compile()
    explore(tally, cases(), check, cases_wanted, seed)


def _compile() -> None:
    """Compile every kernel, so that no case waits for the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (np.float32, np.float64):
            X = np.random.default_rng(0).standard_normal((9, 8)).astype(dtype)
            for make in _MODELS.values():
                make(rank=2, max_iter=3, n_jobs=1, random_state=0).fit(X)
            model = RobustMF(rank=2, n_jobs=1, random_state=0).fit(X)
            for query in _QUERIES.values():
                query(model, X)
