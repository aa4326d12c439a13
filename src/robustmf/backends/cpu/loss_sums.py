"""Sums of losses over the entries, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import common_base
from robustmf.backends.cpu.compiled_loss import value_address
from robustmf.data.observed import Observed
from robustmf.kernels import entries, half_step, loss_sums
from robustmf.kernels.team import Team, block_bounds
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LossSumOptions:
    """Constants of sums of losses.

    Attributes
    ----------
    slice_length : int
        Entries of a slice in which NumPy evaluates a loss: about as many as stay in the cache of a
        core.
    loss_work : int
        Multiply–adds per entry that evaluating a loss is worth.
    """

    slice_length: int = 16_384
    loss_work: int = 20


OPTIONS = LossSumOptions()


class LossSums:
    """Σ s·φ(|e|) over the entries of ``observed``."""

    def __init__(self, observed: Observed, team: Team, row_bounds: NDArray[np.int64]) -> None:
        self._rows = observed.rows
        self._team = team
        self._row_bounds = row_bounds
        n_slices = -(-observed.n_entries // OPTIONS.slice_length)
        self._slice_bounds = block_bounds(observed.rows.pointers, n_slices)
        # The last loss, its precision and the address of its compiled value with its parameters:
        # tracing it takes as long as a thousand entries.
        self._last_value: tuple[
            Loss | None, np.dtype[Any] | None, tuple[int, NDArray[np.float64]] | None
        ] = (None, None, None)

    def __call__(
        self,
        losses: Sequence[Loss],
        U: Array,
        V: Array,
        sample_weights: Array | None,
        single: bool,
    ) -> list[float]:
        """The sum for each loss; ``single`` as in the contract."""
        base = common_base(losses)
        if base is None:
            return [self((loss,), U, V, sample_weights, False)[0] for loss in losses]
        value_type = np.dtype(np.float32 if single and base.stable_in_float32 else np.float64)
        if (base, value_type) != self._last_value[:2]:
            self._last_value = (base, value_type, value_address(base, value_type))
        compiled = self._last_value[2]
        if compiled is None:
            return self._by_numpy(losses, U, V, sample_weights)
        address, parameters = compiled
        rows = self._rows
        precision = np.dtype(np.float32) if single else rows.values.dtype
        none = np.empty(0, rows.values.dtype)
        epsilons = np.array([loss.epsilon for loss in losses])
        sums = np.empty((len(self._row_bounds) - 1, len(losses)))
        self._team.run(
            loss_sums.loss_sums,
            len(sums),
            (U.shape[1] + OPTIONS.loss_work * len(losses)) * len(rows.values),
            self._row_bounds,
            rows.pointers,
            rows.indices,
            rows.values,
            none if sample_weights is None else sample_weights,
            none,
            np.array([-np.inf, np.inf], rows.values.dtype),
            half_step.pad(V, precision),
            half_step.padded_width(V.shape[1], precision.itemsize),
            U,
            (epsilons * epsilons).astype(value_type),
            address,
            parameters,
            sums,
        )
        # a smoothed loss is φ(√(e² + ε²)) − φ(ε), which is 0 at e = 0
        at_zero = base.value(epsilons) if epsilons.any() else np.zeros(len(epsilons))
        total = float(len(rows.values))
        if sample_weights is not None:
            total = float(sample_weights.sum(dtype=np.float64))
        return [float(x) for x in sums.sum(axis=0) - total * at_zero]

    def _by_numpy(
        self, losses: Sequence[Loss], U: Array, V: Array, sample_weights: Array | None
    ) -> list[float]:
        """The same for a loss that cannot be compiled, one slice of entries at a time."""
        rows = self._rows
        bounds = self._slice_bounds
        none = np.empty(0, rows.values.dtype)
        sums = np.zeros((len(bounds) - 1, len(losses)))

        def add(first: int, last: int) -> None:
            for k in range(first, last):
                part = slice(int(rows.pointers[bounds[k]]), int(rows.pointers[bounds[k + 1]]))
                residual = np.empty(part.stop - part.start, rows.values.dtype)
                entries.residuals(
                    0,
                    1,
                    bounds[k : k + 2],
                    rows.pointers,
                    rows.indices,
                    rows.values,
                    U,
                    V,
                    none,
                    residual,
                )
                wide = residual.astype(np.float64, copy=False)
                for q, loss in enumerate(losses):
                    values = loss.value(wide)
                    if sample_weights is not None:
                        values = values * sample_weights[part]
                    sums[k, q] = values.sum(dtype=np.float64)

        work = (U.shape[1] + OPTIONS.loss_work * len(losses)) * len(rows.values)
        self._team.run(add, len(sums), work)
        return [float(total) for total in sums.sum(axis=0)]
