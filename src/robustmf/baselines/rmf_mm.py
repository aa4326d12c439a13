"""RMF-MM: l1 matrix factorization by majorization-minimization (Lin, Xu & Zha 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import Reg, chosen_reg, require_reg
from robustmf.initialization.initial_point import gaussian_factors
from robustmf.losses import L1
from robustmf.solvers.mm import LADMPSAP
from robustmf.solvers.mm.ladmpsap import LADMPSAPRun, Splitting
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RMFMMOptions:
    """Constants of the authors' code."""

    #: Initial fraction of the surrogate's curvature with the heuristic.
    initial_fraction: float = 0.004
    #: Factor by which the fraction grows when a step fails.
    fraction_growth: float = 1.2
    #: Number of failed steps at full curvature after which the iteration stops.
    max_failures: int = 2
    #: Problems with more rows or columns than this accept their first steps unconditionally.
    large_size: int = 800
    #: Number of these steps.
    unconditional_steps: int = 10


_OPTIONS = RMFMMOptions()


@dataclass(eq=False, repr=False)
class RMFMM(Baseline):
    """Σ |e| + λ/2 (‖U‖² + ‖V‖²) by majorization-minimization, with LADMPSAP for the surrogate.

    This is the method on which the paper builds. It works on dense m × n arrays and is slow.

    Parameters
    ----------
    rank : int, default=10
        Number of factors.
    heuristic : bool, default=False
        Whether to begin with a small fraction of the surrogate's curvature, which allows larger
        steps; the fraction grows whenever a step fails.
    reg : float, "auto" or "paper", default="paper"
        λ. "paper" is 20/(m+n); "auto" is a fraction of the noise scale, chosen by validation.
    inner_max_iter : int, default=1000
        Maximum number of LADMPSAP iterations per step. The paper has 300, which stops early from
        some initial points; the authors' code has 5000.
    init : None or (U, V), default=None
        Initial factors; None draws them from N(0, 1).
    max_iter : int, default=400
        Maximum number of steps.
    tol : float, default=1e-4
        A step fails if it decreases the objective by less than this fraction; the second failure
        at full curvature stops the iteration.
    random_state : int, Generator or None, default=None
        Seed of the initialization.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    Z. Lin, C. Xu and H. Zha, Robust matrix factorization by majorization minimization,
    IEEE Trans. Pattern Anal. Mach. Intell. 2018.
    """

    heuristic: bool = False
    reg: Reg = "paper"
    inner_max_iter: int = 1000
    init: tuple[Array, Array] | None = None
    max_iter: int = 400
    tol: float = 1e-4

    def _check_parameters(self) -> None:
        require_reg(self.reg)
        require_integer("inner_max_iter", self.inner_max_iter, 1)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[MMSteps, Array, Array]:
        observed = operations.observed
        rank = int(self.rank)
        objective = Objective(L1(), chosen_reg(self.reg, observed, rank, rng))
        initial = self.init or gaussian_factors(observed.shape, rank, rng, observed.dtype)
        U, V = (np.array(A, dtype=observed.dtype, order="C") for A in initial)
        steps = MMSteps(
            operations,
            objective,
            inner_max_iter=int(self.inner_max_iter),
            tol=float(self.tol),
            heuristic=bool(self.heuristic),
        )
        return steps, U, V


class MMSteps:
    """MM steps with the authors' acceptance rule.

    The splitting variables of LADMPSAP are kept from one step to the next.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    objective : Objective
        The l1 loss with λ.
    inner_max_iter : int
        Maximum number of LADMPSAP iterations per step.
    tol : float
        Relative decrease below which a step fails.
    heuristic : bool
        Whether to begin with a small fraction of the surrogate's curvature.
    """

    def __init__(
        self,
        operations: CPUOperations,
        objective: Objective,
        inner_max_iter: int,
        tol: float,
        heuristic: bool,
    ) -> None:
        self._operations = operations
        self._objective = objective
        self._inner_max_iter = inner_max_iter
        self._tol = tol
        self._fraction = _OPTIONS.initial_fraction if heuristic else 1.0
        self._inner = LADMPSAP()
        self._state: Splitting | None = None
        self._failures = 0
        self._inner_iterations = 0
        is_large = max(operations.observed.shape) > _OPTIONS.large_size
        self._unconditional_steps = _OPTIONS.unconditional_steps if is_large else 0
        self._accepted = 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._factors

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point and return the objective there."""
        self._factors = (U, V)
        self._residual = self._operations.residuals(U, V)
        self._value = self._objective.value(self._residual, U, V)
        return self._value

    def step(self) -> float:
        """Take a step if it decreases the objective enough; otherwise increase the curvature."""
        U, V = self._factors
        surrogate = Surrogate(
            self._operations, self._objective, U, V, self._residual, self._fraction
        )
        run = LADMPSAPRun(self._inner, surrogate, self._state)
        for _ in range(self._inner_max_iter):
            self._inner_iterations += 1
            if run.step():
                break
        self._state = run.state
        new = (U + run.state.dU, V + run.state.dV)
        residual = self._operations.residuals(*new)
        value = self._objective.value(residual, *new)
        failed = self._value - value < self._tol * value
        if failed and self._accepted >= self._unconditional_steps:
            self._failures += self._fraction == 1.0
            self._fraction = min(1.0, _OPTIONS.fraction_growth * self._fraction)
        else:
            self._accepted += 1
            self._factors = new
            self._residual = residual
            self._value = value
        return self._value

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test whether two steps at full curvature failed."""
        if self._failures == _OPTIONS.max_failures:
            return f"two steps lowered the objective by less than tol={tol:g}"
        return None

    def report(self) -> dict[str, float]:
        """Return the fraction of the curvature and the number of inner iterations."""
        return {"curvature_fraction": self._fraction, "inner_iterations": self._inner_iterations}
