"""Scales of rows and columns, and factors and their number from a spectrum, before any fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq
from scipy.sparse.linalg import svds

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
    largest_beta, beta_tol : float
        Upper bound of the inverse temperature, and its relative error.
    first_steps : int
        Lanczos steps after which singular values are first compared with one, and again after
    step_ratio : float
        this multiple of them, until all are certain; at most
    lanczos_steps : int
        so many steps, which bounds the work where a singular value is one up to rounding.
    ritz_tol : float
        The relative residual of a Ritz value that has converged.
    """

    clip: float = 2.0
    scale_passes: int = 4
    scale_tol: float = 0.01
    least_size: float = 1e-3
    log_variance: float = 2.0
    largest_beta: float = 50.0
    beta_tol: float = 1e-4
    first_steps: int = 16
    step_ratio: float = 1.3
    lanczos_steps: int = 400
    ritz_tol: float = 1e-2


OPTIONS = SpectralOptions()

#: Relative rounding error of a Lanczos step.
_ROUNDING = 1e-13


def equilibrating_scales(
    observed: Observed, kept: NDArray[np.bool_] | None = None
) -> tuple[Array, Array]:
    """Scales of rows and columns: by these the median size of every row's values is the same.

    Medians of few values are shrunk: by how much the scales differ, more than medians of so few
    values would by chance. Entries that are not ``kept`` have no influence; by default all are.
    """
    rows = observed.rows
    if kept is None:
        kept = np.ones(len(rows.values), bool)
    size = np.abs(rows.values.astype(np.float64))
    # a ratio: the logarithm of another unit would change the last digits
    size /= float(np.median(size[kept])) or float(size[kept].max()) or 1.0
    log_size = np.log(np.maximum(size, OPTIONS.least_size))
    log_size -= np.median(log_size[kept])
    m, n = observed.shape
    row_scale: Array = np.zeros(m)
    column_scale: Array = np.zeros(n)
    order = observed.column_order
    by_row = (rows, log_size, kept)
    by_column = (observed.columns, log_size[order], kept[order])
    for k in range(OPTIONS.scale_passes):
        before = row_scale
        row_scale = _shrunk_medians(*by_row, column_scale)
        if k > 0 and np.max(np.abs(row_scale - before)) <= OPTIONS.scale_tol:
            break
        column_scale = _shrunk_medians(*by_column, row_scale)
    return np.exp(row_scale), np.exp(column_scale)


def _shrunk_medians(
    groups: Compressed, values: Array, kept: NDArray[np.bool_], offsets: Array
) -> Array:
    """The median of each group's values less offsets, shrunk to zero where it is uncertain."""
    medians, counts = group_medians(groups, values, kept, offsets)
    filled = counts > 0
    variance = OPTIONS.log_variance / np.maximum(counts, 1)
    between = float(np.var(medians[filled]) - np.mean(variance[filled]))
    if between <= 0:
        return np.zeros(len(counts))
    return np.asarray(medians * between / (between + variance))


def group_medians(
    groups: Compressed, values: Array, kept: NDArray[np.bool_], offsets: Array
) -> tuple[Array, NDArray[np.int64]]:
    """The median of each group's kept values less the offsets of their indices, and their number.

    It is 0 for an empty group.
    """
    medians = np.empty(len(groups))
    counts = np.empty(len(groups), np.int64)
    work = np.empty(int(groups.counts.max(initial=0)))
    kernels.group_medians(
        groups.pointers, groups.indices, values, offsets, kept, work, counts, medians
    )
    return medians, counts


def clipped(values: Array) -> Array:
    """Values clipped around their median, so that outliers have a bounded influence."""
    median = np.median(values)
    width = OPTIONS.clip * MAD_TO_SIGMA * np.median(np.abs(values - median))
    return np.clip(values, median - width, median + width) if width > 0 else values.copy()


