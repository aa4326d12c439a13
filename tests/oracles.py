"""Naive versions of every kernel in plain NumPy: slow, short, obviously correct."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


def dense(observed, x):
    out = np.zeros(observed.shape)
    out[observed.rows.group_of_entry(), observed.rows.indices] = x
    return out


def residuals(observed, U, V):
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    return (
        observed.rows.values.astype(np.float64)
        - (U.astype(np.float64) @ V.astype(np.float64).T)[i, j]
    )


def objective(observed, loss, reg, U, V):
    return loss.value(residuals(observed, U, V)).sum() + reg / 2 * (
        (U.astype(float) ** 2).sum() + (V.astype(float) ** 2).sum()
    )


def surrogate(observed, loss, reg, U, V, dU, dV):
    """F(dU, dV) as docs/design/mm.md writes it."""
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    e = residuals(observed, U, V)
    w = loss.derivative(e)
    rho = e - (dU @ V.T)[i, j] - (U @ dV.T)[i, j]
    R = dense(observed, w).sum(1)
    C = dense(observed, w).sum(0)
    b = (loss.value(e) - w * np.abs(e)).sum()
    ridge = reg / 2 * (((U + dU) ** 2).sum() + ((V + dV) ** 2).sum())
    return (w * np.abs(rho)).sum() + ridge + (R @ (dU**2).sum(1) + C @ (dV**2).sum(1)) / 2 + b


def weighted_ridge_rows(observed, weights, reg, V):
    """argmin_u Σ w(y − u·v)² + reg‖u‖², row by row."""
    W = dense(observed, weights)
    Y = dense(observed, observed.rows.values)
    rank = V.shape[1]
    return np.stack(
        [
            np.linalg.solve((V * W[i][:, None]).T @ V + reg * np.eye(rank), V.T @ (W[i] * Y[i]))
            for i in range(len(Y))
        ]
    )


def nonnegative_ridge_rows(observed, weights, reg, V):
    """argmin_{u ≥ 0} Σ w(y − u·v)² + reg‖u‖², row by row, by Lawson and Hanson's method."""
    root = np.sqrt(dense(observed, weights))
    Y = dense(observed, observed.rows.values)
    ridge = np.sqrt(reg) * np.eye(V.shape[1])
    return np.stack(
        [
            nnls(np.vstack([V * w[:, None], ridge]), np.append(w * y, np.zeros(V.shape[1])))[0]
            for w, y in zip(root, Y, strict=True)
        ]
    )


def mean_weights(observed, U, V, rate):
    """Mean of exp(−rate·e²) over each row; 1 for an empty one."""
    w = dense(observed, np.exp(-rate * residuals(observed, U, V) ** 2))
    seen = dense(observed, np.ones(observed.n_entries))
    counts = seen.sum(1)
    return np.where(counts > 0, w.sum(1) / np.maximum(counts, 1), 1.0)


def normal_inverses(observed, U, V, ridge, rate):
    """(Σ exp(−rate·e²) v vᵀ + ridge·I)⁻¹, row by row."""
    W = dense(observed, np.exp(-rate * residuals(observed, U, V) ** 2))
    V = V.astype(np.float64)
    return np.stack([np.linalg.inv((V * w[:, None]).T @ V + ridge * np.eye(V.shape[1])) for w in W])


def row_codes(observed, D, alpha):
    """Ridge regression of each row on the observed columns of the dictionary, zero if empty."""
    out = np.zeros((observed.shape[0], D.shape[1]))
    for i, (start, end) in enumerate(
        zip(observed.rows.pointers[:-1], observed.rows.pointers[1:], strict=True)
    ):
        if end > start:
            d = D[observed.rows.indices[start:end]].astype(np.float64)
            y = observed.rows.values[start:end].astype(np.float64)
            ridge = alpha * (end - start) / len(D)
            out[i] = np.linalg.solve(d.T @ d + ridge * np.eye(D.shape[1]), d.T @ y)
    return out


def batch_gradient(observed, U, V, reg):
    """Gradient of Σ e² + reg/2 (‖u_i‖² + ‖v_j‖²), the ridge counted once per entry."""
    E = dense(observed, -residuals(observed, U, V))
    seen = dense(observed, np.ones(observed.n_entries))
    return 2 * E @ V + reg * seen.sum(1)[:, None] * U, 2 * E.T @ U + reg * seen.sum(0)[:, None] * V


@dataclass
class Projection:
    V: np.ndarray
    e: np.ndarray
    g: np.ndarray
    H: np.ndarray


def projected(observed, w, U, ridge):
    """Weighted ridge regression of columns on U, and the Gauss–Newton matrix of its residuals."""
    columns = observed.columns
    m, n = observed.shape
    r = U.shape[1]
    V = np.zeros((n, r))
    e = np.zeros(len(w))
    g = np.zeros((m, r))
    H = np.zeros((m, r, m, r))
    for j, (start, end) in enumerate(zip(columns.pointers[:-1], columns.pointers[1:], strict=True)):
        rows = columns.indices[start:end]
        weight = w[start:end]
        y = columns.values[start:end].astype(np.float64)
        A = U[rows]
        normal = (A * weight[:, None]).T @ A + ridge * np.eye(r)
        V[j] = np.linalg.solve(normal, A.T @ (weight * y))
        e[start:end] = y - A @ V[j]
        g[rows] += (weight * e[start:end])[:, None] * V[j]
        left = (
            np.diag(weight) - weight[:, None] * (A @ np.linalg.solve(normal, A.T)) * weight
            if len(rows)
            else np.zeros((0, 0))
        )
        H[np.ix_(rows, range(r), rows, range(r))] += (
            left[:, None, :, None] * np.outer(V[j], V[j])[None, :, None, :]
        )
    return Projection(V, e, g, H.reshape(m * r, m * r))


def medians(pointers, values):
    """The median of each group, 0 for an empty one."""
    groups = np.split(values, pointers[1:-1])
    return np.array([np.median(group) if len(group) else 0.0 for group in groups])
