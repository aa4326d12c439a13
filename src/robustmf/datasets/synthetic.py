"""The synthetic problem of the paper: a low-rank matrix with noise, outliers, missing entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]

#: Largest population for which NumPy draws from the hypergeometric distribution.
_MAX_HYPERGEOMETRIC = 10**9


@dataclass(frozen=True)
class Synthetic:
    """A synthetic problem with the ground truth.

    Attributes
    ----------
    train, validation : Observed
        Noisy entries with outliers, one half of the observed entries each.
    train_outliers, validation_outliers : ndarray of bool
        Which of these entries (in row order) are outliers.
    row_factors, column_factors : ndarray
        True factors, whose product is the clean matrix.
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
        """Mask (m × n) of the entries that are in neither the training nor the validation set."""
        mask = np.ones(self.train.shape, bool)
        for part in (self.train, self.validation):
            mask[part.rows.group_of_entry(), part.rows.indices] = False
        return mask

    def test_rmse(self, U: Array, V: Array) -> float:
        """Return the RMSE of UVᵀ against the clean matrix at the unobserved entries.

        Neither matrix is formed.
        """
        left = np.hstack([U, self.row_factors]).astype(np.float64)
        right = np.hstack([V, -self.column_factors]).astype(np.float64)
        total = np.square(_triangle(left) @ _triangle(right).T).sum()
        observed = 0.0
        n_observed = 0
        for part in (self.train, self.validation):
            i = part.rows.group_of_entry()
            j = part.rows.indices
            observed += float(np.square(np.einsum("tq,tq->t", left[i], right[j])).sum())
            n_observed += part.n_entries
        m, n = self.train.shape
        return float(np.sqrt(max(total - observed, 0.0) / (m * n - n_observed)))


def _triangle(A: Array) -> Array:
    """Return R of A = QR."""
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
    """Generate X = UVᵀ with N(0, 1) factors, Gaussian noise and outliers.

    Parameters
    ----------
    m : int, default=500
        Number of rows.
    n : int, optional
        Number of columns; m by default.
    rank : int, default=5
        Rank of X.
    noise : float, default=0.1
        Standard deviation of the noise. With the default the results of the paper reproduce.
    outliers : float, default=0.05
        Fraction of outliers among all entries of the matrix, observed or not.
    magnitude : float, default=5.0
        Absolute error of an outlier; its sign is random.
    observed : float, optional
        Fraction of observed entries, by default 10·ln(m)/m as in the paper; one half is for
        training, the other for validation.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the observed entries.
    random_state : int, Generator or None, default=None
        Seed of all random draws. An initialization drawn from a generator with the same seed would
        be equal to the true factors.

    Returns
    -------
    data : Synthetic
        The problem with the ground truth.

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
        raise ValueError(f"rank must be at most min(m, n), got m={m}, n={n}, rank={rank}")
    if not (0 <= outliers <= 1 and noise >= 0):
        raise ValueError(
            f"outliers must lie in [0, 1] and noise must be >= 0, got outliers={outliers},"
            f" noise={noise}"
        )
    fraction = 10 * np.log(m) / m if observed is None else observed
    n_observed = min(round(fraction * m * n), m * n)
    if n_observed < 2:
        raise ValueError(
            f"observed={observed!r} leaves {n_observed} entries of a {m} x {n} matrix; at least 2"
            " are needed"
        )
    rng = np.random.default_rng(random_state)
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    positions = rng.choice(m * n, n_observed, replace=False, shuffle=True)
    i, j = np.divmod(positions, n)
    # First the number of outliers among the observed entries, then their positions: the same
    # distribution as drawing them over the whole matrix.
    total = round(outliers * m * n)
    if m * n <= _MAX_HYPERGEOMETRIC:
        n_outliers = rng.hypergeometric(total, m * n - total, n_observed)
    else:
        n_outliers = rng.binomial(n_observed, outliers)
    is_outlier = np.zeros(n_observed, bool)
    is_outlier[:n_outliers] = True
    rng.shuffle(is_outlier)
    values = np.einsum("tq,tq->t", U[i], V[j]) + noise * rng.standard_normal(n_observed)
    values[is_outlier] += magnitude * rng.choice([-1.0, 1.0], int(is_outlier.sum()))
    half = n_observed // 2

    def part(chosen: slice) -> tuple[Observed, NDArray[np.bool_]]:
        order = np.lexsort((j[chosen], i[chosen]))
        entries = Observed.from_indices(
            i[chosen][order], j[chosen][order], values[chosen][order].astype(dtype), (m, n)
        )
        return entries, is_outlier[chosen][order]

    train, train_outliers = part(slice(half))
    validation, validation_outliers = part(slice(half, None))
    return Synthetic(train, validation, train_outliers, validation_outliers, U, V)
