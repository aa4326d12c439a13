"""The data of the cases, and user-defined losses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.same_results.library import RANK, Array
from robustmf import Observed
from robustmf.losses import Loss


@cache
def low_rank(
    m: int = 60,
    n: int = 45,
    rank: int = RANK,
    share: float = 0.4,
    outliers: float = 0.05,
    dtype: str = "float64",
    seed: int = 0,
    offset: float = 0.0,
    scale: float = 1.0,
) -> Observed:
    """Make entries of a low-rank matrix with noise 0.1, outliers of ±5, and ``offset`` biases."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    row_bias = offset * rng.standard_normal(m)
    column_bias = offset * rng.standard_normal(n)
    i, j = np.nonzero(rng.random((m, n)) < share)
    values = np.einsum("tq,tq->t", U[i], V[j]) + 0.1 * rng.standard_normal(len(i))
    values += row_bias[i] + column_bias[j] + offset
    bad = rng.random(len(i)) < outliers
    values[bad] += 5 * rng.choice([-1.0, 1.0], int(bad.sum()))
    return Observed.from_indices(i, j, (scale * values).astype(dtype), (m, n))


@cache
def rating_table(m: int = 250, n: int = 120, seed: int = 0) -> tuple[Array, Array, Array]:
    """Make ratings in half stars: row numbers, column numbers, values; few entries, weak signal."""
    rng = np.random.default_rng(seed)
    popularity = np.minimum(0.9, 0.15 * rng.lognormal(sigma=0.8, size=n))
    i, j = np.nonzero(rng.random((m, n)) < popularity)
    tastes = 0.5 * rng.standard_normal((m, 2))
    kinds = rng.standard_normal((n, 2))
    mean = 3.4 + 0.4 * rng.standard_normal(m)[i] + 0.5 * rng.standard_normal(n)[j]
    mean += np.einsum("tq,tq->t", tastes[i], kinds[j]) + 0.7 * rng.standard_normal(len(i))
    return i, j, np.clip(np.rint(2 * mean) / 2, 0.5, 5.0)


@cache
def ratings(dtype: str = "float64", ids: str = "none", part: str = "all") -> Observed:
    """Return the ratings as entries; ``part`` is "all", or "old" or "new" with some in both."""
    i, j, values = rating_table()
    rows = {"all": i >= 0, "old": (i < 200) & (j < 110), "new": i >= 190}[part]
    i = i[rows]
    j = j[rows]
    values = values[rows].astype(dtype)
    if ids == "none":
        return Observed.from_indices(i, j, values)
    if ids == "int":
        return Observed.from_triplets(
            row=(1000 - 3 * i).tolist(), col=(7 * j).tolist(), value=values
        )
    users = [f"user {k:03}" for k in i]
    items = [f"item {k:03}" for k in j]
    return Observed.from_triplets(row=users, col=items, value=values)


def with_gaps(data: Observed) -> Observed:
    """Return the entries without those of every tenth row and every ninth column."""
    entries = sp.coo_array(data.to_sparse())
    return data.select((entries.row % 10 != 3) & (entries.col % 9 != 4))


def as_dense(data: Observed) -> Array:
    """Return the entries as a dense array, NaN where there is none."""
    entries = sp.coo_array(data.to_sparse())
    dense = np.full(data.shape, np.nan, data.dtype)
    dense[entries.row, entries.col] = entries.data
    return dense


def entry_weights(data: Observed, zeros: bool = False) -> Array:
    """Make one weight per entry, some of them zero on request."""
    rng = np.random.default_rng(7)
    weights = rng.uniform(0.2, 2.0, data.n_entries)
    if zeros:
        weights[rng.random(data.n_entries) < 0.15] = 0
    return weights


def some_factors(data: Observed, seed: int = 5) -> tuple[Array, Array]:
    """Draw an initial point."""
    rng = np.random.default_rng(seed)
    m, n = data.shape
    return rng.standard_normal((m, RANK)), rng.standard_normal((n, RANK))


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """A smooth user-defined loss with a weight formula that can be compiled."""

    name = "user-pseudo-huber"
    degree = 2
    efficient_theta = 1.5

    def _value(self, a: Any) -> Any:
        return self.theta * (np.sqrt(self.theta * self.theta + a * a) - self.theta)

    def _derivative(self, a: Any) -> Any:
        return self.theta * a / np.sqrt(self.theta * self.theta + a * a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """Return φ'(a)/a."""
        return theta / np.sqrt(theta * theta + a * a)


@dataclass(frozen=True)
class Plain(Loss):
    """The same loss without a weight formula."""

    name = "user-plain"
    degree = 2

    def _value(self, a: Any) -> Any:
        return self.theta * (np.sqrt(self.theta * self.theta + a * a) - self.theta)

    def _derivative(self, a: Any) -> Any:
        return self.theta * a / np.sqrt(self.theta * self.theta + a * a)


@dataclass(frozen=True)
class Opaque(Loss):
    """A Huber loss that tests the values of its argument, so that no formula can be derived."""

    name = "user-opaque"
    degree = 2

    def _value(self, a: Any) -> Any:
        if a.max(initial=0) <= self.theta:
            return a * a / 2
        return np.where(a <= self.theta, a * a / 2, self.theta * (a - self.theta / 2))

    def _derivative(self, a: Any) -> Any:
        return np.clip(a, None, self.theta)


@dataclass(frozen=True)
class Root(Loss):
    """A concave user-defined loss: √(a + θ) − √θ."""

    name = "user-root"
    concave = True

    def _value(self, a: Any) -> Any:
        return np.sqrt(a + self.theta) - np.sqrt(self.theta)

    def _derivative(self, a: Any) -> Any:
        return 0.5 / np.sqrt(a + self.theta)


@dataclass(frozen=True)
class Arctan(Loss):
    """A convex loss with slope θ·arctan(a/θ), whose formula only Numba itself can compile."""

    name = "user-arctan"
    degree = 2

    def _value(self, a: Any) -> Any:
        t = a / self.theta
        return self.theta * self.theta * (t * np.arctan(t) - 0.5 * np.log1p(t * t))

    def _derivative(self, a: Any) -> Any:
        return self.theta * np.arctan(a / self.theta)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """Return φ'(a)/a."""
        t = np.maximum(a / theta, 1e-6)
        return np.arctan(t) / t


USER_LOSSES = (PseudoHuber(0.5), Plain(0.5), Opaque(0.5), Root(0.5), Arctan(0.5))
