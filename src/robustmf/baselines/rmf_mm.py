"""RMF-MM: robust matrix factorization with the l1 loss by MM, LADMPSAP inside (Lin, Xu & Zha 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import Reg, chosen_reg, require_reg
from robustmf.data.observed import Observed
from robustmf.initialization.initial_point import gaussian_start
from robustmf.losses import L1
from robustmf.solvers.base import Callback
from robustmf.solvers.mm import LADMPSAP
from robustmf.solvers.mm.ladmpsap import LADMPSAPRun, Splitting
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]

#: The heuristic's first share of the curvature, and how it grows when a step fails.
_FIRST_SHARE, _GROWTH = 0.004, 1.2


class RMFMM(Baseline):
    """Σ |e| + λ/2 (‖U‖² + ‖V‖²) by MM on dense arrays: memory m × n, and slow. The reference that the paper starts from.

    Parameters
    ----------
    heuristic : bool
        Begin with a small share of the surrogate's curvature, for larger steps; the share grows whenever a step fails.
    reg : float, "auto" or "paper"
        λ, by default the paper's 20/(m+n).
    inner_max_iter : int
        Iterations of LADMPSAP for each step. The paper's 300 end early from some starts; the authors' code has 5000.
    tol : float
        A step fails if it lowers the objective by less than this share; the second failure at full curvature ends the fit.
    init : None or (U, V)
        None is the Gaussian start.
    rank, max_iter, random_state, n_jobs, callbacks
        See :class:`Baseline`.

    References
    ----------
    Z. Lin, C. Xu and H. Zha, Robust matrix factorization by majorization minimization, TPAMI 2018.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        heuristic: bool = False,
        reg: Reg = "paper",
        inner_max_iter: int = 1000,
        init: tuple[Array, Array] | None = None,
        max_iter: int = 400,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.heuristic, self.reg, self.inner_max_iter, self.init = (
            rank,
            heuristic,
            reg,
            inner_max_iter,
            init,
        )
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        require_reg(self.reg)
        require_integer("inner_max_iter", self.inner_max_iter, 1)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[RMFMMSteps, Array, Array]:
        observed, rank = operations.observed, int(self.rank)
        objective = Objective(L1(), chosen_reg(self.reg, observed, rank, rng))
        start = self.init or gaussian_start(observed.shape, rank, rng, observed.dtype)
        U, V = (np.array(A, dtype=observed.dtype, order="C") for A in start)
        return (
            RMFMMSteps(
                operations,
                objective,
                int(self.inner_max_iter),
                float(self.tol),
                bool(self.heuristic),
            ),
            U,
            V,
        )


class RMFMMSteps:
    """MM steps with the authors' rule of acceptance. The splitting variables are kept from one step to the next."""

    def __init__(
        self,
        operations: CPUOperations,
        objective: Objective,
        inner_max_iter: int,
        tol: float,
        heuristic: bool,
    ) -> None:
        self._operations, self._objective, self._inner_max_iter, self._tol = (
            operations,
            objective,
            inner_max_iter,
            tol,
        )
        self._share = _FIRST_SHARE if heuristic else 1.0
        self._inner = LADMPSAP()
        self._state: Splitting | None = None
        self._failures, self._inner_iterations = 0, 0
        # the authors' safeguard for large problems: ten accepted steps before one may fail
        self._sure_steps = 10 if max(operations.observed.shape) > 800 else 0
        self._accepted = 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._factors

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        self._factors, self._residual = (U, V), self._operations.residuals(U, V)
        self._value = self._objective.value(self._residual, U, V)
        return self._value

    def step(self) -> float:
        """One step, kept if it lowers the objective enough; else the next one has more curvature."""
        U, V = self._factors
        surrogate = Surrogate(self._operations, self._objective, U, V, self._residual, self._share)
        run = LADMPSAPRun(self._inner, surrogate, self._state)
        for _ in range(self._inner_max_iter):
            self._inner_iterations += 1
            if run.step():
                break
        self._state = run.state
        new = (U + run.state.dU, V + run.state.dV)
        residual = self._operations.residuals(*new)
        value = self._objective.value(residual, *new)
        if self._value - value < self._tol * value and self._accepted >= self._sure_steps:
            self._failures += self._share == 1.0
            self._share = min(1.0, _GROWTH * self._share)
        else:
            self._accepted += 1
            self._factors, self._residual, self._value = new, residual, value
        return self._value

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """Two steps at full curvature failed."""
        return (
            f"two steps lowered the objective by less than tol={tol:g}"
            if self._failures == 2
            else None
        )

    def report(self) -> dict[str, float]:
        """Share of the curvature, inner iterations so far."""
        return {"share": self._share, "inner_iterations": self._inner_iterations}
