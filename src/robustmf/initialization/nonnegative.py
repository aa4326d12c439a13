"""A non-negative initial point, from factors that were found without that constraint.

The search without the constraint has found the rank, the noise and the outliers. Its product is
factorized again: from the positive parts of its singular vectors (Boutsidis & Gallopoulos 2008), by
non-negative least squares with the weights of the entries at that product. With the other side held
fixed, non-negative l1 regression is convex: rows and columns for which it leads to a lower minimum
are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.factorization import Factorization
from robustmf.initialization.problem import Problem
from robustmf.initialization.scales import TUNING
from robustmf.losses import L2, Loss, Welsch
from robustmf.solvers.fold_in import fold_in
from robustmf.solvers.irls import IRLS
from robustmf.solvers.objective import Objective
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class NonnegativeOptions:
    """Constants of the initial point.

    Attributes
    ----------
    max_sweeps : int
        The largest number of sweeps of least squares.
    tol : float
        Sweeps end when one lowers the sum of squares by no more than this share.
    regression : (int, int, int)
        Sweeps of least squares, of the l1 loss, and of the Welsch loss, by which rows and columns
        are solved again.
    """

    max_sweeps: int = 100
    tol: float = 1e-4
    regression: tuple[int, int, int] = (1, 4, 3)


OPTIONS = NonnegativeOptions()


def require_nonnegative_init(init: Any) -> None:
    """Refuse initial factors (U, V) with negative elements."""
    if isinstance(init, (str, Factorization)):
        return
    for A in map(np.asarray, init):
        if A.dtype.kind in "if" and (A < 0).any():
            raise ValueError(
                f"init=(U, V) must be non-negative with nonnegative=True, got an element {A.min()}"
            )


def nonnegative_factorization(
    settings: Settings,
    operations: EntryOperations,
    found: Factorization,
    sigma: float,
    rank: int | None,
) -> tuple[Factorization, float]:
    """Non-negative factors near the product of the factors that were found, and their noise level.

    Parameters
    ----------
    settings : Settings
    operations : EntryOperations
        On the entries with weight.
    found : Factorization
        Factors without the constraint. Where they are given, they are used as they are; where they
        are random, their absolute values.
    sigma : float
        The noise level there.
    rank : int or None
        The number of factors to return; None for as many as were found.
    """
    U = found.row_factors
    V = found.column_factors
    rank = found.rank if rank is None else rank
    init = settings.init
    if isinstance(init, str) and init == "random":
        U = np.abs(U)
        V = np.abs(V)
    elif isinstance(init, str) or (U < 0).any() or (V < 0).any():
        zero = U.dtype.type(0)
        start = (np.maximum(U, zero), np.maximum(V, zero))
        if isinstance(init, str):
            start = positive_parts(np.asarray(U), np.asarray(V), rank)
        U, V = nonnegative_factors(
            operations, (U, V), start, settings.reg, sigma, settings.loss.robust
        )
    problem = Problem(operations, rank, settings.reg, settings.loss.degree)
    noise = problem.noise(problem.residuals(U, V))
    return Factorization(U, V, None, found.row_bias, found.column_bias), noise


def nonnegative_factors(
    operations: EntryOperations,
    found: tuple[Array, Array],
    start: tuple[Array, Array],
    reg: float,
    sigma: float,
    robust: bool,
) -> tuple[Array, Array]:
    """Non-negative factors from a non-negative point ``start``.

    If ``robust``, entries have the weights of the Welsch loss at the factors ``found`` and the
    noise level ``sigma``, and poor rows and columns are solved again; otherwise all have the same
    weight.
    """
    weights = None
    loss = Welsch(TUNING * sigma) if robust else None
    if loss is not None:
        weights = loss.weight(operations.residuals(*found)).astype(operations.observed.dtype)
    U, V = map(operations.array, start)
    U, V = _least_squares(operations, U, V, weights, reg, sigma)
    if loss is not None:
        _solve_again(operations, loss, reg, U, V)
        _solve_again(operations.transposed, loss, reg, V, U)
    return U, V


def _solve_again(operations: EntryOperations, loss: Loss, reg: float, U: Array, V: Array) -> None:
    """Replace rows of U, in place, that robust regression on V fits with a lower objective."""
    sweeps = OPTIONS.regression
    T = fold_in(operations, loss, reg, V, sweeps=sweeps, nonnegative=True)

    def objectives(A: Array) -> Array:
        losses = operations.sums(loss.value(operations.residuals(A, V)))[0]
        return losses + 0.5 * reg * np.einsum("ij,ij->i", A, A)

    better = objectives(T) < objectives(U)
    U[better] = T[better]


def _least_squares(
    operations: EntryOperations,
    U: Array,
    V: Array,
    weights: Array | None,
    reg: float,
    sigma: float,
) -> tuple[Array, Array]:
    """Sweeps of non-negative least squares with fixed weights of the entries."""
    solver = IRLS.on_entries(
        operations, Objective(L2(), reg), sigma, sample_weights=weights, nonnegative=True
    )
    value = solver.begin(U, V)
    for _ in range(OPTIONS.max_sweeps):
        before = value
        value = solver.step()
        if not before - value > OPTIONS.tol * before:
            break
    return solver.augmented_factors


def positive_parts(U: Array, V: Array, rank: int) -> tuple[Array, Array]:
    """``rank`` non-negative factors from the singular vectors of UVᵀ.

    The positive parts of a pair of singular vectors, or the negative parts of both, are a pair of
    factors; of the two, that with the larger product of norms comes first. Where more factors are
    requested than there are pairs, the others follow in the order of their products; after these
    factors are zero.
    """
    (Q, R), (P, S) = (np.linalg.qr(A.astype(np.float64)) for A in (U, V))
    left, sizes, right = np.linalg.svd(R @ S.T)
    rows = Q @ left
    columns = P @ right.T
    first = []
    second = []
    for k, size in enumerate(sizes):
        parts = []
        for sign in (1.0, -1.0):
            u, v = (np.maximum(sign * A[:, k], 0.0) for A in (rows, columns))
            norms = float(np.linalg.norm(u)), float(np.linalg.norm(v))
            product = size * norms[0] * norms[1]
            if product > 0:
                u *= np.sqrt(product) / norms[0]
                v *= np.sqrt(product) / norms[1]
            parts.append((product, u, v))
        parts.sort(key=lambda part: -part[0])
        first.append(parts[0])
        second.append(parts[1])
    chosen = [*first, *sorted(second, key=lambda part: -part[0])][:rank]
    W, H = (np.zeros((len(A), rank), U.dtype) for A in (U, V))
    for k, (_, u, v) in enumerate(chosen):
        W[:, k] = u
        H[:, k] = v
    return W, H
