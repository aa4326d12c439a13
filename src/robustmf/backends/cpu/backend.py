"""The CPU backend."""

from __future__ import annotations

from typing import Any, ClassVar

from robustmf.backends.base import Capabilities, FitPlan, ProblemSize, SolverMemory
from robustmf.backends.cpu.memory import fit_bytes
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed, as_observed
from robustmf.kernels.team import Team


class CPUBackend:
    """Numba kernels on the cores of this machine; see :class:`robustmf.backends.base.Backend`."""

    name: ClassVar[str] = "cpu"
    capabilities: ClassVar[Capabilities] = CPUOperations.capabilities

    def check_available(self) -> None:
        """Do nothing: the CPU is always available."""

    def observe(self, X: Any) -> Observed:
        """The entries of what ``fit`` accepts."""
        return as_observed(X)

    def operations(
        self, observed: Observed, team: Team, rank: int, solver: SolverMemory
    ) -> CPUOperations:
        """Operations on these entries."""
        return CPUOperations(observed, team)

    def fit_bytes(self, size: ProblemSize, plan: FitPlan) -> int:
        """Bytes of host memory at the peak of a fit."""
        return fit_bytes(size, plan)
