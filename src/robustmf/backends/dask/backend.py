"""The Dask backend: what fits on a cluster offer. This module does not import Dask."""

from __future__ import annotations

from typing import ClassVar

from robustmf.backends.base import Capabilities
from robustmf.backends.dask import require_dask


class DaskBackend:
    """Blocks of entries on the workers of a Dask cluster.

    It offers :class:`robustmf.backends.base.Sweeps` (:mod:`robustmf.backends.dask.sweeps`) on data
    that :func:`robustmf.backends.dask.matrix.load_matrix` distributes.
    """

    name: ClassVar[str] = "dask"
    capabilities: ClassVar[Capabilities] = Capabilities(
        entry_operations=False,
        host_arrays=False,
        several_initializations=False,
    )

    def check_available(self) -> None:
        """Raise an ImportError if Dask is not installed."""
        require_dask()