def bethe_hessian_rank(observed: Observed, values: Array, largest: int, seed: int) -> int:
    """The number of factors that the values show: negative eigenvalues of the Bethe Hessian.

    See Saade, Krzakala and Zdeborova, "Matrix completion from fewer entries", NeurIPS 2015.

    The Bethe Hessian has positive diagonal blocks R and C and the coupling −A between rows and
    columns. By Sylvester's law of inertia it has as many negative eigenvalues as R^(−1/2) A
    C^(−1/2) has singular values above one.
    """
    m, n = observed.shape
    scale = float(np.sqrt(np.mean(values**2)))
    if scale == 0 or largest < 1:
        return 0
    x = values / scale

    def transition(beta: float) -> float:
        return float(np.square(np.tanh(beta * x)).sum() / np.sqrt(float(m) * n) - 1)

    if transition(OPTIONS.largest_beta) < 0:
        return 0
    # tanh(βx)² is at most (βx)², and the mean of x² is one
    least = (float(m) * n) ** 0.25 / np.sqrt(len(x))
    beta = brentq(transition, 0.99 * least, OPTIONS.largest_beta, rtol=OPTIONS.beta_tol)
    rows = observed.rows
    i = rows.group_of_entry()
    half = np.sinh(beta * x)
    degree = np.square(half)
    row_degree = 1 + np.bincount(i, degree, minlength=m)
    column_degree = 1 + np.bincount(rows.indices, degree, minlength=n)
    coupling = half * np.sqrt(1 + degree)  # sinh(2βx)/2
    coupling *= np.sqrt(1 / row_degree)[i]
    coupling *= np.sqrt(1 / column_degree)[rows.indices]
    normalized = sp.csr_array((coupling, rows.indices, rows.pointers), shape=(m, n))
    return _singular_values_above_one(normalized, largest, seed)


def _singular_values_above_one(matrix: sp.csr_array, largest: int, seed: int) -> int:
    """How many there are, at most ``largest``, by the Lanczos method on the smaller Gram matrix.

    Ritz values interlace with eigenvalues, so that as many eigenvalues as Ritz values exceed one.
    There are no more if these have converged, and the next Ritz value is below one by more than
    its residual, twice in succession.
    """
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T.tocsr()
    transposed = matrix.T.tocsr()
    size = matrix.shape[1]
    most = min(size, OPTIONS.lanczos_steps)
    basis = np.empty((most, size))
    diagonal = np.zeros(most)
    coupling = np.zeros(most)
    vector = np.random.default_rng(seed).standard_normal(size)
    vector /= np.linalg.norm(vector)
    checked = min(most, OPTIONS.first_steps)
    was_certain: int | None = None
    for k in range(most):
        basis[k] = vector
        vector = transposed @ (matrix @ vector)
        diagonal[k] = basis[k] @ vector
        for _ in range(2):  # orthogonal to rounding
            vector -= (basis[: k + 1] @ vector) @ basis[: k + 1]
        coupling[k] = np.linalg.norm(vector)
        is_exact = coupling[k] <= _ROUNDING * diagonal[: k + 1].max()
        if k + 1 in (checked, most) or is_exact:
            checked = math.ceil(OPTIONS.step_ratio * checked)
            ritz, vectors = eigh_tridiagonal(diagonal[: k + 1], coupling[:k])
            above = int((ritz > 1).sum())
            if above >= largest:
                return largest
            if is_exact or above == k + 1 == size:
                return above
            if above <= k:
                residuals = coupling[k] * np.abs(vectors[-1, k - above :])
                # until those above have converged, others near them may be missing
                is_certain = bool(
                    ritz[k - above] + residuals[0] < 1
                    and (residuals[1:] <= OPTIONS.ritz_tol * ritz[k - above + 1 :]).all()
                )
                if is_certain and was_certain == above:
                    return above
                was_certain = above if is_certain else None
        vector /= coupling[k]
    return above


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
