"""Fold-in of new rows: units of biases, and the noise of a row with outliers."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import Observed, RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.factorization import Factorization
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.kernels.team import Team
from robustmf.losses import Welsch
from robustmf.solvers.fold_in import Columns, extend


@pytest.mark.parametrize("unit", [1.0, 100.0])
def test_biases_of_new_rows_are_in_the_unit_of_the_data(unit):
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(60, 1)) + rng.normal(size=30)
    X += rng.normal(size=(60, 1)) @ rng.normal(size=(1, 30)) + 0.1 * rng.normal(size=X.shape)
    model = RobustMF(1, bias=True, random_state=0).fit(unit * X[:50])
    assert model.model_.bias_unit != 1
    folded = model.transform(unit * X[:50])
    np.testing.assert_allclose(folded[:, -1], model.row_bias_, atol=0.05 * unit)
    predicted = model.inverse_transform(model.transform(unit * X[50:]))
    assert np.abs(predicted - unit * X[50:]).mean() < 0.15 * unit


def test_the_noise_of_a_new_row_is_that_without_its_outliers():
    """Residuals of l1 regression: as many zeros as factors, clean ones, a third of outliers."""
    clean = np.linspace(0.1, 2.0, 20)
    residual = np.concatenate([[0.0], clean, np.full(10, 100.0)])
    columns = Columns(
        V=np.ones((31, 1)),
        loss=Welsch(1.0),
        reg=1.0,
        reg_by_count=False,
        shifts=None,
        typical=1.0,
        bias_unit=1.0,
        scales=np.ones(31),
        row_noise=(1.0, 1e6),
    )
    observed = Observed.from_dense(np.ones((1, 31)))
    (scale,) = columns._estimated_scales(observed, residual, None)
    assert scale == pytest.approx(MAD_TO_SIGMA * np.median(clean), rel=1e-6)


def test_new_rows_are_extended_with_their_own_weights():
    columns = Columns(
        V=np.ones((4, 1)),
        loss=Welsch(1e3),
        reg=1e-6,
        reg_by_count=False,
        shifts=None,
        typical=1.0,
        bias_unit=1.0,
    )
    known = Factorization.without_biases(np.full((1, 1), 2.0), np.ones((4, 1)))
    observed = Observed.from_dense([[2.0, 2.0, 2.0, 2.0], [1.0, 9.0, 1.0, 1.0]])
    weights = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e-9, 1.0, 1.0])
    weights[:4] = weights[4:][::-1]
    with Team(1) as team:
        larger = extend(CPUOperations(observed, team), weights, columns, known)
    np.testing.assert_allclose(larger.row_factors[:, 0], [2.0, 1.0], atol=1e-3)
