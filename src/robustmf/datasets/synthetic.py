"""The paper's synthetic problem: a low-rank matrix, noise, a few gross outliers, few observed entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Synthetic:
    """A synthetic problem with its truth.

    Attributes
    ----------
    train, validation : Observed
        Noisy entries with outliers, half of the observed ones each.
    train_outliers, validation_outliers : ndarray of bool
        Which of these entries (in row order) are outliers.
    row_factors, column_factors : ndarray
        The truth: the clean matrix is their product, and is never formed unless asked for.
    """

    train: Observed
    validation: Observed
    train_outliers: NDArray[np.bool_]
    validation_outliers: NDArray[np.bool_]
    row_factors: Array
    column_factors: Array

    @property
    def clean(self) -> Array:
        """The clean matrix X, m × n."""
        return np.asarray(self.row_factors @ self.column_factors.T)

    @property
    def test_mask(self) -> NDArray[np.bool_]:
        """True where an entry is observed neither for training nor for validation, m × n."""
        mask = np.ones(self.train.shape, bool)
        for part in (self.train, self.validation):
            mask[part.rows.group_of_entry(), part.rows.indices] = False
        return mask

    def test_rmse(self, U: Array, V: Array) -> float:
        """RMSE of UVᵀ against the clean matrix on the unobserved entries, without forming either."""
        left = np.hstack([U, self.row_factors]).astype(np.float64)
        right = np.hstack([V, -self.column_factors]).astype(np.float64)
        everywhere = np.square(_triangle(left) @ _triangle(right).T).sum()
        seen, n_seen = 0.0, 0
        for part in (self.train, self.validation):
            i, j = part.rows.group_of_entry(), part.rows.indices
            seen += float(np.square(np.einsum("tq,tq->t", left[i], right[j])).sum())
            n_seen += part.n_entries
        m, n = self.train.shape
        return float(np.sqrt(max(everywhere - seen, 0.0) / (m * n - n_seen)))


def _triangle(A: Array) -> Array:
    """R of A = QR."""
    return np.asarray(np.linalg.qr(A, mode="r"))


def make_synthetic(
    m: int = 500,
    n: int | None = None,
    rank: int = 5,
    noise: float = 0.1,
    outliers: float = 0.05,
    magnitude: float = 5.0,
    observed: float | None = None,
    dtype: str = "float64",
    random_state: int | np.random.Generator | None = None,
) -> Synthetic:
    """X = UVᵀ with N(0, 1) factors, plus Gaussian noise, plus ±``magnitude`` on a share ``outliers`` of the entries.

    Parameters
    ----------
    m, n : int
        Shape; n = m by default.
    rank : int
        Rank of X.
    noise : float
        Standard deviation of the noise (0.1: the reading of the paper that reproduces).
    outliers : float
        Share of all entries that are outliers; exactly that many, wherever they fall.
    magnitude : float
        What an outlier adds, with either sign.
    observed : float, optional
        Share of entries observed, 10·ln(m)/m by default as in the paper; half for training, half for validation.
    random_state : int or Generator
        The only source of randomness. Draw starting points from another stream: a start drawn like the truth *is* the truth.

    Examples
    --------
    >>> from robustmf.datasets import make_synthetic
    >>> data = make_synthetic(100, rank=2, observed=0.4, random_state=0)
    >>> data.train
    Observed(100 x 100, 2000 entries, 20.00 % observed, float64)
    >>> data.test_rmse(data.row_factors, data.column_factors) < 1e-6
    True
    """
    n = m if n is None else n
    for name, size in (("m", m), ("n", n), ("rank", rank)):
        require_integer(name, size, 1)
    if rank > min(m, n):
        raise ValueError(
            f"m, n >= 1 and 1 <= rank <= min(m, n) are needed, got m={m}, n={n}, rank={rank}"
        )
    if not (0 <= outliers <= 1 and noise >= 0):
        raise ValueError(
            f"outliers must lie in [0, 1] and noise must be >= 0, got outliers={outliers}, noise={noise}"
        )
    share = 10 * np.log(m) / m if observed is None else observed
    n_observed = min(round(share * m * n), m * n)
    if n_observed < 2:
        raise ValueError(
            f"observed={observed!r} leaves {n_observed} entries of a {m} x {n} matrix; at least 2 are needed"
        )
    rng = np.random.default_rng(random_state)
    U, V = rng.standard_normal((m, rank)), rng.standard_normal((n, rank))
    places = rng.choice(m * n, n_observed, replace=False, shuffle=True)
    i, j = np.divmod(places, n)
    # how many of all outliers fall on observed entries, then which: the same law as drawing them over the whole matrix
    total = round(outliers * m * n)
    hit = np.zeros(n_observed, bool)
    hit[
        : rng.hypergeometric(total, m * n - total, n_observed)
        if m * n <= 10**9
        else rng.binomial(n_observed, outliers)
    ] = True
    rng.shuffle(hit)
    values = np.einsum("tq,tq->t", U[i], V[j]) + noise * rng.standard_normal(n_observed)
    values[hit] += magnitude * rng.choice([-1.0, 1.0], int(hit.sum()))
    half = n_observed // 2

    def part(chosen: slice) -> tuple[Observed, NDArray[np.bool_]]:
        order = np.lexsort((j[chosen], i[chosen]))
        entries = Observed.from_indices(
            i[chosen][order], j[chosen][order], values[chosen][order].astype(dtype), (m, n)
        )
        return entries, hit[chosen][order]

    (train, train_hit), (validation, validation_hit) = part(slice(half)), part(slice(half, None))
    return Synthetic(train, validation, train_hit, validation_hit, U, V)
