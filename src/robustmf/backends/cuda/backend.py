"""The CUDA backend. This module does not import torch before the GPU is used."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, ClassVar, cast

from robustmf.backends.base import Capabilities, FitPlan, ProblemSize, SolverMemory
from robustmf.backends.cuda.memory_estimate import entry_bytes, fit_bytes
from robustmf.data.observed import Observed
from robustmf.exceptions import DeviceError

if TYPE_CHECKING:
    from robustmf.backends.cuda.observed import DeviceObserved
    from robustmf.backends.cuda.operations import CUDAOperations
    from robustmf.kernels.team import Team


class CUDABackend:
    """Triton kernels on torch's current GPU; see :class:`robustmf.backends.base.Backend`."""

    name: ClassVar[str] = "cuda"
    capabilities: ClassVar[Capabilities] = Capabilities(
        host_arrays=False,
        float32_sweeps=False,
        max_rank=128,  # the normal matrix is one tile
    )

    def check_available(self) -> None:
        """Raise an ImportError without torch and Triton, and a DeviceError without a GPU."""
        missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
        if missing:
            raise ImportError(
                f"device='cuda' needs {' and '.join(missing)}; "
                "install them with: pip install 'robustmf[gpu]'"
            )
        import torch  # noqa: PLC0415 - takes seconds

        if not _is_interpreted() and not torch.cuda.is_available():
            raise DeviceError(
                f"device='cuda' needs an NVIDIA GPU and its driver; "
                f"PyTorch {torch.__version__} sees none. Use device='cpu'."
            )

    def observe(self, X: Any) -> DeviceObserved:
        """The entries of what ``fit`` accepts, on torch's current GPU."""
        self.check_available()
        import torch  # noqa: PLC0415 - takes seconds

        from robustmf.backends.cuda.observed import as_device_observed  # noqa: PLC0415

        return as_device_observed(X, torch.device("cpu" if _is_interpreted() else "cuda"))

    def operations(
        self, observed: Observed, team: Team, rank: int, solver: SolverMemory
    ) -> CUDAOperations:
        """Operations on these entries, if the GPU has enough memory for a fit of this rank."""
        if not self.capabilities.allows_rank(rank):
            raise ValueError(
                f"device='cuda' fits ranks up to {self.capabilities.max_rank}, "
                f"a bias counted as one; got {rank}. Use device='cpu'."
            )
        from robustmf.backends.cuda.memory import check_memory  # noqa: PLC0415
        from robustmf.backends.cuda.operations import CUDAOperations  # noqa: PLC0415

        placed = cast("DeviceObserved", observed)
        size = ProblemSize(placed.shape, placed.n_entries, rank, placed.dtype.itemsize)
        description = f"rank {rank} with {placed.n_entries} entries"
        check_memory(fit_bytes(size, solver), placed.device, description)
        return CUDAOperations(placed, team)

    def fit_bytes(self, size: ProblemSize, plan: FitPlan) -> int:
        """Bytes of GPU memory at the larger of two peaks: sorting the entries, and the fit."""
        return max(entry_bytes(size.n_entries, size.itemsize), fit_bytes(size, plan.solver))


def _is_interpreted() -> bool:
    """Whether Triton's interpreter (TRITON_INTERPRET=1) runs the kernels on the host, for tests."""
    import triton  # noqa: PLC0415 - takes seconds

    return bool(triton.knobs.runtime.interpret)
