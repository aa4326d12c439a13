"""AltGrad: exact steps and the optimum that it shares with AltImpute."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.baselines import AltGrad, AltImpute
from robustmf.baselines.alt_grad import SteepestDescent


def test_optimum_equals_that_of_alt_impute(operations):
    """For λ at which the convex optimum has rank 3 or less both reach it, with balanced factors."""
    reg = 9.0
    grad = AltGrad(3, reg=reg, tol=1e-13, max_iter=5000, random_state=0).fit(operations.observed)
    impute = AltImpute(3, reg=reg, tol=1e-15, random_state=0).fit(operations.observed)
    assert grad.history_["objective"][-1] == pytest.approx(
        impute.history_["objective"][-1], rel=1e-8
    )
    U = grad.row_factors_
    V = grad.column_factors_
    np.testing.assert_allclose(U.T @ U, V.T @ V, atol=1e-4 * np.linalg.norm(U) ** 2)


def test_step_sizes_are_exact(given, operations):
    """After the update of V the objective is stationary along the direction of the update."""
    reg = 0.5
    descent = SteepestDescent(operations, reg)
    descent.begin(given["U0"], given["V0"])
    before = descent.factors[1]
    descent.step()
    U, V = descent.factors
    direction = V - before

    def value(t):
        e = operations.residuals(U, V + t * direction)
        return 0.5 * np.sum(e**2) + reg / 2 * np.sum((V + t * direction) ** 2)

    assert abs(value(1e-4) - value(-1e-4)) / 2e-4 < 1e-6 * value(0)
