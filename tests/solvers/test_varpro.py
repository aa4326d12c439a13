"""Variable projection: its derivatives, its descent, and the Dinosaur tracks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from conftest import random_problem
from robustmf import RobustMF
from robustmf.datasets import load_dinosaur
from robustmf.kernels import team as team_module
from robustmf.losses import L2, loss_names
from robustmf.solvers.projection import Entries, Projected, balanced, orthonormal

DINOSAUR = (
    Path(os.environ.get("ROBUSTMF_DATA", Path(__file__).parents[3] / "shared" / "data"))
    / "dinosaur"
    / "viff.xy"
)


@pytest.fixture
def small(team):
    observed, U, _ = random_problem(7, 12, 2, share=0.7)
    return Entries(observed, team), U


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_gradient_of_the_projected_objective(small, ridge):
    entries, U = small
    problem = Projected(entries, L2(), ridge, ridge)
    point = problem.at(U)
    m, r = U.shape
    H = np.zeros((m * r, m * r))
    g = np.zeros((m, r))
    entries.assemble(point, H, g)
    g -= ridge * U
    slopes = np.zeros_like(U)
    for index in np.ndindex(*U.shape):
        step = np.zeros_like(U)
        step[index] = 1e-6
        slopes[index] = (
            problem.objective(problem.at(U + step)) - problem.objective(problem.at(U - step))
        ) / 2e-6
    np.testing.assert_allclose(-g, slopes, atol=1e-6)


def test_gauss_newton_matrix_is_exact_where_the_fit_is(team):
    observed, U, V = random_problem(6, 15, 2, share=0.8)
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    entries = Entries(observed.with_values(np.einsum("tq,tq->t", U[i], V[j])), team)
    problem = Projected(entries, L2(), 0.0, 0.0)
    m, r = U.shape
    H = np.zeros((m * r, m * r))
    g = np.zeros((m, r))
    entries.assemble(problem.at(U), H, g)
    H = np.tril(H) + np.tril(H, -1).T
    rng = np.random.default_rng(0)
    for _ in range(5):
        d = rng.standard_normal(U.shape)
        curve = (
            problem.objective(problem.at(U + 1e-4 * d))
            + problem.objective(problem.at(U - 1e-4 * d))
        ) / 1e-8
        assert d.ravel() @ H @ d.ravel() == pytest.approx(curve, rel=1e-4)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=0))
    X = random_problem(12, 90, 2, share=0.6)[0]
    fits = [
        RobustMF(2, solver="varpro", random_state=0, n_jobs=n_jobs).fit(X) for n_jobs in (1, 2, 4)
    ]
    for other in fits[1:]:
        assert np.array_equal(fits[0].row_factors_, other.row_factors_)


def test_gauges():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((9, 3))
    V = rng.standard_normal((20, 3))
    P, Q = balanced(U, V)
    np.testing.assert_allclose(P @ Q.T, U @ V.T)
    np.testing.assert_allclose(P.T @ P, Q.T @ Q, atol=1e-12)
    assert (P**2).sum() + (Q**2).sum() <= (U**2).sum() + (V**2).sum()
    np.testing.assert_allclose(orthonormal(U).T @ orthonormal(U), 9 * np.eye(3), atol=1e-12)


@pytest.mark.parametrize("name", loss_names())
def test_every_loss_descends_and_the_transpose_has_the_same_solution(name, dtype):
    observed = random_problem(12, 60, 2, share=0.7, dtype=dtype)[0]
    model = RobustMF(2, loss=name, solver="varpro", random_state=0).fit(observed)
    assert np.all(np.diff(model.history_["objective"]) <= 0)
    assert model.row_factors_.shape == (12, 2)
    assert model.row_factors_.dtype == dtype
    transposed = RobustMF(2, loss=name, solver="varpro", random_state=0).fit(observed.transposed)
    np.testing.assert_allclose(transposed.row_factors_, model.column_factors_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", ["huber", "welsch"])
def test_the_gradient_vanishes_where_the_ridge_is_strong(loss):
    observed = random_problem(12, 60, 2, share=0.7)[0]
    model = RobustMF(2, loss=loss, solver="varpro", reg=4.0, tol=1e-14, random_state=0)
    model.fit(observed)
    U, V = model.row_factors_, model.column_factors_
    rows = observed.rows
    i, j = rows.group_of_entry(), rows.indices
    e = rows.values - np.einsum("tq,tq->t", U[i], V[j])
    residual = sp.csr_array((model.loss_.weight(e) * e, (i, j)), shape=observed.shape)
    assert np.abs(U).max() > 0.1
    np.testing.assert_allclose(residual @ V, 4.0 * U, atol=1e-5)
    np.testing.assert_allclose(residual.T @ U, 4.0 * V, atol=1e-5)


@pytest.mark.skipif(
    not DINOSAUR.exists(), reason=f"Dinosaur tracks not found at {DINOSAUR}; set ROBUSTMF_DATA"
)
@pytest.mark.parametrize(
    ("views", "shape", "share", "bound"),
    [(5, (72, 932), 17.87, 0.302), (6, (72, 557), 20.55, 0.336), (7, (72, 336), 23.10, 0.319)],
)
def test_dinosaur_from_random_initializations(views, shape, share, bound):
    tracks = load_dinosaur(views, DINOSAUR.parents[1])
    assert tracks.shape == shape
    assert 100 * tracks.n_entries / (shape[0] * shape[1]) == pytest.approx(share, abs=0.005)
    good = 0
    for seed in range(3):
        model = RobustMF(4, loss="l1", reg=1e-9, tol=1e-6, random_state=100 + seed).fit(tracks)
        assert model.solver_ == "varpro"
        good += -model.score(tracks, rows="fitted") <= bound
    assert good >= 2


def test_dinosaur_loader_names_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("ROBUSTMF_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="set ROBUSTMF_DATA"):
        load_dinosaur()
    with pytest.raises(FileNotFoundError, match=r"viff.xy not found"):
        load_dinosaur(folder=tmp_path)
    (tmp_path / "dinosaur").mkdir()
    (tmp_path / "dinosaur" / "viff.xy").write_text("1 2 3\n")
    with pytest.raises(ValueError, match="expected 72 numbers per line, got 3"):
        load_dinosaur(folder=tmp_path)
