"""The methods that the tables compare, and the choice of their parameters on validation entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import peer_models
from benchmarks.problems import predicted_at, prediction_factors
from robustmf.baselines import GRASTA, OMDL, RMC, RMFMM, RP, AltGrad, AltImpute, ScaledASD
from robustmf.data.observed import Observed
from robustmf.estimator import RMFNL, RobustMF
from robustmf.metrics import mae
from robustmf.solvers.base import Snapshot

Array = NDArray[np.floating[Any]]
Factors = tuple[Array, Array]

#: Ratio of the times of successive points of a convergence curve, counted from its first point.
_SPACING = 1.15

#: Relative perturbation of the data, above that of a few rounding errors.
_LAST_DIGITS = 1e-13
_PERTURBATION: ContextVar[int | None] = ContextVar("perturbation", default=None)

#: Entries of the fit that compiles before the one that is timed.
_WARM_UP = 500


@dataclass(frozen=True)
class Method:
    """A method of the tables.

    Attributes
    ----------
    name : str
        Name in the tables.
    make : callable
        ``make(rank, **settings)`` gives the estimator.
    grid : str, default=""
        Name of the parameter chosen on validation entries; empty for none.
    values, rating_values : tuple, default=()
        The grid for synthetic data and for ratings; the first is the paper's or the method's own.
    """

    name: str
    make: Callable[..., Any]
    grid: str = ""
    values: tuple[Any, ...] = ()
    rating_values: tuple[Any, ...] = ()


def _rmfnl(loss: str) -> Callable[..., Any]:
    """RMFNL initialized by least squares with a strong ridge on clipped values.

    From the paper's Gaussian initialization it fails.
    """
    return partial(RMFNL, loss=loss, init="ridge")


_RIDGES = ("paper", 2.0, 5.0, 10.0, 20.0)
_DEFAULT_RIDGES = ("auto", *_RIDGES[1:])
_SYNTHETIC_RIDGES = ("paper", 1.0, 2.0, 4.0, 8.0)

_LIST = (
    Method("AltGrad", AltGrad, "reg", ("paper",), _RIDGES),
    Method("AltGrad (λ chosen)", AltGrad, "reg", _SYNTHETIC_RIDGES, _RIDGES),
    Method("RP", RP),
    Method("ScaledASD", ScaledASD),
    Method("ALT-Impute", AltImpute, "reg", _SYNTHETIC_RIDGES, _RIDGES),
    Method("OMDL", OMDL, "alpha", (0.03, 0.1, 0.3), (0.1, 1.0, 3.0)),
    Method("OMDL, one row per batch", partial(OMDL, batch_size=1), "alpha", (0.03, 0.1, 0.3)),
    Method("GRASTA", partial(GRASTA, max_iter=10)),
    Method("GRASTA, 20 passes", partial(GRASTA, max_iter=20)),
    Method("RMC", RMC),
    Method("RMF-MM", RMFMM),
    Method("RMF-MM (heuristic)", partial(RMFMM, heuristic=True)),
    Method("RMFNL LSP", _rmfnl("lsp"), "reg", ("paper",), _RIDGES),
    Method("RMFNL Geman", _rmfnl("geman"), "reg", ("paper",), _RIDGES),
    Method("RMFNL Laplace", _rmfnl("laplace"), "reg", ("paper",), _RIDGES),
    Method("RMFNL LSP, Gaussian init", partial(RMFNL, init="random"), "reg", ("paper",)),
    Method("RobustMF", RobustMF, "reg", ("auto",), _DEFAULT_RIDGES),
    Method("RobustMF, biases", partial(RobustMF, bias=True), "reg", ("auto",), _DEFAULT_RIDGES),
    Method("LIBMF", peer_models.LIBMF, "reg", (0.01, 0.05), (0.01, 0.05, 0.1)),
    Method("cmfrec", peer_models.CMFREC, "reg", (0.05, 1.0, 5.0), (1.0, 5.0, 10.0, 20.0)),
)

METHODS: dict[str, Method] = {method.name: method for method in _LIST}


class Watch:
    """Callback that evaluates the factors at times that grow geometrically from the first call.

    Seconds are CPU seconds, as in the paper; those of the evaluations are subtracted.
    """

    def __init__(self, evaluate: Callable[[Factors], float]) -> None:
        self._evaluate = evaluate
        self._evaluating = 0.0
        self._first: float | None = None
        self._next = 0.0
        self._started = time.process_time()
        self.seconds: list[float] = []
        self.values: list[float] = []

    def __call__(self, snapshot: Snapshot) -> None:
        """Record the value if enough time has passed."""
        entered = time.process_time()
        now = entered - self._started - self._evaluating
        if now >= self._next:
            self.seconds.append(now)
            self.values.append(self._evaluate(snapshot.factors))
            self._first = now if self._first is None else self._first
            self._next = self._first + (now - self._first) * _SPACING
        self._evaluating += time.process_time() - entered

    def elapsed(self) -> float:
        """CPU seconds since the construction, without those of the evaluations."""
        return time.process_time() - self._started - self._evaluating


@contextmanager
def perturbed(seed: int) -> Iterator[None]:
    """Within this context, fits are to data that differ in their last digits."""
    token = _PERTURBATION.set(seed)
    try:
        yield
    finally:
        _PERTURBATION.reset(token)


def data_to_fit(train: Observed) -> Observed:
    """The data, changed within the context :func:`perturbed`."""
    seed = _PERTURBATION.get()
    if seed is None:
        return train
    rows = train.rows
    change = np.random.default_rng(seed).standard_normal(train.n_entries)
    return train.with_values((rows.values * (1 + _LAST_DIGITS * change)).astype(train.dtype))


def timed_fit(
    make: Callable[..., Any], train: Observed, evaluate: Callable[[Factors], float]
) -> tuple[Any, float, dict[str, list[float]]]:
    """The fitted model, its CPU seconds, and the curve of its error against seconds.

    ``make(callbacks=…)`` gives the estimator. One iteration on a few entries compiles first. The
    curve begins at time 0 with the zero matrix, which stands for a fit without factors yet.
    """
    train = data_to_fit(train)
    some = np.arange(train.n_entries) < _WARM_UP
    make(callbacks=[lambda snapshot: snapshot.iteration == 1]).fit(train.select(some))
    m, n = train.shape
    before = evaluate((np.zeros((m, 1), train.dtype), np.zeros((n, 1), train.dtype)))
    watch = Watch(evaluate)
    model = make(callbacks=[watch]).fit(train)
    seconds = watch.elapsed()
    values = [before, *watch.values, evaluate(prediction_factors(model))]
    return model, seconds, {"seconds": [0.0, *watch.seconds, seconds], "value": values}


@dataclass(frozen=True)
class Fitted:
    """The model with the chosen parameters, its seconds, and its curve."""

    model: Any
    parameters: dict[str, Any]
    tried: dict[str, float]
    seconds: float
    curve: dict[str, list[float]]

    def summary(self) -> dict[str, Any]:
        """What a record keeps of the fit."""
        return {
            "parameters": self.parameters,
            "tried": self.tried,
            "seconds": self.seconds,
            "curve": self.curve,
            "iterations": int(self.model.n_iter_),
            "stop_reason": str(self.model.stop_reason_),
        }


def fit_chosen(
    method: Method,
    rank: int,
    values: Sequence[Any],
    train: Observed,
    validation: Observed,
    seed: int,
    evaluate: Callable[[Factors], float],
) -> Fitted:
    """Fit with every value of the grid; keep the smallest mean absolute validation error."""
    best = None
    tried = {}
    for value in values or (None,):
        chosen = {} if value is None else {method.grid: value}
        make = partial(method.make, rank, random_state=1000 + seed, n_jobs=1, **chosen)
        model, seconds, curve = timed_fit(make, train, evaluate)
        error = mae(validation.rows.values, predicted_at(validation, prediction_factors(model)))
        tried[str(value)] = error
        if best is None or error < best[0]:
            best = (error, model, chosen, seconds, curve)
    assert best is not None
    _, model, chosen, seconds, curve = best
    return Fitted(model, chosen, tried if values else {}, seconds, curve)
