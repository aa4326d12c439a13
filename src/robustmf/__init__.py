"""Robust matrix factorization: predict from data with gross outliers, and find the outliers.

The names below are imported when first used, so that ``import robustmf`` itself is fast.
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustmf.data.observed import Observed
    from robustmf.estimator import RMFNL, RobustMF, load
    from robustmf.selection import RobustMFCV
    from robustmf.solvers.mm.options import MM

__all__ = ["MM", "RMFNL", "Observed", "RobustMF", "RobustMFCV", "load"]
__version__ = version("robustmf")

_MODULE_OF = {
    "MM": "robustmf.solvers.mm.options",
    "Observed": "robustmf.data.observed",
    "RMFNL": "robustmf.estimator",
    "RobustMF": "robustmf.estimator",
    "RobustMFCV": "robustmf.selection",
    "load": "robustmf.estimator",
}

_SUBMODULES = (
    "baselines",
    "datasets",
    "intervals",
    "io",
    "losses",
    "metrics",
    "plot",
    "selection",
)

# A library does not configure logging: records go where the application sends them.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _SUBMODULES:
        return import_module(f"robustmf.{name}")
    raise AttributeError(f"module 'robustmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES, "__version__"]
