"""Matrix factorization that survives bad data.

The names below are imported when first used, so that ``import robustmf`` itself costs nothing.
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustmf.data.observed import Observed
    from robustmf.estimator import RMFNL, RobustMF
    from robustmf.persistence import load

__all__ = ["RMFNL", "Observed", "RobustMF", "load"]
__version__ = version("robustmf")

_HOME = {
    "RobustMF": "robustmf.estimator",
    "RMFNL": "robustmf.estimator",
    "Observed": "robustmf.data.observed",
    "load": "robustmf.persistence",
}


# what a library has to say goes where the program that uses it says, and nowhere by itself
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'robustmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
