"""ScaledASD against its authors' code."""

from __future__ import annotations

import numpy as np

from baselines.helpers import relative_error
from robustmf.baselines.scaled_asd import ScaledDescent


def test_iterates_equal_those_of_the_authors_code(given, octave, operations):
    descent = ScaledDescent(operations, 1e-4)
    descent.begin(given["U0"], given["V0"])
    norms = [descent.report()["relative_residual"]]
    for k in range(1, 21):
        descent.step()
        norms.append(descent.report()["relative_residual"])
        if k in (1, 20):
            assert relative_error(descent.factors[0], octave[f"asd_X{k}"]) < 1e-12
            assert relative_error(descent.factors[1], octave[f"asd_Y{k}"].T) < 1e-12
    np.testing.assert_allclose(norms, octave["asd_relres"], rtol=1e-12)
