"""Entry-wise splits, and the choice of rank, λ, θ and loss by cross-validation over entries.

Rows and columns stay: it is single entries that are held out, as it is single entries that a factorization predicts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from robustmf.data.observed import Observed, as_observed
from robustmf.estimator import RobustMF
from robustmf.exceptions import EmptyRowsWarning
from robustmf.losses import Loss, make_loss
from robustmf.validation import as_generator, require_integer, require_positive

Array = NDArray[np.floating[Any]]
RandomState = int | np.random.Generator | None

#: Share of the largest held-out errors that ``scoring="trimmed"`` leaves out.
TRIMMED = 0.1


def entry_split(
    X: Any, shares: Sequence[float], random_state: RandomState = None
) -> list[Observed]:
    """The entries of X dealt at random into parts with the given shares, e.g. ``(0.5, 0.25, 0.25)``; all keep the shape and the ids.

    Shares are relative: only their proportions count. A row or column may end up without an entry in a part.
    """
    observed = as_observed(X)
    parts = np.asarray(shares, np.float64)
    if parts.ndim != 1 or len(parts) < 2 or not (np.isfinite(parts).all() and (parts > 0).all()):
        raise ValueError(f"shares must be two or more numbers > 0, got shares={shares!r}")
    bounds = np.rint(np.cumsum(parts) / parts.sum() * observed.n_entries).astype(np.int64)
    if (np.diff(bounds, prepend=0) == 0).any():
        raise ValueError(
            f"shares={shares!r} leave a part of the {observed.n_entries} entries empty"
        )
    return [observed.select(mask) for mask in _masks(observed, bounds, random_state)]


def entry_train_test_split(
    X: Any, test_size: float = 0.25, random_state: RandomState = None
) -> tuple[Observed, Observed]:
    """Training and test entries of X, at random; ``test_size`` is the share of the test entries, above 0 and below 1.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf.selection import entry_train_test_split
    >>> train, test = entry_train_test_split(np.arange(20.0).reshape(4, 5), test_size=0.2, random_state=0)
    >>> train.n_entries, test.n_entries, test.shape
    (16, 4, (4, 5))
    """
    require_positive("test_size", test_size)
    if test_size >= 1:
        raise ValueError(f"test_size must be a share below 1, got test_size={test_size!r}")
    train, test = entry_split(X, (1 - test_size, test_size), random_state)
    return train, test


def _masks(
    observed: Observed, bounds: NDArray[np.int64], random_state: RandomState
) -> Iterator[NDArray[np.bool_]]:
    """Which entries, in row order, belong to each part, when a shuffled deck of them is cut at ``bounds``."""
    deck = as_generator(random_state).permutation(observed.n_entries)
    for low, high in zip([0, *bounds[:-1]], bounds, strict=True):
        mask = np.zeros(observed.n_entries, bool)
        mask[deck[low:high]] = True
        yield mask


class EntryKFold:
    """Folds of entries: each entry is tested once, by a model that has not seen it.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2.
    random_state : int, Generator or None
        How the entries are shuffled. They always are: in their own order a fold would be a block of whole rows.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf.selection import EntryKFold
    >>> X = np.arange(20.0).reshape(4, 5)
    >>> [(train.n_entries, test.n_entries) for train, test in EntryKFold(4, random_state=0).split(X)]
    [(15, 5), (15, 5), (15, 5), (15, 5)]
    """

    def __init__(self, n_splits: int = 5, *, random_state: RandomState = None) -> None:
        require_integer("n_splits", n_splits, 2)
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: None = None, groups: None = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(
        self, X: Any, y: None = None, groups: None = None
    ) -> Iterator[tuple[Observed, Observed]]:
        """Pairs of training and test entries, in the shape of X."""
        observed = as_observed(X)
        if observed.n_entries < self.n_splits:
            raise ValueError(
                f"n_splits={self.n_splits} is more than the number of entries, {observed.n_entries}"
            )
        bounds = np.arange(1, self.n_splits + 1) * observed.n_entries // self.n_splits
        for mask in _masks(observed, bounds, self.random_state):
            yield observed.select(~mask), observed.select(mask)


def _held_out_errors(model: RobustMF, test: Observed) -> Array:
    return np.abs(model._model().residuals(test)).astype(np.float64)


def _mae(model: RobustMF, test: Observed) -> float:
    return -float(_held_out_errors(model, test).mean())


def _trimmed(model: RobustMF, test: Observed) -> float:
    errors = np.sort(_held_out_errors(model, test))
    return -float(errors[: max(1, round((1 - TRIMMED) * len(errors)))].mean())


_SCORES: dict[str, Callable[[RobustMF, Observed], float]] = {"mae": _mae, "trimmed": _trimmed}


@dataclass(frozen=True)
class _Path:
    """Settings that are fitted one after the other, each from its neighbour: one rank and one loss, θ falling, λ rising."""

    loss: str | Loss
    rank: int
    thetas: list[Any]
    regs: list[Any]

    def settings(self) -> list[dict[str, Any]]:
        return [
            {"rank": self.rank, "loss": self.loss, "theta": theta, "reg": reg}
            for theta in self.thetas
            for reg in self.regs
        ]

    def fit(
        self, template: RobustMF, train: Observed, test: Observed, score: Callable[..., float]
    ) -> list[tuple[float, float]]:
        """Score and seconds of every setting."""
        found: list[tuple[float, float]] = []
        models: list[RobustMF] = []
        for k, setting in enumerate(self.settings()):
            neighbour = self._neighbour(k, models)
            init = (
                template.init
                if neighbour is None
                else (neighbour.row_factors_, neighbour.column_factors_)
            )
            model = clone(template).set_params(**setting, init=init)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", EmptyRowsWarning
                )  # holding out entries empties rows; not the user's doing
                model.fit(train)
            found.append((score(model, test), time.perf_counter() - started))
            models.append(model)
        return found

    def _neighbour(self, k: int, models: list[RobustMF]) -> RobustMF | None:
        """The fit to start from: the λ just below, else the same λ at the θ just above; none where "auto" has to look for itself."""
        theta, reg = divmod(k, len(self.regs))
        if isinstance(self.regs[reg], str):
            return None
        if reg and not isinstance(self.regs[reg - 1], str):
            return models[k - 1]
        if (
            theta
            and not isinstance(self.thetas[theta], str)
            and not isinstance(self.thetas[theta - 1], str)
        ):
            return models[k - len(self.regs)]
        return None


class RobustMFCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """:class:`~robustmf.RobustMF` with rank, λ, θ and loss chosen by cross-validation over entries.

    Every combination is fitted to every fold. Along θ (falling) and λ (rising) a fit starts from its neighbour's factors, which
    saves the search for a start; each rank, loss, and "auto" starts anew. Rising, since from a λ that is too large the factors are
    zero, and no descent leaves zero.

    Parameters
    ----------
    rank, reg, theta, loss : a value, or a list of values to choose from
        As in :class:`~robustmf.RobustMF`.
    estimator : RobustMF or None
        The template for everything else (bias, solver, …); None means ``RobustMF()``.
    cv : int or splitter
        Number of folds, or an object with ``split(X)`` that yields pairs of training and test :class:`~robustmf.Observed`.
    scoring : {"mae", "trimmed"} or callable
        Minus the mean absolute error over the held-out entries, in which outliers count by their size but not by its square; minus
        that mean without the largest tenth of the errors; or ``scoring(model, test)``, larger is better.
    refit : bool
        Fit the best setting to all entries in the end.
    n_jobs : int or None
        Processes for paths and folds (joblib); None is one. The choice does not depend on it.
    random_state : int, Generator or None
        For the folds; the fits take the template's own.

    Attributes
    ----------
    best_params_, best_score_, best_index_
        The setting chosen, its mean score and its place in ``cv_results_``.
    best_estimator_ : RobustMF
        The model fitted to all entries with it (with ``refit``).
    cv_results_ : dict of arrays
        As scikit-learn's: params, param_rank …, split0_test_score …, mean_test_score, std_test_score, rank_test_score, mean_fit_time.
    n_splits_ : int
        Number of folds.

    Examples
    --------
    >>> from robustmf.datasets import make_synthetic
    >>> from robustmf.selection import RobustMFCV
    >>> search = RobustMFCV(rank=[2, 5, 8], cv=3, random_state=0).fit(make_synthetic(250, observed=0.3, random_state=0).train)
    >>> search.best_params_["rank"]
    5
    """

    def __init__(
        self,
        rank: int | Sequence[int] = (2, 5, 10, 20),
        *,
        reg: Any = "auto",
        theta: Any = "auto",
        loss: str | Loss | Sequence[str | Loss] = "welsch",
        estimator: RobustMF | None = None,
        cv: Any = 5,
        scoring: str | Callable[[RobustMF, Observed], float] = "mae",
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.rank = rank
        self.reg = reg
        self.theta = theta
        self.loss = loss
        self.estimator = estimator
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> Self:
        """Choose on the entries of X, and fit the choice to all of them."""
        observed = as_observed(X)
        template = RobustMF() if self.estimator is None else self.estimator
        score = self._score()
        paths = self._paths(observed)
        folds = list(
            (
                EntryKFold(self.cv, random_state=self.random_state)
                if isinstance(self.cv, int)
                else self.cv
            ).split(observed)
        )
        tasks = (
            delayed(path.fit)(template, train, test, score)
            for path in paths
            for train, test in folds
        )
        done = list(Parallel(n_jobs=self.n_jobs)(tasks))
        # (settings, folds, score and seconds)
        found = np.concatenate(
            [
                np.array(done[k : k + len(folds)]).swapaxes(0, 1)
                for k in range(0, len(done), len(folds))
            ]
        )
        settings = [setting for path in paths for setting in path.settings()]
        self.n_splits_ = len(folds)
        self.cv_results_ = _results(settings, found[..., 0], found[..., 1])
        self.best_index_ = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_params_ = settings[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        if self.refit:
            self.best_estimator_ = clone(template).set_params(**self.best_params_).fit(observed)
            self.n_features_in_ = observed.shape[1]
        return self

    def _score(self) -> Callable[[RobustMF, Observed], float]:
        if callable(self.scoring):
            return self.scoring
        if self.scoring not in _SCORES:
            raise ValueError(
                f"scoring must be one of {', '.join(_SCORES)} or a callable, got scoring={self.scoring!r}"
            )
        return _SCORES[self.scoring]

    def _paths(self, observed: Observed) -> list[_Path]:
        ranks, losses = _choices("rank", self.rank), _choices("loss", self.loss)
        thetas = _ordered(_choices("theta", self.theta), falling=True)
        regs = _ordered(_choices("reg", self.reg), falling=False)
        for rank in ranks:
            require_integer("rank", rank, 1, min(observed.shape), f" = min{observed.shape}")
        for loss in losses:
            make_loss(loss)
        for name, values, words in (
            ("theta", thetas, ("auto", None)),
            ("reg", regs, ("auto", "paper")),
        ):
            for value in values:
                if value not in words:
                    require_positive(name, value, also=f"one of {words}")
        return [_Path(loss, rank, thetas, regs) for rank, loss in product(ranks, losses)]

    def _best(self) -> RobustMF:
        check_is_fitted(
            self,
            "best_estimator_",
            msg="This %(name)s has no model: call fit first, with refit=True.",
        )
        return self.best_estimator_

    def predict(self, rows: ArrayLike, columns: ArrayLike) -> Array:
        """Predictions of the best model."""
        return self._best().predict(rows, columns)

    def transform(self, X: Any) -> Array:
        """Robust fold-in by the best model."""
        return self._best().transform(X)

    def inverse_transform(self, T: ArrayLike) -> Array:
        """The rows that factors predict, by the best model."""
        return self._best().inverse_transform(T)

    def score(self, X: Any, y: None = None) -> float:
        """The score of the best model on the entries of X."""
        return self._score()(self._best(), as_observed(X))


def _choices(name: str, given: Any) -> list[Any]:
    values = list(given) if isinstance(given, (list, tuple, np.ndarray, range)) else [given]
    if not values:
        raise ValueError(
            f"{name} must have at least one value to choose from, got {name}={given!r}"
        )
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _ordered(values: list[Any], falling: bool) -> list[Any]:
    """Words first, then numbers along the path."""
    numbers = [value for value in values if isinstance(value, (int, float))]
    return [value for value in values if not isinstance(value, (int, float))] + sorted(
        numbers, reverse=falling
    )


def _results(settings: list[dict[str, Any]], scores: Array, seconds: Array) -> dict[str, Any]:
    results: dict[str, Any] = {"params": settings, "mean_fit_time": seconds.mean(axis=1)}
    for name in settings[0]:
        results[f"param_{name}"] = np.array([setting[name] for setting in settings], object)
    for k, column in enumerate(scores.T):
        results[f"split{k}_test_score"] = column
    mean = scores.mean(axis=1)
    results["mean_test_score"], results["std_test_score"] = mean, scores.std(axis=1)
    results["rank_test_score"] = (mean[:, None] < mean[None]).sum(axis=1) + 1
    return results
