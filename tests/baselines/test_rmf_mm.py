"""RMF-MM against its authors' code and against the MM solver of the library."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import product, relative_error
from robustmf import MM, RobustMF
from robustmf.baselines import RMFMM
from robustmf.exceptions import NotConvergedWarning


@pytest.mark.parametrize(
    ("name", "heuristic", "inner"), [("rmfmm", False, 300), ("rmfmmh", True, 1000)]
)
def test_result_equals_that_of_the_authors_code(name, heuristic, inner, given, octave, operations):
    model = RMFMM(
        3, heuristic=heuristic, init=(given["U0"], given["V0"]), inner_max_iter=inner
    ).fit(operations.observed)
    assert model.history_["objective"][-1] == pytest.approx(float(octave[f"{name}_obj"]), rel=1e-12)
    assert relative_error(product(model), octave[f"{name}_X"]) < 1e-10
    if not heuristic:
        assert [model.n_iter_, model.history_["inner_iterations"][-1]] == list(
            octave["rmfmm_count"]
        )


def test_steps_equal_those_of_the_mm_solver_with_ladmpsap(given, operations):
    """With converged inner solves the accepted points are equal.

    RMF-MM rejects its last steps, which decrease the objective too little.
    """
    initial = (given["U0"], given["V0"])
    ours = (
        RMFMM(3, init=initial, inner_max_iter=5000).fit(operations.observed).history_["objective"]
    )
    accepted = [a for a, b in zip(ours, [np.inf, *ours], strict=False) if a < b]
    mm = RobustMF(
        3,
        solver=MM(inner="ladmpsap", max_iter=5000),
        loss="l1",
        init=initial,
        reg=20 / 105,
        tol=1e-12,
        max_iter=len(accepted) - 1,
    )
    with pytest.warns(NotConvergedWarning):
        theirs = mm.fit(operations.observed).history_["objective"]
    np.testing.assert_allclose(accepted, theirs, rtol=1e-11)
