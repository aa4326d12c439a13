"""AltImpute against R's softImpute, and its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from baselines.helpers import FIXTURES, product, relative_error
from robustmf.baselines import AltImpute
from robustmf.baselines.alt_impute import SoftImpute


@pytest.mark.parametrize("final", [0, 1])
@pytest.mark.parametrize("iterations", [1, 5, 2000])
def test_iterates_equal_those_of_softimpute(iterations, final, given, operations):
    """R's softImpute 1.4-3 with rank 3 and λ = 1, initialized with the SVD.

    The long run ends where the change is below rounding.
    """
    tol = 1e-16 if iterations == 2000 else 1e-300
    impute = SoftImpute(operations, 1.0, tol, iterations if final else None)
    impute.begin(given["svd_U"], given["svd_V"], given["svd_s"])
    for _ in range(iterations):
        value = impute.step()
        if impute.convergence_reason(0.0, 0.0, tol):
            break
    U, V = impute.factors
    assert (
        relative_error(
            U @ V.T, np.load(FIXTURES / "softimpute.npz")[f"Z_it{iterations}_final{final}"]
        )
        < 1e-10
    )
    if iterations == 2000:
        assert value == pytest.approx(612.6107, abs=5e-5)


def test_result_is_the_convex_optimum(operations):
    """λ = 4: the optimum has rank 16 and objective 945.4104.

    ‖E‖₂ ≤ λ certifies that no matrix of any rank has a lower objective.
    """
    model = AltImpute(40, reg=4.0, tol=1e-15, max_iter=5000, random_state=0).fit(
        operations.observed
    )
    Z = product(model)
    assert relative_error(Z, np.load(FIXTURES / "softimpute.npz")["Z_convex_lam4"]) < 1e-5
    assert (model.singular_values_ > 1e-6).sum() == 16
    rows = operations.observed.rows
    i = rows.group_of_entry()
    j = rows.indices
    e = rows.values - Z[i, j]
    assert 0.5 * np.sum(e**2) + 4 * model.singular_values_.sum() == pytest.approx(
        945.4104, abs=1e-3
    )
    E = sp.coo_array((e, (i, j)), Z.shape).toarray()
    assert np.linalg.norm(E, 2) <= 4 * (1 + 1e-5)
