"""Naive versions of every kernel, in plain NumPy: slow, short, obviously right."""

from __future__ import annotations

import numpy as np


def dense(observed, x):
    out = np.zeros(observed.shape)
    out[observed.rows.group_of_entry(), observed.rows.indices] = x
    return out


def residuals(observed, U, V):
    i, j = observed.rows.group_of_entry(), observed.rows.indices
    return observed.rows.values.astype(np.float64) - (U.astype(np.float64) @ V.astype(np.float64).T)[i, j]


def objective(observed, loss, reg, U, V):
    return loss.value(residuals(observed, U, V)).sum() + reg / 2 * ((U.astype(float) ** 2).sum() + (V.astype(float) ** 2).sum())


def surrogate(observed, loss, reg, U, V, dU, dV):
    """F(dU, dV) as docs/design/mathematics.md writes it."""
    i, j = observed.rows.group_of_entry(), observed.rows.indices
    e = residuals(observed, U, V)
    w = loss.derivative(e)
    rho = e - (dU @ V.T)[i, j] - (U @ dV.T)[i, j]
    R, C = dense(observed, w).sum(1), dense(observed, w).sum(0)
    b = (loss.value(e) - w * np.abs(e)).sum()
    ridge = reg / 2 * (((U + dU) ** 2).sum() + ((V + dV) ** 2).sum())
    return (w * np.abs(rho)).sum() + ridge + (R @ (dU**2).sum(1) + C @ (dV**2).sum(1)) / 2 + b


def weighted_ridge_rows(observed, weights, reg, V):
    """argmin_u Σ w(y − u·v)² + reg‖u‖², row by row."""
    W, Y = dense(observed, weights), dense(observed, observed.rows.values)
    rank = V.shape[1]
    return np.stack([np.linalg.solve((V * W[i][:, None]).T @ V + reg * np.eye(rank), V.T @ (W[i] * Y[i])) for i in range(len(Y))])
