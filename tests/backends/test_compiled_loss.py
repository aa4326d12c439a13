"""Losses as machine code: built-in and user-defined formulas, traced or not, on both backends."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numba import njit

import oracles
from conftest import random_problem
from robustmf import RobustMF
from robustmf.backends.cpu import compiled_loss
from robustmf.backends.cpu.compiled_loss import value_address, weight_address
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.kernels.team import Team
from robustmf.losses import Loss, Smoothed, Welsch, loss_names, make_loss


@pytest.mark.parametrize("name", [name for name in loss_names() if not make_loss(name).concave])
def test_weights_of_built_in_losses_are_compiled(name, dtype):
    assert weight_address(make_loss(name), np.dtype(dtype)) is not None


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("name", loss_names())
def test_loss_sums_to_the_last_digits(name, size, dtype):
    """Rows of one and of several batches; small and large residuals; any number of threads."""
    rng = np.random.default_rng(0)
    observed = Observed.from_dense((size * rng.standard_normal((30, 1100))).astype(dtype))
    loss = make_loss(name)
    U = np.zeros((30, 3), dtype)
    V = np.zeros((1100, 3), dtype)
    weights = rng.random(observed.n_entries).astype(dtype)
    values = loss.value(observed.rows.values.astype(np.longdouble)) * weights
    found = []
    for n_jobs in (1, 3):
        with Team(n_jobs) as team:
            found.append(CPUOperations(observed, team).loss_sum(loss, U, V, weights))
    assert found[0] == found[1]
    # a smoothed loss is the difference φ(√(e² + ε²)) − φ(ε)
    at_zero = 0.0
    if isinstance(loss, Smoothed):
        at_zero = float(loss.base.value(np.array([loss.epsilon]))[0])
    tolerance = 1e-15 * at_zero * float(weights.sum())
    np.testing.assert_allclose(found[0], float(values.sum()), rtol=1e-14, atol=tolerance)


def test_traced_and_other_losses_have_the_same_sums():
    class Awkward(Welsch):
        def _value(self, a):
            return super()._value(np.asarray(a))

    class Public(Welsch):
        def value(self, residual):
            return self.theta**2 * (1 - np.exp(-0.5 * (residual / self.theta) ** 2))

    observed, U, V = random_problem()
    with Team(1) as team:
        operations = CPUOperations(observed, team)
        assert value_address(Awkward(1.3), np.dtype(np.float64)) is None
        assert value_address(Welsch(1.3), np.dtype(np.float64)) is not None
        sums = [
            operations.loss_sum(loss, U, V) for loss in (Welsch(1.3), Awkward(1.3), Public(1.3))
        ]
    np.testing.assert_allclose(sums[1:], sums[0], rtol=1e-14)


def test_a_loss_that_cannot_be_compiled_gives_the_same_step(operations_on):
    class Awkward(Welsch):
        @staticmethod
        def weight_formula(a, rate):
            return np.array([float(str(x)) for x in np.exp(-rate * a * a).ravel()]).reshape(
                np.shape(a)
            )

    class Bare(Welsch):
        weight_formula = None

        def _derivative(self, a):
            return a * np.exp(-0.5 * (a / self.theta) ** 2)

    observed, U, V = random_problem()
    operations = operations_on(observed)
    results = []
    for loss in (Welsch(1.3), Awkward(1.3), Bare(1.3)):
        got = operations.array(U.copy())
        operations.half_step(loss, 0.3, got, operations.array(V))
        results.append(np.asarray(got))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-9)


def _welsch_in_numpy_alone(a):
    if not isinstance(a, np.ndarray):
        raise RuntimeError("arrays only")
    return 1 - np.exp(-0.5 * a * a)


@pytest.mark.parametrize(
    "helper",
    [njit(lambda a: 1 - np.exp(-0.5 * a * a)), _welsch_in_numpy_alone],
    ids=["compiled", "refuses"],
)
def test_a_loss_may_call_a_function_that_cannot_be_traced(helper, operations_on):
    class Own(Welsch):
        weight_formula = staticmethod(partial(lambda helper, a, rate: 1 - helper(a), helper))

        def _value(self, a):
            return helper(a)

    observed, U, V = random_problem()
    operations = operations_on(observed)
    steps = []
    sums = []
    for loss in (Welsch(), Own()):
        got = operations.array(U.copy())
        operations.half_step(loss, 0.3, got, operations.array(V))
        steps.append(np.asarray(got))
        sums.append(operations.loss_sum(loss, operations.array(U), operations.array(V)))
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-9)
    np.testing.assert_allclose(sums[1], sums[0], rtol=1e-12)
    if operations.capabilities.host_arrays:
        RobustMF(3, loss=Own(), theta=None, solver="irls", init=(U, V)).fit(observed)


def test_a_weight_depends_on_variables_that_its_formula_reads(operations_on):
    class Own(Loss):
        name = "own"
        scale = 1.0

        @staticmethod
        def weight_formula(a, theta):
            return 1 / (1 + Own.scale * a * a)

    observed, U, V = random_problem()
    for Own.scale in (1.0, 9.0):
        operations = operations_on(observed)
        got = operations.array(U.copy())
        operations.half_step(Own(), 0.3, got, operations.array(V))
        e = oracles.residuals(observed, U, V)
        wanted = oracles.weighted_ridge_rows(observed, Own().weight(e), 0.3, V)
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(
    "formula",
    [
        lambda a, p: np.power(a, 2, where=a > 1, out=np.zeros_like(a)),
        lambda a, p: np.power(a, 2, dtype=np.float32),
        lambda a, p: np.maximum(p, a),
        np.maximum,
        lambda a, p: np.minimum(p, a),
        np.minimum,
        lambda a, p: np.clip(a, 0.5, p),
        lambda a, p: np.clip(p, 0.5, a),
    ],
)
def test_a_traced_formula_has_the_meaning_of_numpy(formula, operations_on):
    """Options of functions are not dropped; NaN stays NaN."""

    class Own(Loss):
        name = "own"

        def _value(self, a):
            return formula(a, self.theta)

    values = np.array([[0.0, 0.7, 1.9, 4.0]])
    operations = operations_on(Observed.from_dense(values))
    for V in (np.zeros(4), np.array([0, np.nan, 0, 0])):
        got = operations.loss_sum(
            Own(1.7), operations.array(np.ones((1, 1))), operations.array(V[:, None])
        )
        np.testing.assert_allclose(
            got, Own(1.7).value(values - V).sum(dtype=np.float64), rtol=1e-14
        )


def test_cached_machine_code_depends_on_the_compiler_flags(monkeypatch):
    before = compiled_loss._name(("return a",), 0, np.dtype(np.float64))
    monkeypatch.setattr(compiled_loss, "FASTMATH", {"reassoc"})
    assert compiled_loss._name(("return a",), 0, np.dtype(np.float64)) != before
