"""``varpro``: variable projection for few rows (or few columns) and any pattern of entries.

V is eliminated, and Levenberg–Marquardt runs on U alone, with the loss's weights updated before
each step. Where alternation stalls, as with banded patterns, this converges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations, ProblemSize, SolverMemory
from robustmf.solvers.base import require_same_layout, small_change
from robustmf.solvers.objective import Objective
from robustmf.solvers.projection import Entries, LevenbergMarquardt, Point, Projected, balanced

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class VarProOptions:
    """Constants of the solver.

    Attributes
    ----------
    smoothing : float
        The smoothing width of a nonsmooth loss, in units of the noise level σ̂ at the initial
        point.
    damping : float
        The initial damping of Levenberg–Marquardt.
    points_in_memory : int
        Points that are alive at once, for the estimate of memory.
    arrays_in_memory : int
        Further float64 arrays over the entries.
    """

    smoothing: float = 0.01
    damping: float = 1e-3
    points_in_memory: int = 4
    arrays_in_memory: int = 8


OPTIONS = VarProOptions()


def _projection_bytes(size: ProblemSize) -> int:
    """Bytes of variable projection, which works in float64 and forms a dense normal matrix."""
    long = max(size.shape)
    short = min(size.shape)
    point = size.n_entries * (size.rank + 2) + long * size.rank
    normal = 3 * (short * size.rank) ** 2
    points = OPTIONS.points_in_memory * point
    arrays = OPTIONS.arrays_in_memory * size.n_entries
    return 8 * (points + arrays + normal)


VARPRO_MEMORY = SolverMemory(other_bytes=_projection_bytes)


def oriented(operations: EntryOperations) -> tuple[EntryOperations, bool]:
    """The operations with the short side as rows, and whether rows and columns were exchanged."""
    m, n = operations.observed.shape
    return (operations, False) if m <= n else (operations.transposed, True)


class VarPro:
    """Variable projection: each step is one Levenberg–Marquardt step on the short side.

    Parameters
    ----------
    operations : EntryOperations
        Of a backend with host arrays.
    objective : Objective
        Its loss must be smooth.
    """

    def __init__(self, operations: EntryOperations, objective: Objective) -> None:
        self._operations, self._swapped = oriented(operations)
        self._problem = Projected(
            Entries(self._operations.observed, operations.team),
            objective.loss,
            objective.reg,
            objective.reg,
        )
        self._dtype = operations.observed.dtype

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Converged when the objective hardly changes."""
        return small_change(before, objective, tol)

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V) of the matrix as given."""
        point = self._steps.point
        U = point.U.astype(self._dtype)
        V = point.V.astype(self._dtype)
        return (V, U) if self._swapped else (U, V)

    @property
    def augmented_factors(self) -> tuple[Array, Array]:
        """(U, V): the model has no biases."""
        return self.factors

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        P, Q = (V, U) if self._swapped else (U, V)
        P, Q = balanced(P.astype(np.float64), Q.astype(np.float64))
        at = self._problem.at(P)
        entries = self._problem.entries
        i = entries.columns.indices
        j = entries.columns.group_of_entry()
        residual = entries.values - np.einsum("tq,tq->t", P[i], Q[j])
        self._steps = LevenbergMarquardt(
            self._problem, Point(P, Q, residual, at.Q, at.w), damping=OPTIONS.damping
        )
        return self._steps.value

    def state(self) -> dict[str, Any]:
        """The point (without weights and bases, which each step computes), value and damping."""
        point = self._steps.point
        return {
            "U": point.U,
            "V": point.V,
            "e": point.e,
            "value": self._steps.value,
            "damping": self._steps.damping,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        point = self._steps.point
        saved = (state["U"], state["V"], state["e"])
        U, V, e = require_same_layout(saved, (point.U, point.V, point.e))
        self._steps.point = replace(point, U=U, V=V, e=e)
        self._steps.value = state["value"]
        self._steps.damping = state["damping"]

    def step(self) -> float:
        """One Levenberg–Marquardt step."""
        self._steps.step()
        return self._steps.value

    def report(self) -> dict[str, float]:
        """The damping."""
        return {"damping": self._steps.damping}
