"""OMDL: online massive dictionary learning with missing entries (Mensch, Mairal, Thirion & Varoquaux 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline, value_range
from robustmf.data.observed import Observed
from robustmf.kernels.dictionary import learn_epoch, row_codes
from robustmf.kernels.team import block_bounds
from robustmf.solvers.base import Callback
from robustmf.validation import require_integer, require_positive

Array = NDArray[np.floating[Any]]

_DETREND_SWEEPS = 2


class OMDL(Baseline):
    """Least squares with a ridge on the rows' codes and atoms of norm at most 1, learnt online, rows in random order.

    With missing entries the method is biased: it averages codes over all rows, but their products with the data only over rows that
    observe a column, so that it does not recover even a noiseless matrix.

    Parameters
    ----------
    alpha : float
        The ridge on a code, times the share of columns its row observes. Atoms have unit norm, so it needs no unit of the data.
    learning_rate : float
        How fast old averages are forgotten: a new row weighs (rows seen)^(−learning_rate).
    batch_size : int or None
        Rows between two moves of the dictionary; None is as many as see every column once.
    detrend : bool
        Take out shrunken row and column means first, as for ratings.
    bias_reg : float
        Shrinks these means: as many entries at the overall mean are added to each.
    max_iter : int
        Epochs.
    rank, tol, random_state, n_jobs, callbacks
        See :class:`Baseline`; ``tol`` is of no effect. Predictions are cropped to the range of the data.

    References
    ----------
    A. Mensch, J. Mairal, B. Thirion and G. Varoquaux, Dictionary learning for massive matrix factorization, ICML 2016.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        alpha: float = 0.1,
        learning_rate: float = 1.0,
        batch_size: int | None = None,
        detrend: bool = False,
        bias_reg: float = 0.1,
        max_iter: int = 20,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.alpha, self.learning_rate, self.batch_size = (
            rank,
            alpha,
            learning_rate,
            batch_size,
        )
        self.detrend, self.bias_reg = detrend, bias_reg
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        for name in ("alpha", "learning_rate", "bias_reg"):
            require_positive(name, getattr(self, name))
        if self.batch_size is not None:
            require_integer("batch_size", self.batch_size, 1)

    def _bounds(self, observed: Observed) -> tuple[float, float]:
        return value_range(observed)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[OnlineDictionary, Array, Array]:
        observed = operations.observed
        m, n = observed.shape
        batch = int(self.batch_size or np.ceil(m * n / observed.n_entries))
        biases = detrended(operations, float(self.bias_reg)) if self.detrend else None
        learning = OnlineDictionary(
            operations,
            float(self.alpha),
            float(self.learning_rate),
            batch,
            int(self.max_iter),
            rng,
            biases,
        )
        D = rng.standard_normal((int(self.rank), n)).T
        return learning, np.zeros((m, int(self.rank))), D / np.linalg.norm(D, axis=0)


class OnlineDictionary:
    """One step is an epoch; after the last one all codes are computed for the final dictionary."""

    def __init__(
        self,
        operations: CPUOperations,
        alpha: float,
        learning_rate: float,
        batch: int,
        epochs: int,
        rng: Any,
        biases: tuple[Array, Array] | None = None,
    ) -> None:
        self._biases = biases
        if biases is not None:
            rows = operations.observed.rows
            left = rows.values - (
                biases[0][rows.group_of_entry()] + biases[1][rows.indices]
            ).astype(rows.values.dtype)
            operations = CPUOperations(operations.observed.with_values(left), operations.team)
        self._operations, self._alpha, self._learning_rate, self._batch = (
            operations,
            alpha,
            learning_rate,
            batch,
        )
        self._left, self._rng, self._seen = epochs, rng, 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, means included."""
        dtype = self._operations.observed.dtype
        P, D = self._P.astype(dtype), self._D.astype(dtype)
        if self._biases is None:
            return P, D
        rows, columns = (bias.astype(dtype)[:, None] for bias in self._biases)
        return np.hstack([P, rows, np.ones_like(rows)]), np.hstack(
            [D, np.ones_like(columns), columns]
        )

    def begin(self, U: Array, V: Array) -> float:
        """Start with the dictionary V (atoms of unit norm); U is computed from it."""
        self._P, self._D = np.zeros(U.shape), np.ascontiguousarray(V, np.float64)
        n, r = V.shape
        self._B, self._C = np.zeros((n, r)), np.zeros((r, r))
        self._counts, self._slack = np.zeros(n, np.int64), np.zeros(r)
        self._code_all()
        return self._value()

    def step(self) -> float:
        """An epoch."""
        rows = self._operations.observed.rows
        order = self._rng.permutation(len(rows))
        batches = -(-len(rows) // self._batch)
        atoms = np.array([self._rng.permutation(self._D.shape[1]) for _ in range(batches)])
        learn_epoch(
            order, self._batch, atoms, rows.pointers, rows.indices, rows.values, self._seen, self._alpha, self._learning_rate,
            self._D, self._P, self._B, self._C, self._counts, self._slack,
        )  # fmt: skip
        self._seen += len(rows)
        self._left -= 1
        if self._left == 0:
            self._code_all()
        return self._value()

    def _code_all(self) -> None:
        rows = self._operations.observed.rows
        bounds = block_bounds(rows.pointers, 64)
        work = self._D.shape[1] ** 2 * len(rows.values)
        self._operations.team.run(
            row_codes, len(bounds) - 1, work,
            bounds, rows.pointers, rows.indices, rows.values, self._D, self._alpha, self._P,
        )  # fmt: skip

    def _value(self) -> float:
        """½ Σ e² + α/2 Σ_i (share of columns seen by row i)·‖code_i‖²."""
        observed = self._operations.observed
        e = self._operations.residuals(
            self._P.astype(observed.dtype), self._D.astype(observed.dtype)
        )
        shares = observed.rows.counts / observed.shape[1]
        return 0.5 * float(
            np.square(e, dtype=np.float64).sum()
            + self._alpha * np.dot(shares, np.square(self._P).sum(axis=1))
        )

    @property
    def budgets(self) -> Array:
        """‖D_k‖² + slack_k, which every move keeps."""
        return np.asarray(np.square(self._D).sum(axis=0) + self._slack)

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """All epochs are made."""
        return "all epochs made" if self._left == 0 else None

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}


def detrended(operations: CPUOperations, bias_reg: float) -> tuple[Array, Array]:
    """Row and column means of what the others leave over, shrunk by ``bias_reg`` entries, in two sweeps."""
    observed = operations.observed
    x = observed.rows.values.astype(np.float64)
    i, j = observed.rows.group_of_entry(), observed.rows.indices
    row_bias, column_bias = (np.zeros(k) for k in observed.shape)
    mean = x.mean()
    for _ in range(_DETREND_SWEEPS):
        by_row = (operations.sums(x)[0] + mean * bias_reg) / (observed.rows.counts + bias_reg)
        x = x - by_row[i]
        by_column = operations.sums(x)[1] / (observed.columns.counts + bias_reg)
        x = x - by_column[j]
        row_bias, column_bias = row_bias + by_row, column_bias + by_column
    return row_bias, column_bias
