"""OMDL: online dictionary learning with missing entries (Mensch et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline, value_range
from robustmf.data.observed import Observed
from robustmf.kernels.dictionary import learn_epoch, row_codes
from robustmf.kernels.team import block_bounds
from robustmf.validation import require_integer, require_positive

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class OMDLOptions:
    """Constants of the method.

    Attributes
    ----------
    detrend_sweeps : int
        Number of sweeps over row and column means, as in the authors' code.
    """

    detrend_sweeps: int = 2


OPTIONS = OMDLOptions()


@dataclass(eq=False, repr=False)
class OMDL(Baseline):
    """Least squares with ridge-regularized codes of the rows and atoms of norm at most 1.

    The dictionary is learned online from the rows in random order, and predictions are clipped to
    the range of the data. With missing entries the method is biased: it averages the codes over
    all rows, but their products with the data only over the rows that observe a column, and does
    not recover even a noiseless matrix.

    Parameters
    ----------
    rank : int, default=10
        Number of atoms.
    alpha : float, default=0.1
        Regularization of a code, multiplied by the fraction of columns that its row observes. The
        atoms have unit norm, therefore ``alpha`` is independent of the units of the data.
    learning_rate : float, default=1.0
        Rate of forgetting: a new row has the weight (number of rows seen)^(−learning_rate). The
        authors recommend 0.75 to 0.95.
    batch_size : int or None, default=None
        Number of rows per update of the dictionary; None is the inverse of the density.
    detrend : bool, default=False
        Whether to subtract shrunken row and column means first, as for ratings.
    bias_reg : float, default=0.1
        Shrinkage of these means: the number of entries at the overall mean added to each. The
        default is the authors'.
    max_iter : int, default=20
        Number of epochs.
    tol : float, default=1e-4
        Has no effect.
    random_state : int, Generator or None, default=None
        Seed of the initial dictionary and of the orders.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    A. Mensch, J. Mairal, B. Thirion and G. Varoquaux, Dictionary learning for massive matrix
    factorization, ICML 2016.
    """

    alpha: float = 0.1
    learning_rate: float = 1.0
    batch_size: int | None = None
    detrend: bool = False
    bias_reg: float = 0.1
    max_iter: int = 20
    tol: float = 1e-4

    def _check_parameters(self) -> None:
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
        batch_size = int(self.batch_size or np.ceil(m * n / observed.n_entries))
        biases = row_and_column_means(operations, float(self.bias_reg)) if self.detrend else None
        learning = OnlineDictionary(
            operations,
            alpha=float(self.alpha),
            learning_rate=float(self.learning_rate),
            batch_size=batch_size,
            epochs=int(self.max_iter),
            rng=rng,
            biases=biases,
        )
        D = rng.standard_normal((int(self.rank), n)).T
        return learning, np.zeros((m, int(self.rank))), D / np.linalg.norm(D, axis=0)


class OnlineDictionary:
    """One step is an epoch; after the last one all codes are computed for the final dictionary.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    alpha : float
        Regularization of the codes.
    learning_rate : float
        Rate of forgetting.
    batch_size : int
        Number of rows per update of the dictionary.
    epochs : int
        Number of epochs.
    rng : Generator or RandomState
        Draws the order of the rows in each epoch and of the atoms in each batch.
    biases : (row biases, column biases) or None, default=None
        Subtracted from the data and added to the predictions.
    """

    def __init__(
        self,
        operations: CPUOperations,
        alpha: float,
        learning_rate: float,
        batch_size: int,
        epochs: int,
        rng: Any,
        biases: tuple[Array, Array] | None = None,
    ) -> None:
        self._biases = biases
        if biases is not None:
            rows = operations.observed.rows
            offsets = biases[0][rows.group_of_entry()] + biases[1][rows.indices]
            centered = rows.values - offsets.astype(rows.values.dtype)
            operations = CPUOperations(operations.observed.with_values(centered), operations.team)
        self._operations = operations
        self._alpha = alpha
        self._learning_rate = learning_rate
        self._batch_size = batch_size
        self._remaining = epochs
        self._rng = rng
        self._rows_seen = 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, including the biases."""
        dtype = self._operations.observed.dtype
        P = self._P.astype(dtype)
        D = self._D.astype(dtype)
        if self._biases is None:
            return P, D
        rows, columns = (bias.astype(dtype)[:, None] for bias in self._biases)
        return np.hstack([P, rows, np.ones_like(rows)]), np.hstack(
            [D, np.ones_like(columns), columns]
        )

    def begin(self, U: Array, V: Array) -> float:
        """Set the dictionary V (atoms of unit norm) and compute the codes, ignoring U."""
        n, r = V.shape
        self._P = np.zeros(U.shape)
        self._D = np.ascontiguousarray(V, np.float64)
        self._B = np.zeros((n, r))
        self._C = np.zeros((r, r))
        self._counts = np.zeros(n, np.int64)
        self._slack = np.zeros(r)
        self._compute_codes()
        return self._value()

    def step(self) -> float:
        """Run one epoch."""
        rows = self._operations.observed.rows
        order = self._rng.permutation(len(rows))
        batches = -(-len(rows) // self._batch_size)
        atoms = np.array([self._rng.permutation(self._D.shape[1]) for _ in range(batches)])
        learn_epoch(
            order,
            self._batch_size,
            atoms,
            rows.pointers,
            rows.indices,
            rows.values,
            self._rows_seen,
            self._alpha,
            self._learning_rate,
            self._D,
            self._P,
            self._B,
            self._C,
            self._counts,
            self._slack,
        )
        self._rows_seen += len(rows)
        self._remaining -= 1
        if self._remaining == 0:
            self._compute_codes()
        return self._value()

    def _compute_codes(self) -> None:
        """Compute the codes of all rows for the current dictionary."""
        rows = self._operations.observed.rows
        bounds = block_bounds(rows.pointers, 64)
        work = self._D.shape[1] ** 2 * len(rows.values)
        self._operations.team.run(
            row_codes,
            len(bounds) - 1,
            work,
            bounds,
            rows.pointers,
            rows.indices,
            rows.values,
            self._D,
            self._alpha,
            self._P,
        )

    def _value(self) -> float:
        """Return ½ Σ e² + α/2 Σ_i (fraction of columns observed in row i)·‖code_i‖²."""
        observed = self._operations.observed
        e = self._operations.residuals(
            self._P.astype(observed.dtype), self._D.astype(observed.dtype)
        )
        fractions = observed.rows.counts / observed.shape[1]
        return 0.5 * float(
            np.square(e, dtype=np.float64).sum()
            + self._alpha * np.dot(fractions, np.square(self._P).sum(axis=1))
        )

    @property
    def budgets(self) -> Array:
        """‖D_k‖² + slack_k of each atom, which every update preserves."""
        return np.asarray(np.square(self._D).sum(axis=0) + self._slack)

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Stop after the last epoch."""
        return "all epochs made" if self._remaining == 0 else None

    def report(self) -> dict[str, float]:
        """Return nothing in addition to the objective."""
        return {}


def row_and_column_means(operations: CPUOperations, bias_reg: float) -> tuple[Array, Array]:
    """Return shrunken row and column means, each of the remainder of the other, in two sweeps."""
    observed = operations.observed
    x = observed.rows.values.astype(np.float64)
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    row_bias = np.zeros(observed.shape[0])
    column_bias = np.zeros(observed.shape[1])
    mean = x.mean()
    for _ in range(OPTIONS.detrend_sweeps):
        by_row = (operations.sums(x)[0] + mean * bias_reg) / (observed.rows.counts + bias_reg)
        x = x - by_row[i]
        by_column = operations.sums(x)[1] / (observed.columns.counts + bias_reg)
        x = x - by_column[j]
        row_bias = row_bias + by_row
        column_bias = column_bias + by_column
    return row_bias, column_bias
