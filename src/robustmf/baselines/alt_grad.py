"""AltGrad: least-squares matrix factorization by gradient steps (PMF)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.alternating_descent import AlternatingDescent
from robustmf.baselines.interface import Baseline, value_range
from robustmf.baselines.joint_gradient import JointGradient
from robustmf.baselines.minibatch import MinibatchGradient
from robustmf.baselines.spectral import Reg, chosen_reg, require_reg
from robustmf.data.observed import Observed
from robustmf.solvers.base import Solver, small_change

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class AltGradOptions:
    """Constants of the variants.

    Attributes
    ----------
    initial_scale : mapping of str to float
        Standard deviation of the entries of the initial factors, per variant, where values have the
        scale of products of N(0, 1) factors. "joint": AltMinLs; "minibatch": the authors' pmf.m.
    minibatch_reg : float
        λ of "minibatch" unless given as a number, from the authors' pmf.m.
    """

    initial_scale: Mapping[str, float] = field(
        default_factory=lambda: {"alternating": 0.1, "joint": 0.001, "minibatch": 0.1}
    )
    minibatch_reg: float = 0.01


OPTIONS = AltGradOptions()


@dataclass(eq=False, repr=False)
class AltGrad(Baseline):
    """Least squares, ½ Σ e² + λ/2 (‖U‖² + ‖V‖²), by gradient steps.

    Parameters
    ----------
    rank : int, default=10
        Number of factors.
    reg : float, "auto" or "paper", default="auto"
        λ. "auto" is a fraction of the noise scale, chosen by validation; "paper" is 20/(m+n), a
        weak regularization.
    variant : {"alternating", "joint", "minibatch"}, default="alternating"
        "alternating" updates U, then V, each with the exact step size. "joint" updates both with
        one adaptive step size (AltMinLs; no regularization). "minibatch" is PMF for ratings:
        centered values, mini-batches, momentum, predictions clipped to the range of the data; its
        λ is applied per entry and is 0.01 unless given as a number.
    max_iter : int, default=1000
        Maximum number of iterations; for "minibatch", the number of epochs.
    tol : float, default=1e-4
        Stop when the relative decrease of the objective is at most ``tol``, after 5·rank
        iterations at the earliest. Not used by "minibatch".
    random_state : int, Generator or None, default=None
        Seed of the Gaussian initialization and of the order of the mini-batches.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    A. Mnih and R. Salakhutdinov, Probabilistic matrix factorization, NeurIPS 2008.
    """

    reg: Reg = "auto"
    variant: str = "alternating"
    max_iter: int = 1000
    tol: float = 1e-4

    def _check_parameters(self) -> None:
        require_reg(self.reg)
        if self.variant not in OPTIONS.initial_scale:
            variants = sorted(OPTIONS.initial_scale)
            raise ValueError(f"variant must be one of {variants}, got variant={self.variant!r}")

    def _bounds(self, observed: Observed) -> tuple[float, float] | None:
        return value_range(observed) if self.variant == "minibatch" else None

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[Solver, Array, Array]:
        observed = operations.observed
        rank = int(self.rank)
        scale = OPTIONS.initial_scale[self.variant]
        if self.variant != "minibatch":
            mean_square = np.square(observed.rows.values, dtype=np.float64).mean()
            scale *= np.sqrt(np.sqrt(mean_square / rank))
        U, V = (
            (scale * rng.standard_normal((k, rank))).astype(observed.dtype) for k in observed.shape
        )
        if self.variant == "joint":
            return JointGradient(operations), U, V
        if self.variant == "minibatch":
            reg = OPTIONS.minibatch_reg if isinstance(self.reg, str) else float(self.reg)
            return MinibatchGradient(operations, reg, rng, int(self.max_iter)), U, V
        return SteepestDescent(operations, chosen_reg(self.reg, observed, rank, rng)), U, V


class SteepestDescent:
    """Alternating steepest descent that stops when the objective hardly decreases."""

    def __init__(self, operations: CPUOperations, reg: float) -> None:
        self._descent = AlternatingDescent(operations, reg, scaled=False)

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._descent.factors

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point and return the objective there."""
        return self._descent.begin(U, V)

    def step(self) -> float:
        """Update U, then V, and return the objective."""
        return self._descent.step()

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test the relative decrease; the first 5·rank iterations may be slow and do not count."""
        if self._descent.iterations < 5 * self.factors[0].shape[1]:
            return None
        return small_change(before, objective, tol)

    def report(self) -> dict[str, float]:
        """Return nothing in addition to the objective."""
        return {}
