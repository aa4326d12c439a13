"""Splits of the entries, and the choice of rank, λ, θ and loss by cross-validation over entries.

Single entries are held out, not rows or columns, because a factorization predicts single entries.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from robustmf.data.observed import Observed, as_observed, read_table
from robustmf.data.table_form import ColumnNames
from robustmf.estimator import RobustMF
from robustmf.exceptions import (
    EmptyRowsWarning,
    NotConvergedWarning,
    UnreliableFitWarning,
    warn_user,
)
from robustmf.losses import Loss, make_loss
from robustmf.validation import as_generator, require_integer, require_positive, require_rank

Array = NDArray[np.floating[Any]]
RandomState = int | np.random.Generator | None

#: Fraction of the largest held-out errors that ``scoring="trimmed"`` ignores.
TRIMMED = 0.1


def entry_split(
    X: Any, shares: Sequence[float], random_state: RandomState = None
) -> list[Observed]:
    """Split the entries of X at random into parts; all parts keep the shape and the ids.

    Parameters
    ----------
    X : as in :meth:`robustmf.RobustMF.fit`
        The entries.
    shares : sequence of float
        Relative sizes of the parts, e.g. ``(0.5, 0.25, 0.25)``.
    random_state : int, Generator or None, default=None
        Seed of the permutation.

    Returns
    -------
    list of Observed
        A row or column may have no entry in a part.
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
    """Split the entries of X at random into training and test entries.

    Parameters
    ----------
    X : as in :meth:`robustmf.RobustMF.fit`
        The entries.
    test_size : float, default=0.25
        Fraction of test entries, between 0 and 1.
    random_state : int, Generator or None, default=None
        Seed of the permutation.

    Returns
    -------
    train, test : Observed

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf.selection import entry_train_test_split
    >>> X = np.arange(20.0).reshape(4, 5)
    >>> train, test = entry_train_test_split(X, test_size=0.2, random_state=0)
    >>> train.n_entries, test.n_entries, test.shape
    (16, 4, (4, 5))
    """
    require_positive("test_size", test_size)
    if test_size >= 1:
        raise ValueError(f"test_size must be below 1, got test_size={test_size!r}")
    train, test = entry_split(X, (1 - test_size, test_size), random_state)
    return train, test


def _masks(
    observed: Observed, bounds: NDArray[np.int64], random_state: RandomState
) -> Iterator[NDArray[np.bool_]]:
    """Masks of the parts: a random permutation of the entries is cut at ``bounds``."""
    order = as_generator(random_state).permutation(observed.n_entries)
    for low, high in zip([0, *bounds[:-1]], bounds, strict=True):
        mask = np.zeros(observed.n_entries, bool)
        mask[order[low:high]] = True
        yield mask


