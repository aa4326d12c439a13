"""The methods that the tables compare: how each is made, and which of its parameters are chosen on validation entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import peer_models
from robustmf.baselines import GRASTA, OMDL, RMC, RMFMM, RP, AltGrad, AltImpute, ScaledASD
from robustmf.data.observed import Observed
from robustmf.estimator import RMFNL, RobustMF
from robustmf.metrics import mae
from robustmf.solvers.base import Snapshot

Array = NDArray[np.floating[Any]]
Factors = tuple[Array, Array]

#: Points of a convergence curve, about evenly spaced in log time.
_SPACING = 1.15

#: Entries predicted in one go.
_SLICE = 1_000_000

#: Entries of the fit that comes before the one that is timed.
_WARMING = 500


@dataclass(frozen=True)
class Method:
    """A method under its name in the tables.

    Attributes
    ----------
    loss : str
        The group it stands in.
    make : callable
        ``make(rank, **settings)`` gives the estimator.
    grid : str
        Name of the parameter chosen on validation entries; empty for none.
    values, rating_values : tuples
        The grid for synthetic data and for ratings; the first is the paper's or the method's own.
    """

    name: str
    loss: str
    make: Callable[..., Any]
    grid: str = ""
    values: tuple[Any, ...] = ()
    rating_values: tuple[Any, ...] = ()


def _rmfnl(loss: str) -> Callable[..., Any]:
    # from least squares, as close to the paper as works: its Gaussian start fails
    return lambda rank, **settings: RMFNL(rank, **{"loss": loss, "init": "ridge"} | settings)


_RIDGES = ("paper", 2.0, 5.0, 10.0, 20.0)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("AltGrad", "l2", AltGrad, "reg", ("paper",), _RIDGES),
        Method("AltGrad (λ chosen)", "l2", AltGrad, "reg", ("paper", 1.0, 2.0, 4.0, 8.0), _RIDGES),
        Method("RP", "l2", RP),
        Method("ScaledASD", "l2", ScaledASD),
        Method("ALT-Impute", "l2", AltImpute, "reg", ("paper", 1.0, 2.0, 4.0, 8.0), _RIDGES),
        Method("OMDL", "l2", OMDL, "alpha", (0.03, 0.1, 0.3), (0.1, 1.0, 3.0)),
        Method("GRASTA", "l1", GRASTA),
        Method("RMC", "l1", RMC),
        Method("RMF-MM", "l1", RMFMM),
        Method(
            "RMF-MM (heuristic)",
            "l1",
            lambda rank, **settings: RMFMM(rank, heuristic=True, **settings),
        ),
        Method("RMFNL LSP", "LSP", _rmfnl("lsp"), "reg", ("paper",), _RIDGES),
        Method("RMFNL Geman", "Geman", _rmfnl("geman"), "reg", ("paper",), _RIDGES),
        Method("RMFNL Laplace", "Laplace", _rmfnl("laplace"), "reg", ("paper",), _RIDGES),
        Method(
            "RMFNL LSP, Gaussian start",
            "LSP",
            lambda rank, **settings: RMFNL(rank, init="random", **settings),
            "reg",
            ("paper",),
        ),
        Method("RobustMF", "Welsch", RobustMF, "reg", ("auto",), ("auto", 2.0, 5.0, 10.0, 20.0)),
        Method(
            "RobustMF, biases",
            "Welsch",
            lambda rank, **settings: RobustMF(rank, bias=True, **settings),
            "reg",
            ("auto",),
            ("auto", 2.0, 5.0, 10.0, 20.0),
        ),
        Method("LIBMF", "l1", peer_models.LIBMF, "reg", (0.01, 0.05), (0.01, 0.05, 0.1)),
        Method("cmfrec", "l2", peer_models.CMFREC, "reg", (0.05, 1.0, 5.0), (1.0, 5.0, 10.0, 20.0)),
    )
}


def predicted_at(entries: Observed, factors: Factors) -> Array:
    """The product of the factors at the entries, in slices: no array of entries times rank."""
    rows, out = entries.rows, np.empty(entries.n_entries)
    i = rows.group_of_entry()
    for low in range(0, entries.n_entries, _SLICE):
        part = slice(low, low + _SLICE)
        out[part] = np.einsum("tq,tq->t", factors[0][i[part]], factors[1][rows.indices[part]])
    return out


class Watch:
    """Callback that evaluates the factors now and then; the time that takes does not count.

    Seconds are those of the processor, as in the paper: other work on the machine does not decide.
    """

    def __init__(self, evaluate: Callable[[Factors], float]) -> None:
        self._evaluate, self._away, self._next = evaluate, 0.0, 0.0
        self._began = time.process_time()
        self.seconds: list[float] = []
        self.values: list[float] = []

    def __call__(self, snapshot: Snapshot) -> None:
        """Note the value if enough time has passed."""
        entered = time.process_time()
        now = entered - self._began - self._away
        if now >= self._next:
            self.seconds.append(now)
            self.values.append(self._evaluate(snapshot.factors))
            self._next = now * _SPACING
        self._away += time.process_time() - entered

    def elapsed(self) -> float:
        """Seconds since the beginning, less the time spent here."""
        return time.process_time() - self._began - self._away


def timed_fit(
    make: Callable[..., Any], train: Observed, evaluate: Callable[[Factors], float]
) -> tuple[Any, float, dict[str, list[float]]]:
    """The fitted model, its seconds, and the curve of its error against seconds, both without the time that evaluations take.

    ``make(callbacks=…)`` gives the estimator. One iteration on a few entries comes first, which loads or compiles what is needed.
    """
    some = np.arange(train.n_entries) < _WARMING
    make(callbacks=[lambda snapshot: snapshot.iteration == 1]).fit(train.select(some))
    watch = Watch(evaluate)
    model = make(callbacks=[watch]).fit(train)
    seconds = watch.elapsed()
    return (
        model,
        seconds,
        {
            "seconds": [*watch.seconds, seconds],
            "value": [*watch.values, evaluate(prediction_factors(model))],
        },
    )


@dataclass(frozen=True)
class Fitted:
    """The model with the parameters that validation chose, its seconds, and its curve."""

    model: Any
    parameters: dict[str, Any]
    tried: dict[str, float]
    seconds: float
    curve: dict[str, list[float]]

    def summary(self) -> dict[str, Any]:
        """What a record keeps of it."""
        kept = {
            "parameters": self.parameters,
            "tried": self.tried,
            "seconds": self.seconds,
            "curve": self.curve,
        }
        return kept | {"iterations": int(self.model.n_iter_), "ended": str(self.model.stop_reason_)}


def fit_chosen(
    method: Method,
    rank: int,
    values: Sequence[Any],
    train: Observed,
    validation: Observed,
    seed: int,
    evaluate: Callable[[Factors], float],
) -> Fitted:
    """Fit with every value of the grid and keep the one with the smallest mean absolute error on the validation entries."""
    best, tried = None, {}
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


def prediction_factors(model: Any) -> Factors:
    """Factors whose product is the model's prediction, biases included."""
    U, V = model.row_factors_, model.column_factors_
    if not hasattr(model, "row_bias_"):
        return U, V
    ones = [np.ones((len(A), 1), A.dtype) for A in (U, V)]
    return np.hstack([U, model.row_bias_[:, None], ones[0]]), np.hstack(
        [V, ones[1], model.column_bias_[:, None] + V.dtype.type(model.center_)]
    )
