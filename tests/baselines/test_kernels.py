"""Kernels with loops over single entries, compared with the same formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.data.observed import Observed
from robustmf.kernels.dictionary import learn_epoch, row_codes
from robustmf.kernels.subspace import fold_columns, track

M = 14
N = 11
R = 3


@pytest.fixture(params=[0, 1, 2])
def rng(request):
    return np.random.default_rng(request.param)


@pytest.fixture
def rows(rng):
    X = rng.standard_normal((M, N))
    X[rng.random(X.shape) < 0.4] = np.nan
    X[3] = np.nan  # a row without entries
    return Observed.from_dense(X).rows


def of(rows, i):
    part = slice(rows.pointers[i], rows.pointers[i + 1])
    return rows.indices[part], rows.values[part]


def code(rows, i, D, alpha):
    j, x = of(rows, i)
    return (
        np.linalg.solve(D[j].T @ D[j] + alpha * len(j) / N * np.eye(R), D[j].T @ x)
        if len(j)
        else np.zeros(R)
    )


def test_row_codes(rng, rows):
    D = rng.standard_normal((N, R))
    out = np.empty((M, R))
    row_codes(0, 1, np.array([0, M]), rows.pointers, rows.indices, rows.values, D, 0.4, out)
    np.testing.assert_allclose(
        out, [code(rows, i, D, 0.4) for i in range(M)], rtol=1e-9, atol=1e-12
    )


def test_dictionary_learning(rng, rows):
    alpha = 0.4
    decay = 0.9
    batch = 4
    order = rng.permutation(M)
    n_batches = -(-M // batch)
    atom_orders = np.array([rng.permutation(R) for _ in range(n_batches)])
    D = rng.standard_normal((N, R))
    D /= 1.2 * np.linalg.norm(D, axis=0)
    B = rng.standard_normal((N, R))
    C = np.eye(R) + 0.1
    P = np.zeros((M, R))
    counts = np.zeros(N, np.int64)
    slack = 1 - np.square(D).sum(axis=0)
    e = {
        "D": D.copy(),
        "B": B.copy(),
        "C": C.copy(),
        "P": P.copy(),
        "counts": counts.copy(),
        "slack": slack.copy(),
    }
    seen = 2
    for number in range(n_batches):
        visited = order[number * batch : (number + 1) * batch]
        steps = np.arange(seen + 1, seen + len(visited) + 1)
        weight = 1 - np.prod(1 - steps ** (-decay))
        seen = seen + len(visited)
        touched = []
        for i in visited:
            e["P"][i] = code(rows, i, e["D"], alpha)
            for j, x in zip(*of(rows, i), strict=True):
                e["counts"][j] += 1
                own = min(1.0, weight * seen / e["counts"][j])
                e["B"][j] = (1 - own) * e["B"][j] + own * x * e["P"][i]
                touched.append(j)
        e["C"] = (1 - weight) * e["C"] + weight / len(visited) * e["P"][visited].T @ e["P"][visited]
        touched = sorted(set(touched))
        part = e["D"][touched].copy()
        room = e["slack"] + np.square(part).sum(axis=0)
        for q in atom_orders[number]:
            target = part[:, q] + (e["B"][touched, q] - part @ e["C"][:, q]) / e["C"][q, q]
            norm = target @ target
            part[:, q] = target * min(1.0, np.sqrt(room[q] / norm))
            e["slack"][q] = max(room[q] - part[:, q] @ part[:, q], 0.0)
        e["D"][touched] = part
    learn_epoch(
        order,
        batch,
        atom_orders,
        rows.pointers,
        rows.indices,
        rows.values,
        2,
        alpha,
        decay,
        D,
        P,
        B,
        C,
        counts,
        slack,
    )
    found = {"D": D, "B": B, "C": C, "P": P, "counts": counts, "slack": slack}
    for name, expected in e.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-8, atol=1e-10, err_msg=name)


def l1_fit(U, x, growth, tol, max_iter):
    """Return w = argmin ‖U w − x‖₁ by ADMM, and the dual variable of the residual."""
    s = np.zeros(len(x))
    y = np.zeros(len(x))
    mu = 1.25 / np.linalg.norm(x)
    for _ in range(max_iter):
        w = np.linalg.lstsq(U, x - s - y / mu, rcond=None)[0]
        z = x - U @ w - y / mu
        s = np.sign(z) * np.maximum(np.abs(z) - 1 / mu, 0)
        h = U @ w + s - x
        y = y + mu * h
        mu = mu * growth
        if np.linalg.norm(h) < tol:
            break
    return w, y


def test_column_coefficients(rng, rows):
    U = np.linalg.qr(rng.standard_normal((N, R)))[0]
    out = np.empty((M, R))
    fold_columns(
        0, 1, np.array([0, M]), rows.pointers, rows.indices, rows.values, U, 1.3, 1e-7, 60, out
    )
    for i in range(M):
        j, x = of(rows, i)
        expected = l1_fit(U[j], x, 1.3, 1e-7, 60)[0] if len(j) >= R else np.zeros(R)
        np.testing.assert_allclose(out[i], expected, rtol=1e-6, atol=1e-8)


def test_subspace_tracking(rng, rows):
    U = np.linalg.qr(rng.standard_normal((N, R)))[0]
    # a column with as many entries as unknowns is fitted exactly, and its dual is rounding error
    order = rng.permutation(np.flatnonzero(rows.counts != R))
    weights = np.zeros((M, R))
    levels = np.empty(len(order))
    state = np.array([1.0, 1.0, 0.0])
    gamma_before = np.zeros(N)
    w_before = np.zeros(R)
    E = U.copy()
    mu = 1.0
    level = 1.0
    scale = 0.0
    last = None
    expected_levels = []
    for i in order:
        j, x = of(rows, i)
        if len(j) >= R:
            w, y = l1_fit(E[j], x, 1.3, 0.0, 20)
            full = np.zeros(N)
            full[j] = y
            gamma = full - E @ (E[j].T @ y)
            size = np.linalg.norm(w) * np.linalg.norm(gamma)
            scale = scale or 0.5 * np.pi * 2 / size
            correlation = (
                0.0
                if last is None
                else np.vdot(np.outer(*last), np.outer(gamma, w))
                / (np.linalg.norm(last[0]) * np.linalg.norm(last[1]) * size)
            )
            mu = max(mu - 1 + 2 / (1 + np.exp(correlation / 0.1)), 1.0)
            angle = min(scale * 2.0**-level * size / (1 + mu), np.pi / 3)
            if mu <= 1:
                level = max(level - 1, 1.0)
                mu = 3.0
            elif mu > 15:
                level, mu = (level + 1, 7.0) if level < 20 else (level, 15.0)
            along = w / np.linalg.norm(w)
            E = E + np.outer(
                (np.cos(angle) - 1) * E @ along - np.sin(angle) * gamma / np.linalg.norm(gamma),
                along,
            )
            last = (gamma, w)
        expected_levels.append(level)
    track(
        order,
        rows.pointers,
        rows.indices,
        rows.values,
        U,
        1.3,
        0.0,
        20,
        state,
        gamma_before,
        w_before,
        weights,
        levels,
    )
    np.testing.assert_allclose(U, E, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(levels, expected_levels)
