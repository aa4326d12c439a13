"""The comparison systems under test, and small functions that several test files use."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone

from robustmf.baselines import GRASTA, OMDL, RMC, RMFMM, RP, AltGrad, AltImpute, ScaledASD
from robustmf.exceptions import NotConvergedWarning

FIXTURES = Path(__file__).parents[1] / "fixtures"
ALL = [
    AltGrad(3),
    AltGrad(3, variant="joint"),
    AltGrad(3, variant="minibatch", max_iter=5),
    RP(3),
    ScaledASD(3),
    AltImpute(3),
    OMDL(3),
    GRASTA(3),
    RMC(3),
    RMFMM(3, inner_max_iter=30),
    RMFMM(3, heuristic=True, inner_max_iter=30),
]
MONOTONE = [
    AltGrad(3),
    AltGrad(3, variant="joint"),
    RP(3),
    ScaledASD(3),
    AltImpute(3, final_svd=False),
    RMFMM(3, inner_max_iter=30),
]


def label(value):
    """Return the name of a method for the id of a test, "" for other parameters."""
    if not hasattr(value, "rank"):
        return ""
    options = [getattr(value, name, None) for name in ("variant", "heuristic")]
    return "-".join([type(value).__name__, *(str(option) for option in options if option)])


def fitted(method, X, **changes):
    """Fit a copy of the method with seed 0, ignoring that it may not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return clone(method).set_params(random_state=0).set_params(**changes).fit(X)


def product(model):
    """Return the predicted matrix."""
    return model.row_factors_ @ model.column_factors_.T


def relative_error(A, B):
    """Return ‖A − B‖/‖B‖."""
    return np.linalg.norm(A - B) / np.linalg.norm(B)
