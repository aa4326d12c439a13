"""One NVIDIA GPU: the operations of :mod:`robustmf.backends.cpu.operations` as Triton kernels, on arrays that NumPy's functions accept.

Needs the extra ``gpu``. Nothing here is imported before a fit asks for ``device="cuda"``.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from robustmf.exceptions import DeviceError

if TYPE_CHECKING:
    from robustmf.backends.cuda.observed import DeviceObserved
    from robustmf.backends.cuda.operations import CUDAOperations
    from robustmf.kernels.team import Team

__all__ = ["device_observed", "device_operations", "require_device"]


def require_device(device: Any) -> None:
    """Refuse, in one line, a device that is unknown or not there."""
    if device == "cpu":
        return
    if device != "cuda":
        raise ValueError(f"device must be 'cpu' or 'cuda', got device={device!r}")
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"device={device!r} needs {' and '.join(missing)}; install them with: pip install 'robustmf[gpu]'"
        )
    import torch  # noqa: PLC0415 - heavy, and only here

    if _interpreted():
        return
    if not torch.cuda.is_available():
        raise DeviceError(
            f"device={device!r} needs an NVIDIA GPU and its driver; PyTorch {torch.__version__} sees none. Use device='cpu'."
        )


def device_observed(X: Any) -> DeviceObserved:
    """What ``fit`` takes, on torch's current card."""
    import torch  # noqa: PLC0415

    from robustmf.backends.cuda.observed import as_device_observed  # noqa: PLC0415

    return as_device_observed(X, torch.device("cpu" if _interpreted() else "cuda"))


def device_operations(
    observed: DeviceObserved, team: Team, rank: int, solver: str
) -> CUDAOperations:
    """The operations on the card's entries, if the card has room for what a fit of this rank (a bias counted in) takes."""
    from robustmf.backends.cuda.memory import require_room  # noqa: PLC0415
    from robustmf.backends.cuda.memory_estimate import fit_bytes  # noqa: PLC0415
    from robustmf.backends.cuda.operations import CUDAOperations  # noqa: PLC0415

    if not CUDAOperations.capabilities.allows_rank(rank):
        raise ValueError(
            f"device='cuda' fits ranks up to {CUDAOperations.capabilities.max_rank}, a bias counted as one; got {rank}. Use device='cpu'."
        )
    needed = fit_bytes(observed.shape, observed.n_entries, rank, observed.dtype.itemsize, solver)
    require_room(needed, observed.device, f"rank {rank} with {observed.n_entries} entries")
    return CUDAOperations(observed, team)


def _interpreted() -> bool:
    """Triton's interpreter is on (TRITON_INTERPRET=1): kernels run on the host, for tests."""
    import triton  # noqa: PLC0415

    return bool(triton.knobs.runtime.interpret)
