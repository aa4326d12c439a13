"""What each solver keeps in memory beside the entries and the factors."""

from __future__ import annotations

from robustmf.backends.base import ProblemSize, SolverMemory

#: Points of variable projection that are alive at once.
_PROJECTION_POINTS = 4

#: Further float64 arrays over the entries in variable projection.
_PROJECTION_ARRAYS = 8


def _projection_bytes(size: ProblemSize) -> int:
    """Bytes of variable projection, which works in float64 and forms a dense normal matrix."""
    long = max(size.shape)
    short = min(size.shape)
    point = size.n_entries * (size.rank + 2) + long * size.rank
    normal = 3 * (short * size.rank) ** 2
    return 8 * (_PROJECTION_POINTS * point + _PROJECTION_ARRAYS * size.n_entries + normal)


IRLS_MEMORY = SolverMemory()

VARPRO_MEMORY = SolverMemory(other_bytes=_projection_bytes)

#: Residuals, weights, four arrays of the dual and two for the criticality measure; the loss is
#: evaluated in float64.
MM_MEMORY = SolverMemory(entry_arrays=8, float64_entry_arrays=3, factor_arrays=12, dual_pass=True)

_MEMORY = {"irls": IRLS_MEMORY, "varpro": VARPRO_MEMORY, "mm": MM_MEMORY}


def solver_memory(solver: str) -> SolverMemory:
    """The declaration of the named solver; that of ``irls`` while the choice is open."""
    return _MEMORY.get(solver, IRLS_MEMORY)
