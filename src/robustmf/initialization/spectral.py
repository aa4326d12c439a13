"""Scales of rows and columns, and factors and their number from a spectrum, before any fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, eigsh, svds

from robustmf.data.compressed import Compressed
from robustmf.data.observed import Observed
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.kernels import medians as kernels

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SpectralOptions:
    """Constants of spectral estimates.

    Attributes
    ----------
    clip : float
        Values are clipped to this many scales around the median.
    scale_passes : int
        Passes over rows and columns that estimate their scales, until
    scale_tol : float
        no logarithm of a row's scale changes by more.
    least_size : float
        Smaller absolute values count as this share of the median one.
    log_variance : float
        Variance of the median of log|x|, times the number of values, for Gaussian values.
    eigen_tol : float
        Tolerance of eigenvalues of which only the sign matters.
    first_eigenvalues : int
        How many are computed at first; twice as many while all are negative.
    largest_beta : float
        Upper bound of the inverse temperature.
    """

    clip: float = 2.0
    scale_passes: int = 4
    scale_tol: float = 0.01
    least_size: float = 1e-3
    log_variance: float = 2.0
    eigen_tol: float = 1e-2
    first_eigenvalues: int = 12
    largest_beta: float = 50.0


OPTIONS = SpectralOptions()


def equilibrating_scales(observed: Observed) -> tuple[Array, Array]:
    """Scales of rows and columns: by these the median size of every row's values is the same.

    Medians of few values are shrunk: by how much the scales differ, more than medians of so few
    values would by chance.
    """
    rows = observed.rows
    i = rows.group_of_entry()
    j = rows.indices
    size = np.abs(rows.values.astype(np.float64))
    # a ratio: the logarithm of another unit would change the last digits
    size /= float(np.median(size)) or float(size.max()) or 1.0
    log_size = np.log(np.maximum(size, OPTIONS.least_size))
    log_size -= np.median(log_size)
    m, n = observed.shape
    row_scale: Array = np.zeros(m)
    column_scale: Array = np.zeros(n)
    order = observed.column_order
    for k in range(OPTIONS.scale_passes):
        before = row_scale
        row_scale = _shrunk_medians(rows, log_size - column_scale[j])
        if k > 0 and np.max(np.abs(row_scale - before)) <= OPTIONS.scale_tol:
            break
        column_scale = _shrunk_medians(observed.columns, (log_size - row_scale[i])[order])
    return np.exp(row_scale), np.exp(column_scale)


def _shrunk_medians(groups: Compressed, values: Array) -> Array:
    """The median of each group's values, shrunk to zero where it is uncertain."""
    counts = groups.counts
    medians = group_medians(groups, values)
    filled = counts > 0
    variance = OPTIONS.log_variance / np.maximum(counts, 1)
    between = float(np.var(medians[filled]) - np.mean(variance[filled]))
    if between <= 0:
        return np.zeros(len(counts))
    return np.asarray(medians * between / (between + variance))


def group_medians(groups: Compressed, values: Array) -> Array:
    """The median of each group's values; 0 for an empty group."""
    medians = np.empty(len(groups))
    largest = int(groups.counts.max(initial=0))
    kernels.group_medians(groups.pointers, values, np.empty(largest), medians)
    return medians


def clipped(values: Array) -> Array:
    """Values clipped around their median, so that outliers have a bounded influence."""
    median = np.median(values)
    width = OPTIONS.clip * MAD_TO_SIGMA * np.median(np.abs(values - median))
    return np.clip(values, median - width, median + width) if width > 0 else values.copy()


def bethe_hessian_rank(observed: Observed, values: Array, largest: int, seed: int) -> int:
    """The number of factors that the values show: negative eigenvalues of the Bethe Hessian.

    See Saade, Krzakala and Zdeborova, "Matrix completion from fewer entries", NeurIPS 2015.
    """
    m, n = observed.shape
    scale = float(np.sqrt(np.mean(values**2)))
    if scale == 0 or largest < 1:
        return 0
    x = values / scale

    def transition(beta: float) -> float:
        return float((np.tanh(beta * x) ** 2).sum() / np.sqrt(float(m) * n) - 1)

    if transition(OPTIONS.largest_beta) < 0:
        return 0
    beta = brentq(transition, 1e-6, OPTIONS.largest_beta)
    rows = observed.rows
    coupling = sp.csr_array(
        (0.5 * np.sinh(2 * beta * x), rows.indices, rows.pointers), shape=(m, n)
    )
    degree = np.sinh(beta * x) ** 2
    row_degree = 1 + np.bincount(rows.group_of_entry(), degree, minlength=m)
    column_degree = 1 + np.bincount(rows.indices, degree, minlength=n)
    diagonal = np.concatenate((row_degree, column_degree))
    transposed = coupling.T.tocsr()

    def product(z: Array) -> Array:
        z = z.ravel()
        across = np.concatenate((coupling @ z[m:], transposed @ z[:m]))
        return np.asarray(diagonal * z - across)

    hessian = LinearOperator((m + n, m + n), matvec=product, dtype=np.float64)
    start = np.random.default_rng(seed).standard_normal(m + n)
    count = min(OPTIONS.first_eigenvalues, largest + 1, m + n - 2)
    while True:
        found = eigsh(
            hessian,
            k=count,
            which="SA",
            return_eigenvectors=False,
            tol=OPTIONS.eigen_tol,
            v0=start,
            ncv=min(m + n, max(2 * count + 1, 40)),
        )
        negative = int((found < 0).sum())
        most = min(largest + 1, m + n - 2)
        if negative < count or count >= most:
            return min(negative, largest)
        count = min(2 * count, most)


def spectral_factors(
    observed: Observed, values: Array, rank: int, seed: int
) -> tuple[Array, Array]:
    """Singular vectors of the values, each row and column in units of the root of its count."""
    rows = observed.rows
    m, n = observed.shape
    row_unit = np.maximum(rows.counts, 1) ** -0.5
    column_unit = np.maximum(observed.columns.counts, 1) ** -0.5
    scaled = values * row_unit[rows.group_of_entry()] * column_unit[rows.indices]
    matrix = sp.csr_array((scaled, rows.indices, rows.pointers), shape=(m, n))
    if rank >= min(m, n):
        left, _, right = np.linalg.svd(matrix.toarray(), full_matrices=False)
        return left[:, :rank], right[:rank].T
    start = np.random.default_rng(seed).standard_normal(min(m, n))
    if not matrix.data.any():
        return np.zeros((m, rank)), np.zeros((n, rank))
    left, sizes, right = svds(matrix, k=rank, v0=start)
    order = np.argsort(-sizes, kind="stable")
    return left[:, order], right[order].T
