"""Tracking a subspace column by column under the l1 loss (GRASTA).

The compressed groups are columns; the weights of a column minimise ‖U_Ω w − v‖₁, by ADMM with a
growing penalty.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.small import cholesky, dot, substitute

# Constants of the controller of step sizes. Numba compiles them into the kernel, so they are
# variables of the module and not fields of a dataclass.

#: Bounds of its momentum μ: at the lower one the steps become longer, at the upper one shorter.
_MIN_MU = 1.0
_MAX_MU = 15.0

#: Its highest level; a step has the length 2^(−level).
MAX_LEVEL = 20

#: The largest angle of a step.
_MAX_ANGLE = np.pi / 3


@inlined
def l1_weights(indices, values, U, growth, tol, max_iter, gram, w, s, y):
    """Minimise ‖U_Ω w − v‖₁: w, its dual y (|y| ≤ 1), the misfit s; zeros for a zero column."""
    r = U.shape[1]
    gram[:] = 0
    w[:] = 0
    s[:] = 0
    y[:] = 0
    size = 0.0
    for t in range(len(values)):
        u = U[indices[t]]
        size += values[t] * values[t]
        for q in range(r):
            for p in range(q + 1):
                gram[q, p] += u[q] * u[p]
    if size == 0:
        return
    ridge = 0.0
    for q in range(r):
        ridge += 1e-16 * gram[q, q]
    for q in range(r):
        gram[q, q] += ridge
    cholesky(gram)
    mu = 1.25 / np.sqrt(size)
    for _ in range(max_iter):
        w[:] = 0
        for t in range(len(values)):
            rest = values[t] - s[t] - y[t] / mu
            u = U[indices[t]]
            for q in range(r):
                w[q] += u[q] * rest
        substitute(gram, w)
        infeasible = 0.0
        for t in range(len(values)):
            fitted = dot(U[indices[t]], w)
            z = values[t] - fitted - y[t] / mu
            s[t] = np.sign(z) * max(abs(z) - 1 / mu, 0.0)
            h = fitted + s[t] - values[t]
            y[t] += mu * h
            infeasible += h * h
        mu *= growth
        if np.sqrt(infeasible) < tol:
            break


@kernel
def fold_columns(first, last, bounds, pointers, indices, values, U, growth, tol, max_iter, out):
    """The weights of the columns of the blocks with U fixed; zeros for columns with < r entries."""
    r = U.shape[1]
    gram = np.empty((r, r))
    for j in range(bounds[first], bounds[last]):
        a, b = pointers[j], pointers[j + 1]
        out[j] = 0
        if b - a >= r:
            l1_weights(
                indices[a:b],
                values[a:b],
                U,
                growth,
                tol,
                max_iter,
                gram,
                out[j],
                np.empty(b - a),
                np.empty(b - a),
            )


@kernel
def track(
    order,
    pointers,
    indices,
    values,
    U,
    growth,
    tol,
    max_iter,
    state,
    gamma_before,
    w_before,
    weights,
    levels,
):
    """Visit the columns in ``order``: weights, then a step of U along the geodesic.

    The length of the step is that of the multi-level controller. ``state`` is (mu, level, scale of
    the step); scale 0 means that no step was made yet. ``levels`` receives the level after each
    step.
    """
    m, r = U.shape
    gram = np.empty((r, r))
    gamma = np.empty(m)
    inside = np.empty(r)
    towards = np.empty(m)
    for k in range(len(order)):
        j = order[k]
        a, b = pointers[j], pointers[j + 1]
        levels[k] = state[1]
        if b - a < r:
            continue
        w, y = weights[j], np.empty(b - a)
        l1_weights(indices[a:b], values[a:b], U, growth, tol, max_iter, gram, w, np.empty(b - a), y)
        inside[:] = 0
        for t in range(b - a):
            for q in range(r):
                inside[q] += U[indices[a + t], q] * y[t]
        for i in range(m):
            gamma[i] = -dot(U[i], inside)
        for t in range(b - a):
            gamma[indices[a + t]] += y[t]
        norm_w, norm_gamma = np.sqrt(dot(w, w)), np.sqrt(dot(gamma, gamma))
        size = norm_w * norm_gamma
        if size == 0:
            continue
        _rotate(
            U,
            gamma,
            norm_gamma,
            w,
            norm_w,
            _angle(state, size, gamma, w, gamma_before, w_before),
            towards,
        )
        levels[k] = state[1]
        gamma_before[:] = gamma
        w_before[:] = w


@inlined
def _angle(state, size, gamma, w, gamma_before, w_before):
    """The length of this step; update the controller.

    It moves up a level, to shorter steps, if gradients alternate.
    """
    if state[2] == 0:
        state[2] = 0.5 * np.pi * (1 + _MIN_MU) / size
    before = np.sqrt(dot(gamma_before, gamma_before) * dot(w_before, w_before))
    cosine = dot(gamma_before, gamma) * dot(w_before, w) / (before * size) if before > 0 else 0.0
    mu = max(state[0] - 1 + 2 / (1 + np.exp(cosine / 0.1)), _MIN_MU)
    angle = min(state[2] * 2.0 ** (-state[1]) * size / (1 + mu), _MAX_ANGLE)
    if mu <= _MIN_MU:
        if state[1] > 1:
            state[1] -= 1
        mu = _MIN_MU + 2
    elif mu > _MAX_MU:
        if state[1] < MAX_LEVEL:
            state[1] += 1
            mu = (_MAX_MU - 1) / 2
        else:
            mu = _MAX_MU
    state[0] = mu
    return angle


@inlined
def _rotate(U, gamma, norm_gamma, w, norm_w, angle, towards):
    """U ← U + ((cos t − 1) U α − sin t γ/‖γ‖) αᵀ, α = w/‖w‖."""
    m, r = U.shape
    c, s = np.cos(angle) - 1, np.sin(angle) / norm_gamma
    for i in range(m):
        towards[i] = (c * dot(U[i], w) / norm_w - s * gamma[i]) / norm_w
    for i in range(m):
        for q in range(r):
            U[i, q] += towards[i] * w[q]
