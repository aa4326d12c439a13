"""Vectorizable elementary functions."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.kernels import elementary


@pytest.mark.parametrize(
    ("kind", "most", "error"), [(np.float32, 80.0, 2.5e-7), (np.float64, 700.0, 5e-16)]
)
@pytest.mark.parametrize("name", ["exp", "expm1", "log1p"])
def test_elementary_functions(name, kind, most, error):
    """Against NumPy in extended precision: near 0, and at special values."""
    function = getattr(
        elementary, name + ("" if name == "exp" else "_") + ("32" if kind is np.float32 else "64")
    )
    sizes = np.concatenate((np.linspace(0, most, 20001), np.geomspace(1e-30, most, 2000))).astype(
        kind
    )
    x = np.concatenate((sizes, sizes[sizes < 1] * kind(-0.999) if name == "log1p" else -sizes))
    got = np.array([function(v) for v in x], np.longdouble)
    np.testing.assert_allclose(
        got, getattr(np, name)(x.astype(np.longdouble)), rtol=error, atol=np.finfo(kind).tiny
    )
    with np.errstate(all="ignore"):
        for edge in (np.inf, -np.inf, np.nan, -1.0, -2.0, 1e30):
            np.testing.assert_allclose(
                function(kind(edge)), getattr(np, name)(kind(edge)), rtol=error
            )
