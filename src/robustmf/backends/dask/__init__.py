"""Past one machine: the same model on a Dask cluster (extra ``dask``).

Nothing here imports Dask before a fit asks for it.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustmf.backends.dask.answers import outlier_scores, predict, recommend
    from robustmf.backends.dask.sharded import ShardedModel
    from robustmf.backends.dask.source import Triplets

__all__ = ["ShardedModel", "Triplets", "outlier_scores", "predict", "recommend", "require_dask"]

_HOME = {
    "ShardedModel": "sharded",
    "Triplets": "source",
    "predict": "answers",
    "recommend": "answers",
    "outlier_scores": "answers",
}


def require_dask() -> None:
    """Refuse, in one line, where Dask is not installed."""
    missing = [name for name in ("dask", "distributed") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"a fit on a cluster needs {' and '.join(missing)}; install them with: pip install 'robustmf[dask]'"
        )


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"robustmf.backends.dask.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
