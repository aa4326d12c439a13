"""The Dask backend: fits and predictions on a cluster (extra ``dask``).

Importing this package does not import Dask.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, ClassVar

from robustmf.backends.base import Capabilities

__all__ = ["ShardedModel", "Triplets", "outlier_scores", "predict", "recommend", "require_dask"]

#: Public names and their modules, which are imported when a name is first used. Those in
#: ``robustmf.distributed`` use models, which are above the backends.
_MODULES = {
    "ShardedModel": "robustmf.distributed.answers",
    "Triplets": "robustmf.backends.dask.source",
    "predict": "robustmf.distributed.answers",
    "recommend": "robustmf.distributed.answers",
    "outlier_scores": "robustmf.distributed.answers",
}


def require_dask() -> None:
    """Raise an ImportError in one line if Dask is not installed."""
    missing = [name for name in ("dask", "distributed") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"a fit on a cluster needs {' and '.join(missing)}; "
            "install with: pip install 'robustmf[dask]'"
        )


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DaskBackend:
    """Blocks of entries on the workers of a Dask cluster.

    It offers :class:`robustmf.backends.base.Sweeps` (:mod:`robustmf.backends.dask.sweeps`) on data
    that :func:`robustmf.backends.dask.loading.load_matrix` distributes.
    """

    name: ClassVar[str] = "dask"
    capabilities: ClassVar[Capabilities] = Capabilities(
        entry_operations=False,
        host_arrays=False,
        several_initializations=False,
        nonnegative=False,
    )

    def check_available(self) -> None:
        """Raise an ImportError if Dask is not installed."""
        require_dask()
