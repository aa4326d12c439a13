"""The surrogate majorizes the objective; primal and dual agree; so do the inner solvers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import oracles
from conftest import random_problem
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.losses import L1, Loss, loss_names, make_loss
from robustmf.solvers.mm import INNER_SOLVERS, LADMPSAP, MM, SparseAPG, make_inner
from robustmf.solvers.mm.apg import SparseSurrogateSteps
from robustmf.solvers.mm.ladmpsap import LADMPSAPRun
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective

CONCAVE = [name for name in loss_names() if make_loss(name).concave]
FIXTURES = Path(__file__).parents[2] / "fixtures"
TIGHT = MM(gap=1e-11, max_iter=20000)


def surrogate_at(name, team, seed=0, reg=0.3, dtype=np.float64):
    observed, U, V = random_problem(seed=seed, dtype=dtype)
    operations = CPUOperations(observed, team)
    objective = Objective(make_loss(name), reg)
    return Surrogate(operations, objective, U, V, operations.residuals(U, V)), objective


@pytest.mark.parametrize("name", CONCAVE)
def test_surrogate_is_a_majorizer(name, team):
    """Equal at 0, and above the objective at increments of every size in random directions."""
    surrogate, objective = surrogate_at(name, team)
    observed = surrogate.operations.observed
    U, V = surrogate.factors
    zero = np.zeros(observed.n_entries)
    at_zero, _ = surrogate.value(0 * U, 0 * V, zero)
    assert at_zero == pytest.approx(
        oracles.objective(observed, objective.loss, objective.reg, U, V), rel=1e-12
    )
    assert surrogate.at_zero == pytest.approx(at_zero, rel=1e-12)
    rng = np.random.default_rng(1)
    for size in np.geomspace(1e-4, 10, 200):
        dU = size * rng.standard_normal(U.shape)
        dV = size * rng.standard_normal(V.shape)
        value, _ = surrogate.value(dU, dV, zero)
        assert value == pytest.approx(
            oracles.surrogate(observed, objective.loss, objective.reg, U, V, dU, dV), rel=1e-12
        )
        assert value >= oracles.objective(
            observed, objective.loss, objective.reg, U + dU, V + dV
        ) * (1 - 1e-12)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CONCAVE)
def test_primal_and_dual_optimum_agree(name, seed, team):
    surrogate, _ = surrogate_at(name, team, seed)
    found = SparseAPG().solve(surrogate, TIGHT)
    dual = surrogate.dual()
    products = surrogate.operations.products(found.dual_point, *surrogate.factors)
    lower = surrogate.dual_offset - dual.value(found.dual_point, products)
    assert found.value - lower + 1e-9 * found.value >= 0
    assert found.value - lower <= 1e-8 * found.value
    assert found.gap == pytest.approx(found.value - lower, abs=1e-9 * found.value)
    assert np.all(np.abs(found.dual_point) <= surrogate.weights)
    assert found.value < surrogate.at_zero


@pytest.mark.parametrize("name", CONCAVE)
def test_inner_solvers_reach_the_same_increments(name, team):
    found = {}
    for inner in INNER_SOLVERS:
        surrogate, _ = surrogate_at(name, team)
        solver = (
            LADMPSAP(penalty=0.1, settled=1e-12, feasible=1e-12)
            if inner == "ladmpsap"
            else make_inner(MM(inner))
        )
        options = MM(gap=1e-9, max_iter=30000)
        found[inner] = solver.solve(surrogate, options)
    best = found["apg"]
    for inner in ("apg-dense", "ladmpsap"):
        assert found[inner].value == pytest.approx(best.value, rel=1e-7)
        np.testing.assert_allclose(found[inner].dU, best.dU, atol=2e-4)
        np.testing.assert_allclose(found[inner].dV, best.dV, atol=2e-4)


def test_every_point_of_the_dual_certifies_its_own_increments(team):
    """The gap is an upper bound on the distance to the optimum, at bad points too."""
    surrogate, _ = surrogate_at("lsp", team)
    best = SparseAPG().solve(surrogate, TIGHT).value
    dual = surrogate.dual()
    rng = np.random.default_rng(2)
    for _ in range(20):
        x = surrogate.weights * rng.uniform(-1, 1, len(surrogate.weights))
        value, gap = surrogate.value(
            *dual.increments(surrogate.operations.products(x, *surrogate.factors)), x
        )
        assert value - gap <= best * (1 + 1e-9)
        assert best <= value


def test_dual_gradient_by_differences_and_curvature_bound(team):
    surrogate, _ = surrogate_at("geman", team)
    dual = surrogate.dual()
    operations = surrogate.operations
    U, V = surrogate.factors
    rng = np.random.default_rng(3)
    x = surrogate.weights * rng.uniform(-1, 1, len(surrogate.weights))
    d = rng.standard_normal(len(x))

    def value(t):
        return dual.value(x + t * d, operations.products(x + t * d, U, V))

    dU, dV = dual.increments(operations.products(x, U, V))
    i = operations.observed.rows.group_of_entry()
    j = operations.observed.rows.indices
    rho = surrogate.residual - (dU @ V.T)[i, j] - (U @ dV.T)[i, j]
    assert (value(1e-5) - value(-1e-5)) / 2e-5 == pytest.approx(-rho @ d, rel=1e-6)
    growth = value(1) + value(-1) - 2 * value(0)
    alpha, gamma = dual.curvatures()
    assert growth <= ((alpha[i] + gamma[j]) * d * d).sum()
    # also where it is largest: the Hessian is a_i v_j·v_k within rows plus g_j u_i·u_k in columns
    a, g = dual.inverses
    hessian = np.where(i[:, None] == i, a[i] * (V[j] @ V[j].T), 0)
    hessian += np.where(j[:, None] == j, g[j] * (U[i] @ U[i].T), 0)
    assert d @ hessian @ d == pytest.approx(growth)
    for bound, of_entry in ((alpha, i), (gamma, j)):
        assert bound.min() > 0
        assert len(bound) == of_entry.max() + 1
    excess = np.linalg.eigvalsh(np.diag(alpha[i] + gamma[j]) - hessian)
    assert excess.min() > -1e-9 * alpha.max()
    rows = np.where(i[:, None] == i, a[i] * (V[j] @ V[j].T), 0)
    assert np.linalg.eigvalsh(np.diag(alpha[i]) - rows).min() > -1e-9 * alpha.max()
    columns = np.where(j[:, None] == j, g[j] * (U[i] @ U[i].T), 0)
    assert np.linalg.eigvalsh(np.diag(gamma[j]) - columns).min() > -1e-9 * gamma.max()


@dataclass(frozen=True)
class Weighted(Loss):
    """w_t|e_t| with given weights, for the fixture."""

    weights: np.ndarray = None
    name = "weighted"
    concave = True

    def value(self, residual):
        return self.weights * np.abs(residual)

    def derivative(self, residual):
        return self.weights


def test_independent_optimum_of_a_conic_solver(team):
    fixture = np.load(FIXTURES / "surrogate.npz")
    shape = (int(fixture["m"]), int(fixture["n"]))
    observed = Observed.from_indices(fixture["i"], fixture["j"], fixture["a"], shape)
    in_row_order = np.lexsort((fixture["j"], fixture["i"]))
    objective = Objective(Weighted(weights=fixture["w"][in_row_order]), float(fixture["lam"]))
    operations = CPUOperations(observed, team)
    U = fixture["U"]
    V = fixture["V"]
    surrogate = Surrogate(operations, objective, U, V, operations.residuals(U, V))
    for inner in ("apg", "apg-dense"):
        found = make_inner(MM(inner)).solve(surrogate, TIGHT)
        assert found.value == pytest.approx(float(fixture["F"]), rel=1e-8)
        np.testing.assert_allclose(found.dU, fixture["dU"], atol=2e-6)
        np.testing.assert_allclose(found.dV, fixture["dV"], atol=2e-6)


def test_ladmpsap_makes_the_steps_of_the_authors_code(team):
    given = np.load(FIXTURES / "input.npz")
    wanted = np.load(FIXTURES / "octave.npz")
    observed = Observed.from_indices(given["i"], given["j"], given["a"], given["M"].shape)
    operations = CPUOperations(observed, team)
    U = given["U0"]
    V = given["V0"]
    surrogate = Surrogate(operations, Objective(L1(), 20 / 105), U, V, operations.residuals(U, V))
    run = LADMPSAPRun(LADMPSAP(), surrogate)
    for _ in range(50):
        run.step()
    np.testing.assert_allclose(run.state.dU, wanted["ladm50_U"], atol=1e-12)
    np.testing.assert_allclose(run.state.dV, wanted["ladm50_V"], atol=1e-12)


def test_one_dual_step_is_the_prox_of_the_box_by_brute_force(team):
    """From z = x the step minimises, entry by entry, −ρx + c/2 (x − z)² over |x| ≤ w."""
    surrogate, _ = surrogate_at("laplace", team)
    x = 0.5 * surrogate.weights * np.sign(surrogate.residual)
    steps = SparseSurrogateSteps(surrogate, x.copy())
    dU, dV = steps.dual.increments(steps.products)
    alpha, gamma = steps.dual.curvatures()
    before = steps.dual.value(x, steps.products)
    step = steps.step(1.0)
    steps.accept(0.0)
    assert step.dual == pytest.approx(steps.dual.value(steps.x, steps.products), rel=1e-12)
    moved = steps.x - x
    slope = step.dual - before - 0.5 * step.curved
    U, V = surrogate.factors
    rows = surrogate.operations.observed.rows
    i = rows.group_of_entry()
    j = rows.indices
    linearised = (
        surrogate.residual - np.einsum("tq,tq->t", dU[i], V[j]) - np.einsum("tq,tq->t", U[i], dV[j])
    )
    assert slope == pytest.approx(-linearised @ moved, rel=1e-9), (
        "the growth beyond the tangent is the quadratic the line search sees"
    )
    assert step.allowed == pytest.approx(((alpha[i] + gamma[j]) * moved**2).sum(), rel=1e-9)
    assert step.turning == pytest.approx(-step.allowed, rel=1e-9), (
        "without momentum a step never turns against it"
    )
    for t in range(0, len(x), 17):
        rho = surrogate.residual[t] - dU[i[t]] @ V[j[t]] - U[i[t]] @ dV[j[t]]
        candidates = np.linspace(-surrogate.weights[t], surrogate.weights[t], 20001)
        cost = -rho * candidates + (alpha[i[t]] + gamma[j[t]]) / 2 * (candidates - x[t]) ** 2
        assert steps.x[t] == pytest.approx(
            candidates[np.argmin(cost)], abs=2e-4 * surrogate.weights[t]
        )


def test_warm_start_saves_steps(team):
    surrogate, _ = surrogate_at("lsp", team)
    solver = SparseAPG()
    options = MM(gap=1e-6, max_iter=5000)
    cold = solver.solve(surrogate, options)
    warm = solver.solve(surrogate, options)
    assert warm.iterations < cold.iterations / 2


def test_relative_change_stops_an_inner_solve_that_has_descended(team):
    surrogate, _ = surrogate_at("lsp", team)
    loose = SparseAPG().solve(surrogate, MM(tol=1e-4))
    tight = SparseAPG().solve(surrogate, MM(tol=1e-10, max_iter=5000))
    assert loose.iterations < tight.iterations
    assert tight.value <= loose.value < surrogate.at_zero
    hasty = SparseAPG().solve(surrogate, MM(tol=0.99, max_iter=1))
    assert hasty.value < surrogate.at_zero, "continues until the surrogate has decreased"


def test_unknown_inner_solver():
    with pytest.raises(
        ValueError, match="inner must be one of apg, apg-dense, ladmpsap, got inner='admm'"
    ):
        MM("admm")


def test_a_gap_is_relative_to_the_decrease():
    assert MM(gap=0.1).is_accurate(0.02, 0.2)
    assert not MM(gap=0.1).is_accurate(0.05, 0.2)
    assert not MM(gap=None).is_accurate(0.0, 0.2)
