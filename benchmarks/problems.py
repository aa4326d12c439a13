"""Problems that several benchmarks are measured on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import side
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.kernels.team import Team

Array = NDArray[np.floating[Any]]
Entries = tuple[NDArray[np.int32], NDArray[np.int32], Array, Array, Array]

#: Rows and columns of the Netflix data; the model and the noise of the entries drawn in that shape.
NETFLIX_SHAPE = (480_189, 17_770)
NETFLIX_RANK = 10
NOISE = 0.3
OUTLIERS = 0.05

#: Rows that :func:`netflix_entries` draws together.
_ROWS_PER_BLOCK = 4000

#: Entries that :func:`predicted_at` computes together.
_ENTRIES_PER_SLICE = 1_000_000


@contextmanager
def operations(observed: Observed, threads: int | None = None) -> Iterator[CPUOperations]:
    """Operations on the entries with a number of threads (None: all cores)."""
    with Team(threads) as team:
        yield CPUOperations(observed, team)


def long_tailed(m: int, n: int, entries: int, seed: int = 0) -> Observed:
    """Entries with long-tailed column counts and standard normal float32 values."""
    rng = np.random.default_rng(seed)
    i = rng.integers(0, m, entries, dtype=np.int32)
    j = (n * rng.random(entries) ** 2).astype(np.int32)
    values = rng.standard_normal(entries).astype(np.float32)
    return Observed.from_indices(i, j, values, (m, n), duplicates="last")


def random_factors(shape: tuple[int, int], rank: int, seed: int) -> tuple[Array, Array]:
    """Standard normal float32 factors."""
    rng = np.random.default_rng(seed)
    U, V = (rng.standard_normal((size, rank)).astype(np.float32) for size in shape)
    return U, V


def movielens_sized(scale: float) -> Synthetic:
    """The paper's synthetic problem in the size of MovieLens-1M, rank 10."""
    observed = 2_000_000 / (6040 * 3449)
    shape = (side(6040, scale), side(3449, scale))
    return make_synthetic(*shape, rank=10, observed=observed, random_state=0)


def netflix_entries(total: int, seed: int = 0) -> Entries:
    """About ``total`` entries in the shape of Netflix: rows, columns, values, true factors.

    Row and column counts are long-tailed. Values have rank 10, noise of standard deviation 0.3
    and 5 % outliers of ±5.
    """
    m, n = NETFLIX_SHAPE
    rng = np.random.default_rng(seed)
    U, V = (0.5 * rng.standard_normal((k, NETFLIX_RANK), dtype=np.float32) for k in NETFLIX_SHAPE)
    activity = np.exp(1.3 * rng.standard_normal(m))
    popularity = np.cumsum(np.exp(1.5 * rng.standard_normal(n)))
    popularity /= popularity[-1]
    # repeated positions are dropped, so more than ``total`` are drawn
    expected = np.minimum(1.3 * total * activity / activity.sum(), 0.25 * n)
    i = np.empty(total, np.int32)
    j = np.empty(total, np.int32)
    filled = 0
    for low in range(0, m, _ROWS_PER_BLOCK):
        counts = rng.poisson(expected[low : low + _ROWS_PER_BLOCK])
        rows = np.repeat(np.arange(low, low + len(counts), dtype=np.int64), counts)
        columns = np.minimum(np.searchsorted(popularity, rng.random(len(rows))), n - 1)
        positions = np.unique(rows * n + columns)
        share = int(np.ceil(1.02 * total * (low + len(counts)) / m))
        count = min(len(positions), total - filled, share - filled)
        if count < len(positions):
            positions = np.sort(rng.choice(positions, count, replace=False))
        block = slice(filled, filled + len(positions))
        i[block], j[block] = np.divmod(positions, n)
        filled += len(positions)
    i = i[:filled]
    j = j[:filled]
    values = np.empty(filled, np.float32)
    for low in range(0, filled, 4_000_000):
        block = slice(low, min(low + 4_000_000, filled))
        size = block.stop - low
        noise = NOISE * rng.standard_normal(size, dtype=np.float32)
        values[block] = np.einsum("tq,tq->t", U[i[block]], V[j[block]]) + noise
        bad = rng.random(size) < OUTLIERS
        values[block][bad] += rng.choice(np.array([-5, 5], np.float32), int(bad.sum()))
    return i, j, values, U, V


def pair_products(U: Array, V: Array, i: Any, j: Any) -> Array:
    """u_i · v_j for each pair."""
    return np.asarray(np.einsum("tq,tq->t", U[i], V[j]))


def prediction_factors(model: Any) -> tuple[Array, Array]:
    """Factors whose product is the model's prediction, biases included."""
    U = model.row_factors_
    V = model.column_factors_
    if not hasattr(model, "row_bias_"):
        return U, V
    center = V.dtype.type(model.center_)
    left = np.hstack([U, model.row_bias_[:, None], np.ones((len(U), 1), U.dtype)])
    right = np.hstack([V, np.ones((len(V), 1), V.dtype), model.column_bias_[:, None] + center])
    return left, right


def predicted_at(entries: Observed, factors: tuple[Array, Array]) -> Array:
    """The product of the factors at the entries, computed in slices to bound the memory."""
    rows = entries.rows
    i = rows.group_of_entry()
    out = np.empty(entries.n_entries)
    for low in range(0, entries.n_entries, _ENTRIES_PER_SLICE):
        part = slice(low, low + _ENTRIES_PER_SLICE)
        out[part] = pair_products(*factors, i[part], rows.indices[part])
    return out
