"""``irls``: reweighted least squares, the workhorse for large sparse data.

At the present residuals each loss lies below a parabola of weight φ'(a)/a. Minimising these parabolas over the rows, then over the
columns, are small independent ridge regressions; the objective never rises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.losses import rounded
from robustmf.objective import Objective
from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]


#: The tip of a kinked loss is rounded to this half-width at first, in units of σ̂; each sweep narrows it by the factor, down to the
#: last. Alternation at once with a narrow tip would stall: weights at the kink lock rows and columns to each other.
_FIRST_TIP, _NARROWING, _LAST_TIP = 0.3, 0.85, 1e-3


class IRLS:
    """One step is one sweep: all rows, then all columns.

    Parameters
    ----------
    objective : Objective
        H. For a kinked loss the objective reported is that with φ(√(a² + ε²)), which lies above H and falls to it with ε.
    sigma : float
        Noise level at the start, the unit of ε.
    center : float or None
        With a number the model is center + b_i + c_j + u_i·v_j; None has no biases.
    sample_weights : array over the entries, optional
        What each entry's loss is multiplied by.
    reg_by_count : bool
        λ is multiplied by the number of entries of the row or column.
    """

    def __init__(
        self,
        operations: Operations,
        objective: Objective,
        sigma: float,
        center: float | None = None,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
    ) -> None:
        self._objective, self._center = objective, center
        self._tip, self._last_tip = _FIRST_TIP * sigma, _LAST_TIP * sigma
        self._loss = rounded(objective.loss, self._tip)
        self._sides = (operations, operations.transposed)
        order = None if sample_weights is None else operations.observed.column_order
        self._sample = (sample_weights, None if sample_weights is None else sample_weights[order])
        self._reg: tuple[float | Array, float | Array] = (objective.reg, objective.reg)
        if reg_by_count:
            self._reg = tuple(objective.reg * side.observed.rows.counts.astype(side.observed.dtype) for side in self._sides)  # type: ignore[assignment]

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V); with biases, their last column is the bias of the row and of the column."""
        self._own = (self._sides[0].array(U), self._sides[0].array(V))
        return self._value()

    @property
    def settling(self) -> bool:
        """The tip of a kinked loss is as narrow as it gets."""
        return not self._objective.loss.concave or self._tip <= self._last_tip

    def step(self) -> float:
        """One sweep, with the tip a little narrower than in the last."""
        self._tip = max(_NARROWING * self._tip, self._last_tip)
        self._loss = rounded(self._objective.loss, self._tip)
        for side, operations in enumerate(self._sides):
            own, other = self._own[side], self._own[1 - side]
            design, shifts = self._design(other)
            operations.half_step(self._loss, self._reg[side], own, design, self._sample[side], shifts)
        return self._value()

    def _design(self, other: Array) -> tuple[Array, Array | None]:
        """What the other side offers to regress on, and what it already explains by itself."""
        if self._center is None:
            return other, None
        design = other.copy()
        design[:, -1] = 1
        return design, other[:, -1] + other.dtype.type(self._center)

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        U, V = self._own
        if self._center is None:
            return U, V
        ones = [np.ones_like(A[:, :1]) for A in (U, V)]
        return np.hstack([U, ones[0]]), np.hstack([V[:, :-1], ones[1], V[:, -1:] + V.dtype.type(self._center)])

    @property
    def own_factors(self) -> tuple[Array, Array]:
        """(U, V) as solved for; with biases, each with its own bias as the last column."""
        return self._own

    def _value(self) -> float:
        data = self._sides[0].loss_sum(self._loss, *self.factors, self._sample[0])
        if self._objective.loss.concave:
            # a rounded loss starts at 0; what it is lowered by for that changes with ε, and would hide the descent
            total = self._sides[0].observed.n_entries if self._sample[0] is None else float(self._sample[0].sum(dtype=np.float64))
            data += total * float(self._objective.loss.value(np.array([self._tip]))[0])
        penalty = sum(
            0.5 * float((reg * np.einsum("ij,ij->i", A, A, dtype=np.float64)).sum()) for reg, A in zip(self._reg, self._own, strict=True)
        )
        return data + penalty

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}
