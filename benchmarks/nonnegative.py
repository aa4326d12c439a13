"""Error of non-negative factors with 5, 10 and 20 % of outliers beside other robust NMF.

A product of sparse non-negative factors of rank 5 with noise 0.1 and outliers of ±5, a fifth of the
cells observed, or all of them. The oracle is non-negative least squares on the entries that are not
outliers. The peers are NMF of scikit-learn, which needs a complete table (gaps are filled with the
medians of the columns), and robust NMF by weighted multiplicative updates, from its result: with
the l2,1 norm over columns (Kong, Ding & Huang 2011), and with Huber's loss and correntropy (Du, Li
& Shen 2012). They need values >= 0, so negative ones are set to 0.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import NMF

from benchmarks.measure import announce, column, grouped, markdown, timed
from robustmf.estimator import RobustMF

SMALL = {"m": 40, "runs": 1, "complete_runs": 1, "updates": 5}

Array = NDArray[np.floating[Any]]

SHARES = (0.05, 0.10, 0.20)
OBSERVED = (0.2, 1.0)
RANK = 5

#: Bounds the divisors of multiplicative updates and of their weights.
_TINY = 1e-9


@dataclass(frozen=True)
class Problem:
    """A table with NaN where nothing is observed, the product without noise, and what is bad."""

    X: Array
    clean: Array
    bad: NDArray[np.bool_]


def make_problem(m: int, observed: float, outliers: float, seed: int) -> Problem:
    """Non-negative factors with 40 % of zeros, noise, outliers and gaps."""
    rng = np.random.default_rng(seed)
    U, V = (rng.gamma(2.0, 0.5, (m, RANK)) * (rng.random((m, RANK)) < 0.6) for _ in range(2))
    clean = U @ V.T
    X = clean + 0.1 * rng.standard_normal(clean.shape)
    bad = rng.random(X.shape) < outliers
    X[bad] += 5 * rng.choice([-1.0, 1.0], int(bad.sum()))
    X[rng.random(X.shape) >= observed] = np.nan
    return Problem(X, clean, bad)


Weights = Callable[[Array, NDArray[np.bool_]], Array]


def columns_weights(residual: Array, seen: NDArray[np.bool_]) -> Array:
    """Weights of the l2,1 norm: the inverse norm of the residuals of each column."""
    norms = np.linalg.norm(np.where(seen, residual, 0.0), axis=0)
    return np.broadcast_to(1 / np.maximum(norms, _TINY), residual.shape)


def huber_weights(residual: Array, seen: NDArray[np.bool_]) -> Array:
    """Weights of Huber's loss whose scale is the median absolute residual."""
    size = np.abs(residual)
    scale = max(float(np.median(size[seen])), _TINY)
    return np.minimum(1.0, scale / np.maximum(size, _TINY))


def correntropy_weights(residual: Array, seen: NDArray[np.bool_]) -> Array:
    """Weights of correntropy whose variance is half the mean squared residual."""
    squares = residual**2
    return np.exp(-squares / max(float(squares[seen].mean()), _TINY))


def multiplicative(X: Array, start: tuple[Array, Array], weights: Weights, updates: int) -> Array:
    """The product after weighted multiplicative updates on the observed entries."""
    seen = np.isfinite(X)
    values = np.maximum(np.nan_to_num(X), 0.0)
    U, V = (np.maximum(A, 1e-3) for A in start)
    for _ in range(updates):
        W = np.where(seen, weights(values - U @ V.T, seen), 0.0)
        U *= ((W * values) @ V) / np.maximum((W * (U @ V.T)) @ V, _TINY)
        W = np.where(seen, weights(values - U @ V.T, seen), 0.0)
        V *= ((W * values).T @ U) / np.maximum((W * (U @ V.T)).T @ U, _TINY)
    return U @ V.T


def _robustmf(X: Array, **settings: Any) -> Array:
    model = RobustMF(RANK, random_state=0, n_jobs=1, **settings).fit(X)
    return np.asarray(model.row_factors_ @ model.components_)


def _scikit_learn(X: Array) -> tuple[Array, Array]:
    filled = np.maximum(np.where(np.isnan(X), np.nanmedian(X, axis=0), X), 0.0)
    model = NMF(RANK, max_iter=500, random_state=0)
    return model.fit_transform(filled), model.components_.T


def _methods(problem: Problem, updates: int) -> dict[str, Callable[[], Array]]:
    X = problem.X
    start: list[tuple[Array, Array]] = []

    def scikit_learn() -> Array:
        start.append(_scikit_learn(X))
        return start[0][0] @ start[0][1].T

    def peer(weights: Weights) -> Callable[[], Array]:
        return lambda: multiplicative(X, start[0], weights, updates)

    return {
        "RobustMF, nonnegative": lambda: _robustmf(X, nonnegative=True),
        "RobustMF, nonnegative, l1": lambda: _robustmf(X, nonnegative=True, loss="l1"),
        "RobustMF, nonnegative, l2": lambda: _robustmf(X, nonnegative=True, loss="l2"),
        "RobustMF": lambda: _robustmf(X),
        "scikit-learn NMF": scikit_learn,
        "l2,1 NMF": peer(columns_weights),
        "Huber NMF": peer(huber_weights),
        "correntropy NMF": peer(correntropy_weights),
    }


def run(
    runs: int = 3, complete_runs: int = 1, m: int = 500, updates: int = 500, first_seed: int = 700
) -> list[dict[str, Any]]:
    """``runs`` problems per share of outliers with gaps, ``complete_runs`` without."""
    results = []
    for observed, number in zip(OBSERVED, (runs, complete_runs), strict=True):
        for share in SHARES:
            for seed in range(first_seed, first_seed + number):
                results += _compare(m, observed, share, seed, updates)
    return results


def _compare(
    m: int, observed: float, share: float, seed: int, updates: int
) -> list[dict[str, Any]]:
    announce(f"{observed:.0%} observed, {share:.0%} outliers, seed {seed}")
    problem = make_problem(m, observed, share, seed)

    def error(product: Array) -> float:
        return float(np.sqrt(np.mean((product - problem.clean) ** 2)))

    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations end at their maximum
        known = np.where(problem.bad, np.nan, problem.X)
        oracle = error(_robustmf(known, loss="l2", nonnegative=True))
        for method, fit in _methods(problem, updates).items():
            seconds, product = timed(fit, time.process_time)
            rmse = error(product)
            results.append(
                {
                    "method": method,
                    "observed": observed,
                    "outliers": share,
                    "seed": seed,
                    "rmse": rmse,
                    "ratio": rmse / oracle,
                    "seconds": seconds,
                }
            )
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Median ratios and seconds by method."""
    rows = []
    for (method,), own in grouped(results, "method").items():
        cells = grouped(own, "observed", "outliers")
        ratios = [
            f"{np.median(column(cells[observed, share], 'ratio')):.3g}"
            for observed in OBSERVED
            for share in SHARES
        ]
        seconds = [
            f"{np.median(column(part, 'seconds')):.3g}"
            for part in grouped(own, "observed").values()
        ]
        rows.append([method, *ratios, *seconds])
    header = ["method"]
    header += [
        f"{'complete' if observed == 1 else f'{observed:.0%} observed'}, {share:.0%} outliers"
        for observed in OBSERVED
        for share in SHARES
    ]
    header += ["CPU seconds", "CPU seconds, complete"]
    return markdown("Median RMSE over all cells relative to the oracle's", header, rows)
