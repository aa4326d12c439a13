"""GRASTA against its authors' code."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import relative_error
from robustmf.baselines.grasta import SubspaceTracking
from robustmf.kernels.subspace import l1_weights


@pytest.mark.parametrize("steps", [1, 5, 20, 60])
def test_l1_coefficients_equal_those_of_the_authors_code(steps, given, octave, operations):
    columns = operations.observed.columns
    column = slice(columns.pointers[6], columns.pointers[7])
    w = np.zeros(3)
    s = np.zeros(columns.counts[6])
    y = np.zeros(columns.counts[6])
    l1_weights(
        columns.indices[column],
        columns.values[column],
        given["G0"],
        2.0,
        1e-8,
        steps,
        np.zeros((3, 3)),
        w,
        s,
        y,
    )
    for name, value in (("w", w), ("s", s), ("y", y)):
        np.testing.assert_allclose(value, octave[f"srp_{name}{steps}"], rtol=1e-12, atol=1e-13)
    assert np.abs(y).max() <= 1 + 1e-8


def test_subspaces_equal_those_of_the_authors_code(given, octave, operations):
    tracking = SubspaceTracking(
        operations, np.random.default_rng(0), 10, 20, 1e-8, transposed=False
    )
    tracking.begin(given["G0"], np.zeros((45, 3)))
    levels = []
    for k in range(450):
        tracking.visit(np.array([k % 45]))
        levels += [*tracking.levels]
        for after, name, tol in ((1, "1", 1e-12), (45, "1pass", 1e-8), (450, "10", 1e-4)):
            if k + 1 == after:
                assert relative_error(tracking.factors[0], octave[f"grasta_U_after{name}"]) < tol
    np.testing.assert_array_equal(levels, octave["grasta_level"])
    U = tracking.factors[0]
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-13)
