"""AltGrad: l2 matrix factorization by gradient steps (the paper's "alternating gradient descent", citing PMF)."""

from __future__ import annotations

from collections.abc import Sequence
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
from robustmf.solvers.base import Callback, Solver, small_change

Array = NDArray[np.floating[Any]]

#: Standard deviation of a factor's entry at the start, where values have the size of products of N(0, 1) factors.
_START = {"alternating": 0.1, "joint": 0.001, "minibatch": 0.1}


class AltGrad(Baseline):
    """Least squares, ½ Σ e² + λ/2 (‖U‖² + ‖V‖²), by gradient steps.

    Parameters
    ----------
    reg : float, "auto" or "paper"
        λ. "paper" is 20/(m+n), which hardly regularises; "auto" is a share of the noise scale, chosen by validation.
    variant : {"alternating", "joint", "minibatch"}
        "alternating" moves U, then V, each by the exact step. "joint" moves both by one step length that adapts (AltMinLs; no
        ridge). "minibatch" is PMF for ratings: centred values, batches, momentum, predictions cropped to the range of the data; its
        λ counts once an entry, 0.01 by default.
    rank, max_iter, tol, random_state, n_jobs, callbacks
        See :class:`Baseline`. The first two stop when the objective falls by less than ``tol``, after 5·rank iterations at least;
        "minibatch" makes ``max_iter`` epochs.

    References
    ----------
    A. Mnih and R. Salakhutdinov, Probabilistic matrix factorization, NeurIPS 2008.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        reg: Reg = "auto",
        variant: str = "alternating",
        max_iter: int = 1000,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.reg, self.variant = rank, reg, variant
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        require_reg(self.reg)
        if self.variant not in _START:
            raise ValueError(
                f"variant must be one of {sorted(_START)}, got variant={self.variant!r}"
            )

    def _bounds(self, observed: Observed) -> tuple[float, float] | None:
        return value_range(observed) if self.variant == "minibatch" else None

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[Solver, Array, Array]:
        observed, rank = operations.observed, int(self.rank)
        size = _START[self.variant]
        if self.variant != "minibatch":
            size *= np.sqrt(
                np.sqrt(np.square(observed.rows.values, dtype=np.float64).mean() / rank)
            )
        U, V = (
            (size * rng.standard_normal((k, rank))).astype(observed.dtype) for k in observed.shape
        )
        if self.variant == "joint":
            return JointGradient(operations), U, V
        if self.variant == "minibatch":
            reg = 0.01 if isinstance(self.reg, str) else float(self.reg)
            return MinibatchGradient(operations, reg, rng, int(self.max_iter)), U, V
        return ExactDescent(operations, chosen_reg(self.reg, observed, rank, rng)), U, V


class ExactDescent(AlternatingDescent):
    """Plain steepest descent in turns."""

    def __init__(self, operations: CPUOperations, reg: float) -> None:
        super().__init__(operations, reg, scaled=False)

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The objective hardly falls, and not because it has only begun."""
        return (
            small_change(before, objective, tol)
            if self.iterations >= 5 * self.factors[0].shape[1]
            else None
        )

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}