class EntryKFold:
    """Folds of entries: each entry is a test entry once.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    random_state : int, Generator or None, default=None
        Seed of the permutation. Entries are always shuffled: in their own order a fold would
        consist of whole rows.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf.selection import EntryKFold
    >>> X = np.arange(20.0).reshape(4, 5)
    >>> folds = EntryKFold(4, random_state=0).split(X)
    >>> [(train.n_entries, test.n_entries) for train, test in folds]
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
    """A regularization path: one rank and one loss, θ decreasing, λ increasing.

    Each fit is initialized with the factors of its predecessor.
    """

    loss: str | Loss
    rank: int | str
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
    ) -> list[tuple[float, float, bool]]:
        """Score and seconds of every setting, and whether its fit converged."""
        found: list[tuple[float, float, bool]] = []
        models: list[RobustMF] = []
        for k, setting in enumerate(self.settings()):
            predecessor = self._predecessor(k, models)
            init = (
                template.init
                if predecessor is None
                else (predecessor.row_factors_, predecessor.column_factors_)
            )
            model = clone(template).set_params(**setting, init=init)
            started = time.perf_counter()
            with warnings.catch_warnings():
                # Rows may be empty because entries are held out; fits that did not converge are
                # counted, and reported once; what is unreliable shows in the errors, and the fit
                # to all entries has its own checks.
                for category in (EmptyRowsWarning, NotConvergedWarning, UnreliableFitWarning):
                    warnings.simplefilter("ignore", category)
                model.fit(train)
            seconds = time.perf_counter() - started
            found.append(
                (score(model, test), seconds, not model.stop_reason_.startswith("max_iter"))
            )
            models.append(model)
        return found

    def _predecessor(self, k: int, models: list[RobustMF]) -> RobustMF | None:
        """The fit that initializes fit k: at the next smaller λ, or at the same λ and larger θ.

        None for "auto", which has its own initialization.
        """
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

    Every combination is fitted to every fold. Along a path of decreasing θ and increasing λ each
    fit is initialized with the factors of its predecessor, which saves the initialization; each
    rank, loss and "auto" begins a new path. λ increases because factors are zero where λ is too
    large, and zero is a stationary point.

    Parameters
    ----------
    rank : int, "auto" or sequence of these, default=(2, 5, 10, 20)
        Ranks to choose from. "auto" finds the rank from the training entries of each fold; along a
        path it is that of the first fit.
    reg, theta, loss : None, a value or a sequence of values, default=None
        Values to choose from, as in :class:`~robustmf.RobustMF`; None is that of ``estimator``. (To
        keep a loss's own scale θ, give ``theta=[None]``.)
    estimator : RobustMF or None, default=None
        Template for all other parameters; None means ``RobustMF()``.
    cv : int or splitter, default=5
        Number of folds, or an object with ``split(X)`` that yields pairs of training and test
        :class:`~robustmf.Observed`.
    scoring : {"mae", "trimmed"} or callable, default="mae"
        "mae" is the negative mean absolute error over the held-out entries; "trimmed" is the same
        without the largest tenth of the errors; a callable is ``scoring(model, test)``, larger is
        better.
    refit : bool, default=True
        Fit the best setting to all entries.
    n_jobs : int or None, default=None
        Number of processes for paths and folds (joblib); None means one. The choice does not
        depend on it.
    random_state : int, Generator or None, default=None
        Seed of the folds; fits use that of ``estimator``, or this one if none is given.
    verbose : int, default=0
        1 shows one progress bar for all fits, with an estimate of the time left, and one for the
        fit of the best setting.

    Attributes
    ----------
    best_params_, best_score_, best_index_
        The best setting, its mean score and its index in ``cv_results_``.
    best_estimator_ : RobustMF
        The model with the best setting, fitted to all entries (with ``refit``).
    cv_results_ : dict of arrays
        As in scikit-learn: params, param_rank …, split0_test_score …, mean_test_score,
        std_test_score, rank_test_score, mean_fit_time.
    n_splits_ : int
        Number of folds.

    Examples
    --------
    >>> from robustmf.datasets import make_synthetic
    >>> from robustmf.selection import RobustMFCV
    >>> data = make_synthetic(250, observed=0.3, random_state=0)
    >>> search = RobustMFCV(rank=[2, 3, 5], cv=3, random_state=0).fit(data.train)
    >>> search.best_params_["rank"]
    5
    """

    def __init__(
        self,
        rank: int | str | Sequence[int | str] = (2, 5, 10, 20),
        *,
        reg: Any = None,
        theta: Any = None,
        loss: str | Loss | Sequence[str | Loss] | None = None,
        estimator: RobustMF | None = None,
        cv: Any = 5,
        scoring: str | Callable[[RobustMF, Observed], float] = "mae",
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
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
        self.verbose = verbose

    def fit(
        self, X: Any, y: None = None, *, row: Any = None, col: Any = None, value: Any = None
    ) -> Self:
        """Choose a setting by cross-validation on X, and fit it to all entries.

        Parameters
        ----------
        X : table, sparse matrix, array or Observed
            As in :meth:`robustmf.RobustMF.fit`.
        y : None, default=None
            Ignored; for compatibility with scikit-learn.
        row, col, value : name of a column, default=None
            As in :meth:`robustmf.RobustMF.fit`.

        Returns
        -------
        self
        """
        observed = as_observed(read_table(X, ColumnNames(row, col, value).checked()))
        seed = self.random_state if isinstance(self.random_state, Integral) else None
        template = RobustMF(random_state=seed) if self.estimator is None else self.estimator
        score = self._score()
        paths = self._paths(template, observed)
        folds = list(
            (
                EntryKFold(self.cv, random_state=self.random_state)
                if isinstance(self.cv, int)
                else self.cv
            ).split(observed)
        )
        quiet = clone(template).set_params(verbose=0) if self.verbose else template
        tasks = (
            delayed(path.fit)(quiet, train, test, score) for path in paths for train, test in folds
        )
        parallel = Parallel(n_jobs=self.n_jobs, return_as="generator")
        done = list(self._shown(parallel(tasks), len(paths) * len(folds), len(paths[0].settings())))
        # (settings, folds, score, seconds and convergence)
        found = np.concatenate(
            [
                np.array(done[k : k + len(folds)]).swapaxes(0, 1)
                for k in range(0, len(done), len(folds))
            ]
        )
        stopped = int((found[..., 2] == 0).sum())
        if stopped:
            warn_user(
                f"{stopped} of {found[..., 2].size} fits stopped at max_iter={template.max_iter} "
                "before the objective converged; raise max_iter or tol of the estimator",
                NotConvergedWarning,
            )
        settings = [setting for path in paths for setting in path.settings()]
        self.n_splits_ = len(folds)
        self.cv_results_ = _results(settings, found[..., 0], found[..., 1])
        self.best_index_ = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_params_ = settings[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        if self.refit:
            best = clone(template).set_params(**self.best_params_)
            if self.verbose:
                best.set_params(verbose=self.verbose)
            self.best_estimator_ = best.fit(observed)
            self.n_features_in_ = observed.shape[1]
        return self

    def _shown(self, results: Iterable[Any], n_paths: int, per_path: int) -> Iterator[Any]:
        """The results of all paths in all folds; with ``verbose``, a bar counts their fits."""
        if not self.verbose:
            yield from results
            return
        from robustmf.solvers.progress import WorkBar  # noqa: PLC0415 - imports rich

        with WorkBar(type(self).__name__, "fits", n_paths * per_path) as bar:
            for result in results:
                bar.advance(per_path)
                yield result

    def _score(self) -> Callable[[RobustMF, Observed], float]:
        if callable(self.scoring):
            return self.scoring
        if self.scoring not in _SCORES:
            raise ValueError(
                f"scoring must be one of {', '.join(_SCORES)} or a callable, "
                f"got scoring={self.scoring!r}"
            )
        return _SCORES[self.scoring]

    def _paths(self, template: RobustMF, observed: Observed) -> list[_Path]:
        given = {
            name: [getattr(template, name)] if value is None else _choices(name, value)
            for name, value in (("reg", self.reg), ("theta", self.theta), ("loss", self.loss))
        }
        ranks = _choices("rank", self.rank)
        losses = given["loss"]
        thetas = _ordered(given["theta"], decreasing=True)
        regs = _ordered(given["reg"], decreasing=False)
        for rank in ranks:
            require_rank(rank, observed.shape)
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

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns of :meth:`transform`."""
        return self._best().get_feature_names_out(input_features)

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


def _ordered(values: list[Any], decreasing: bool) -> list[Any]:
    """Names such as "auto" first, then numbers along the path."""
    numbers = [value for value in values if isinstance(value, (int, float))]
    return [value for value in values if not isinstance(value, (int, float))] + sorted(
        numbers, reverse=decreasing
    )


def _results(settings: list[dict[str, Any]], scores: Array, seconds: Array) -> dict[str, Any]:
    results: dict[str, Any] = {"params": settings, "mean_fit_time": seconds.mean(axis=1)}
    for name in settings[0]:
        results[f"param_{name}"] = np.array([setting[name] for setting in settings], object)
    for k, column in enumerate(scores.T):
        results[f"split{k}_test_score"] = column
    mean = scores.mean(axis=1)
    results["mean_test_score"] = mean
    results["std_test_score"] = scores.std(axis=1)
    results["rank_test_score"] = (mean[:, None] < mean[None]).sum(axis=1) + 1
    return results
