"""Rows of a bad fit solved again from random subsets of their entries, all of them at once.

The same as :mod:`robustmf.kernels.repair`, put together from half-steps: the entries of the rows in question are a problem of their
own, in which every entry has its own column (the other side's factors without that entry).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.layout import system_width
from robustmf.backends.cuda.loss_sums import row_losses
from robustmf.backends.cuda.memory_estimate import REPAIR_BATCH
from robustmf.backends.cuda.normal import normal_inverses, solved_systems
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.data.observed import Compressed
from robustmf.losses import Welsch

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations


#: A row changes only for a cost lower by 2 %.
_BETTER = 0.98


def repair_rows(
    operations: CUDAOperations,
    U: Tensor,
    V: Tensor,
    ridge: float,
    theta: float,
    rows: Tensor,
    trials: Tensor,
    seed: int,
) -> Tensor:
    """Refit ``rows`` of U, in place; which of them found something better."""
    changed = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    # rows of like effort together; rows with too few entries to tell a subset from the rest stay as they are
    order = trials.argsort(descending=True, stable=True)
    counts = operations.counts[rows]
    order = order[counts[order] >= U.shape[1] + 2]
    if not len(order):
        return changed
    inverses = normal_inverses(operations.transposed, Welsch(theta), ridge, V, U)
    batch = torch.div(counts[order].cumsum(0) - 1, REPAIR_BATCH, rounding_mode="floor")
    bounds = [0, *(batch.diff().nonzero()[:, 0] + 1).tolist(), len(order)]
    generator = torch.Generator(rows.device).manual_seed(seed)
    for low, high in pairwise(bounds):
        chosen = order[low:high]
        changed[chosen] = _Trials(
            operations, U, V, inverses, ridge, theta, rows[chosen], generator
        ).run(U, trials[chosen])
    return changed


class _Trials:
    """Rows tried together."""

    def __init__(
        self, operations: CUDAOperations, U: Tensor, V: Tensor, inverses: Tensor, ridge: float, theta: float, rows: Tensor,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self._rows, self._ridge, self._loss, self._generator = rows, ridge, Welsch(theta), generator
        self._counts = operations.counts[rows]
        pointers = torch.cat([self._counts.new_zeros(1), self._counts.cumsum(0)])
        self._starts = pointers[:-1]
        owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), self._counts)
        entries = (
            operations.starts[rows][owner]
            + torch.arange(len(owner), device=rows.device)
            - pointers[owner]
        )
        j, self._values = operations.indices[entries].long(), operations.values[entries]
        self._design = self._leave_one_out(U[rows][owner], V[j], self._values, inverses, j)
        places = torch.arange(len(j), dtype=torch.int32, device=rows.device)
        own = Compressed(*(cast("Any", DeviceArray(a)) for a in (pointers, places, self._values)))
        self._operations = operations.on(DeviceObserved(own, (len(rows), len(j))))

    def _leave_one_out(
        self, u: Tensor, v: Tensor, y: Tensor, inverses: Tensor, j: Tensor
    ) -> Tensor:
        """v_j as it would be without the entry: else a column that bent to an outlier of this row would vote for it."""
        e = y - (u * v).sum(1)
        w = torch.exp(-0.5 / (self._loss.theta * self._loss.theta) * e * e)
        moved = torch.empty_like(v)
        step = max(1, (1 << 28) // inverses[0].numel())
        for low in range(0, len(j), step):
            part = slice(low, low + step)
            moved[part] = (inverses[j[part]] @ u[part, :, None])[:, :, 0]
        shift = w * e / torch.clamp(1 - w * (moved * u).sum(1), min=0.1)
        return v - shift[:, None] * moved

    def run(self, U: Tensor, trials: Tensor) -> Tensor:
        """The best of the present factors and the subset fits, one reweighted step each."""
        u = U[self._rows]
        self._reweighted(u, 3)
        start = self._cost(u)
        best, best_u = start.clone(), u.clone()
        for k in range(int(trials.max())):
            u = self._subset_fit()
            self._reweighted(u, 1)
            cost = self._cost(u)
            better = (cost < best) & (k < trials)
            best = torch.where(better, cost, best)
            best_u = torch.where(better[:, None], u, best_u)
        found = best < _BETTER * start
        self._reweighted(best_u, 4)
        U[self._rows[found]] = best_u[found]
        return found

    def _reweighted(self, u: Tensor, steps: int) -> None:
        for _ in range(steps):
            self._operations.half_step(
                self._loss, self._ridge, DeviceArray(u), DeviceArray(self._design)
            )

    def _cost(self, u: Tensor) -> Tensor:
        """The row's share of the objective."""
        return row_losses(
            self._operations, self._loss, u, self._design
        ) + 0.5 * self._ridge * u.double().square().sum(1)

    def _subset_fit(self) -> Tensor:
        """Ridge fit of as many random entries as there are factors, all rows at once.

        Distinct by construction: ordered draws from so many fewer places, each moved on by the number of those before it.
        """
        n, rank = len(self._rows), self._design.shape[1]
        # float64: a float32 below 1 may round up to it
        drawn = torch.rand(
            n, rank, generator=self._generator, device=self._rows.device, dtype=torch.float64
        )
        chosen = (drawn * (self._counts - rank + 1)[:, None]).long().sort(1).values
        at = self._starts[:, None] + chosen + torch.arange(rank, device=chosen.device)
        B, y = self._design[at], self._values[at]
        systems = B.new_zeros(n, rank + 1, system_width(rank))
        systems[:, :rank, :rank] = B.mT @ B
        systems[:, rank, :rank] = (B * y[:, :, None]).sum(1)
        return solved_systems(self._operations, systems, self._ridge, rank)
