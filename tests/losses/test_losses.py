"""Properties that every registered loss must have; a new loss is tested without further code."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from conftest import Root
from robustmf.losses import Loss, Smoothed, loss_names, make_loss, smoothed

LOSSES = [make_loss(name) for name in loss_names()]
# away from the breakpoints of mcp, scad, huber and tukey, where difference quotients are wrong
GRID = np.array([1e-3, 0.01, 0.1, 0.37, 0.8, 0.93, 1.07, 1.5, 2.1, 3.3, 4.4, 5.0, 8.0, 30.0])


def each_loss(losses=LOSSES):
    return pytest.mark.parametrize("loss", losses, ids=lambda loss: loss.name)


def test_registry_is_what_the_documentation_lists():
    concave = ["l1", "lsp", "geman", "laplace", "mcp", "scad"]
    smooth = ["l2", "huber", "cauchy", "welsch", "tukey", "geman-mcclure"]
    assert sorted(loss_names()) == sorted(
        concave + smooth + [f"smoothed-{name}" for name in concave]
    )


@each_loss()
@pytest.mark.parametrize("theta", [2.5, 7.0])
def test_derivative_agrees_with_difference_quotients(loss, theta):
    loss = loss.at_scale(theta)
    h = 1e-6
    quotient = (loss.value(GRID + h) - loss.value(GRID - h)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(GRID), quotient, rtol=1e-6, atol=1e-9)


@each_loss()
def test_weight_is_derivative_over_residual_and_even(loss):
    np.testing.assert_allclose(loss.weight(GRID) * GRID, loss.derivative(GRID), rtol=1e-12)
    for method in (loss.value, loss.derivative, loss.weight):
        np.testing.assert_array_equal(method(-GRID), method(GRID))


@each_loss()
def test_is_zero_at_zero_and_increasing(loss):
    a = np.linspace(0, 50, 5001)
    assert loss.value(np.zeros(1))[0] == 0
    assert np.all(loss.derivative(a) >= 0)
    value = loss.value(a)
    increase = np.diff(loss.value(a.astype(np.longdouble)))
    unit = np.finfo(float).eps * np.maximum(1, value[1:])
    assert np.all(increase >= 0), "increasing in extended precision"
    # where φ increases by less than one unit in the last place, the rounding error of exp may
    # exceed the increase
    flat = increase <= unit
    assert np.all(np.diff(value)[~flat] > 0)
    assert np.all(np.diff(value)[flat] >= -unit[flat]), "at most one unit in the last place"


@each_loss()
def test_concave_if_and_only_if_declared(loss):
    a = np.linspace(0, 20, 20001)
    second_differences = np.diff(loss.value(a), 2)
    if loss.concave:
        assert second_differences.max() < 1e-12
        assert np.all(np.diff(loss.value(a)) > 0), "Assumption 1 of RMFNL: strictly increasing"
        assert loss.derivative(np.zeros(1))[0] > 0, "not smooth at 0"
    else:
        assert second_differences.max() > 1e-9, "a smooth loss is convex near 0"
        assert loss.derivative(np.zeros(1))[0] == 0


@each_loss()
def test_tangent_majorizes_a_concave_loss_and_parabola_every_loss(loss):
    for b in (0.05, 0.7, 2.2, 6.0):
        at = np.array([b])
        parabola = loss.value(at) + loss.weight(at) / 2 * (GRID**2 - b * b)
        assert np.all(parabola - loss.value(GRID) > -1e-12)
        if loss.concave:
            tangent = loss.value(at) + loss.derivative(at) * (GRID - b)
            assert np.all(tangent - loss.value(GRID) > -1e-12)


@each_loss()
def test_dtype_is_preserved_and_extremes_are_finite(loss, dtype):
    a = np.array([0, 1e-30, 1e-4, 1.0, 1e4, 1e18], dtype)
    for method in (loss.value, loss.derivative):
        out = method(a)
        assert out.dtype == dtype
        assert np.all(np.isfinite(out[:5]))
    assert loss.weight(a).dtype == dtype


@each_loss([loss for loss in LOSSES if loss.degree is not None])
def test_degree_is_that_of_homogeneity(loss):
    c = 3.0
    np.testing.assert_allclose(
        loss.at_scale(c * loss.theta).value(c * GRID), c**loss.degree * loss.value(GRID), rtol=1e-10
    )


@each_loss([loss for loss in LOSSES if loss.efficient_theta is not None])
def test_efficient_theta_gives_95_percent_efficiency(loss):
    tuned = loss.at_scale(loss.efficient_theta)

    def psi(x):
        return float(tuned.derivative(np.array([abs(x)]))[0]) * np.sign(x)

    # integration by parts: E psi' = E x psi for a standard Gaussian x
    mean_derivative = quad(
        lambda x: x * psi(x) * norm.pdf(x), -8, 8, limit=200, points=[-tuned.theta, tuned.theta]
    )[0]
    mean_square = quad(
        lambda x: psi(x) ** 2 * norm.pdf(x), -8, 8, limit=200, points=[-tuned.theta, tuned.theta]
    )[0]
    assert mean_derivative**2 / mean_square == pytest.approx(0.95, abs=2e-3)


@pytest.mark.parametrize("theta", [0, -1.0, np.nan, np.inf, 5e-324, 1e300])
@pytest.mark.parametrize("name", ["lsp", "welsch", "smoothed-geman"])
def test_bad_theta_is_refused_by_name_and_value(name, theta):
    with pytest.raises(ValueError, match=r"theta must be a finite number > 0.*got theta="):
        make_loss(name, theta)


def test_domains_of_scad_and_mcp():
    with pytest.raises(ValueError, match="theta must be a finite number > 2"):
        make_loss("scad", 2.0)
    with pytest.raises(ValueError, match="delta"):
        type(make_loss("mcp"))(delta=0.0)
    with pytest.raises(ValueError, match="smoothing"):
        Smoothed(smoothing=0.0)


def test_unknown_losses_are_refused():
    with pytest.raises(ValueError, match="loss must be one of l1, l2, lsp"):
        make_loss("lps")
    with pytest.raises(TypeError, match="got int"):
        make_loss(3)


def test_a_user_defined_loss_requires_two_formulas():
    loss = make_loss(Root(), 2.0)
    assert loss.theta == 2.0
    np.testing.assert_allclose(loss.weight(GRID), 0.5 / np.sqrt(GRID + 2) / GRID)
    with pytest.raises(NotImplementedError, match="must define _value"):
        Loss.value(type("Half", (Loss,), {"name": "half"})(), GRID)


@pytest.mark.parametrize("theta", [0.5, 1.0, 4.0])
def test_the_smoothing_width_is_in_the_unit_of_the_residuals(theta):
    loss = smoothed(make_loss("lsp", theta), 0.1)
    assert loss.epsilon == pytest.approx(0.1)
    assert loss.theta == theta
    assert smoothed(make_loss("huber"), 0.1) == make_loss("huber")
