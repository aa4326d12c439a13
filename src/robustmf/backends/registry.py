"""The backends by name: the only place that knows the values of the parameter ``device``."""

from __future__ import annotations

import importlib
from typing import Any, cast

from robustmf.backends.base import Backend, LocalBackend

#: Module and class of each backend; imported when first requested.
_BACKENDS = {
    "cpu": ("robustmf.backends.cpu.backend", "CPUBackend"),
    "cuda": ("robustmf.backends.cuda.backend", "CUDABackend"),
}


def device_names() -> list[str]:
    """The values of the parameter ``device``."""
    return list(_BACKENDS)


def get_backend(device: Any) -> LocalBackend:
    """Return the backend for the value of a parameter ``device``.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        The name.

    Raises
    ------
    ValueError
        If there is no backend of this name. Whether the machine can run it is checked by
        :meth:`~robustmf.backends.base.Backend.check_available`.
    """
    if not isinstance(device, str) or device not in _BACKENDS:
        names = " or ".join(map(repr, _BACKENDS))
        raise ValueError(f"device must be {names}, got device={device!r}")
    module, name = _BACKENDS[device]
    return cast("LocalBackend", getattr(importlib.import_module(module), name)())


def get_cluster_backend(device: Any = "cpu") -> Backend:
    """Return the backend of fits with ``client=``, a Dask client.

    Parameters
    ----------
    device : {"cpu"}, default="cpu"
        Where the workers compute.
    """
    from robustmf.backends.dask import DaskBackend  # noqa: PLC0415 - as the others

    if get_backend(device).name != "cpu":
        raise ValueError(f"device must be 'cpu' with client=, got device={device!r}")
    return DaskBackend()
