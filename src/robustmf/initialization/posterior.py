"""The posterior of the factors of one side, the rows or the columns, in variational inference.

The posterior of a row is Gaussian, with mean u and a covariance matrix. Covariances and second
moments are symmetric, and only their lower triangles are stored, packed by rows; covariances with
off-diagonal elements doubled, so that a quadratic form is one inner product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.initialization.noise_mixture import NoiseLevels
from robustmf.kernels.team import block_bounds

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class PosteriorOptions:
    """Constants of the computation; they bound memory and work, not accuracy.

    Attributes
    ----------
    blocks : int
        Blocks of rows for threads.
    batch : int
        Rows whose covariances are unpacked together.
    """

    blocks: int = 64
    batch: int = 1024


OPTIONS = PosteriorOptions()


class Side:
    """The rows, or the columns, and their posterior.

    ``order`` is the permutation from the order of entries by rows to that of this side, or None.
    """

    def __init__(
        self,
        observed: Observed,
        values: Array,
        log_scale: Array,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.groups = observed.rows
        self.of_entry = self.groups.group_of_entry()
        self.order = order
        self.values = self.take(values)
        self.bounds = block_bounds(self.groups.pointers, OPTIONS.blocks)
        self.levels = NoiseLevels(log_scale)
        self.remaining = np.zeros(len(self.groups))
        self.tried = np.full(len(self.groups), np.nan)
        self.failures = np.zeros(len(self.groups), np.int64)
        self.improvements = np.zeros(len(self.groups), np.int64)

    def take(self, by_row: Array) -> Array:
        """Numbers for the entries, by rows, in the order of this side."""
        return by_row if self.order is None else by_row[self.order]

    def put(self, values: Array, by_row: Array) -> None:
        """The inverse: write numbers in the order of this side to those by rows."""
        by_row[slice(None) if self.order is None else self.order] = values

    def scale(self, by_row: Array, factors: Array) -> None:
        """Multiply numbers for the entries, by rows, by a factor of each row of this side."""
        by_row[slice(None) if self.order is None else self.order] *= factors[self.of_entry]

    def start(self, factors: Array, variance: float) -> None:
        """Begin at these means, each element with this variance."""
        rank = factors.shape[1]
        self.U = np.ascontiguousarray(factors)
        a, c = np.tril_indices(rank)
        identity = np.where(a == c, variance, 0.0).astype(np.float32)
        self.covariances = np.tile(identity, (len(self.U), 1))

    def extend(self, factors: Array, variance: float) -> None:
        """Add factors, independent of those there are."""
        self.U = np.hstack([self.U, factors])
        a, c = np.tril_indices(self.U.shape[1])
        added = np.where(a == c, variance, 0.0)[len(self.covariances[0]) :].astype(np.float32)
        self.covariances = np.hstack([self.covariances, np.tile(added, (len(self.U), 1))])

    def divergence(self, precision: Array) -> float:
        """Kullback–Leibler divergence of the posterior from the prior."""
        rank = len(precision)
        a, c = np.tril_indices(rank)
        n = len(self.U)
        log_det = 0.0
        for start in range(0, n, OPTIONS.batch):
            packed = self.covariances[start : start + OPTIONS.batch] * np.where(a == c, 1.0, 0.5)
            full = np.empty((len(packed), rank, rank))
            full[:, a, c] = packed
            full[:, c, a] = packed
            log_det += float(np.linalg.slogdet(full)[1].sum())
        second = float(np.diag(self.second_moment()) @ precision) * n
        return 0.5 * (second - n * rank - log_det - n * float(np.log(precision).sum()))

    def returned(self, other: Side, weights: Array) -> Array:
        """The share of each row's precision that is the uncertainty of the other side's factors.

        The mean over the factors; ``weights`` are the precisions of the entries.
        """
        rank = self.U.shape[1]
        a, c = np.tril_indices(rank)
        groups = self.groups
        shape = (len(groups), len(other.U))
        precisions = sp.csr_array((weights, groups.indices, groups.pointers), shape=shape)
        # of packed matrices, both with doubled off-diagonal elements
        uncertain = precisions @ other.covariances.astype(np.float64)
        products = np.einsum("ik,ik,k->i", self.covariances, uncertain, np.where(a == c, 1, 0.5))
        return np.asarray(products / rank)

    def second_moment(self) -> Array:
        """The mean of E[uuᵀ] over the rows."""
        packed = self.covariances.mean(axis=0, dtype=np.float64)
        a, c = np.tril_indices(self.U.shape[1])
        return unpacked(packed * np.where(a == c, 1.0, 0.5)) + self.U.T @ self.U / len(self.U)

    def transform(self, T: Array) -> None:
        """U ← U T."""
        self.U = np.ascontiguousarray(self.U @ T)
        rank = T.shape[0]
        a, c = np.tril_indices(rank)
        # packed(TᵀST) = packed(S) K, with one small matrix K for all rows
        p, q = np.tril_indices(T.shape[1])
        K = T[a][:, p] * T[c][:, q]
        K += T[c][:, p] * T[a][:, q]
        K *= np.where(p == q, 0.5, 1.0)
        self.covariances = self.covariances @ K.astype(np.float32)

    def changed(self) -> dict[str, Any]:
        """What a sweep changes, by name; the arrays themselves, not copies."""
        return {name: getattr(self, name) for name in ("U", "covariances", "levels")}


def unpacked(packed: Array) -> Array:
    """The symmetric matrix with this lower triangle, packed by rows."""
    rank = int(np.sqrt(2 * len(packed)))
    full = np.empty((rank, rank))
    a, c = np.tril_indices(rank)
    full[a, c] = packed
    full[c, a] = packed
    return full
