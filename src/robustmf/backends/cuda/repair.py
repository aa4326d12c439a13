"""Rows of a poor fit solved again from random subsets of their entries, many rows at once.

The algorithm is that of :mod:`robustmf.kernels.repair`, composed of half-steps: the entries of the
rows form a problem of their own, in which every entry has its own column (the other side's factors
computed without that entry).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.layout import system_width
from robustmf.backends.cuda.loss_sums import row_losses
from robustmf.backends.cuda.memory_estimate import OPTIONS as MEMORY
from robustmf.backends.cuda.normal import normal_inverses, solve_systems
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.data.observed import Compressed
from robustmf.losses import Welsch

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations


@dataclass(frozen=True)
class RepairOptions:
    """Constants of the repair of rows; those of :mod:`robustmf.kernels.repair` are equal.

    Attributes
    ----------
    improvement : float
        A row changes only if its cost falls below this multiple of the present one.
    first_steps, subset_steps, last_steps : int
        Reweighted steps from the present factors, after each subset fit, and at the end.
    min_leverage : float
        Lower bound of 1 − leverage, where a column is computed without an entry.
    matrix_batch : int
        Numbers of the inverses that are gathered at once; bounds memory.
    """

    improvement: float = 0.98
    first_steps: int = 3
    subset_steps: int = 1
    last_steps: int = 4
    min_leverage: float = 0.1
    matrix_batch: int = 1 << 28


_OPTIONS = RepairOptions()


def repair_rows(
    operations: CUDAOperations,
    U: Tensor,
    V: Tensor,
    ridge: float,
    theta: float,
    rows: Tensor,
    n_subsets: Tensor,
    seed: int,
) -> Tensor:
    """Refit ``rows`` of U in place; return which of them were changed."""
    changed = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    # Rows with similar numbers of subsets are processed together. Rows with too few entries to
    # distinguish a subset from the rest are not changed.
    order = n_subsets.argsort(descending=True, stable=True)
    counts = operations.counts[rows]
    order = order[counts[order] >= U.shape[1] + 2]
    if not len(order):
        return changed
    inverses = normal_inverses(operations.transposed, Welsch(theta), ridge, V, U)
    batch = torch.div(counts[order].cumsum(0) - 1, MEMORY.repair_batch, rounding_mode="floor")
    bounds = [0, *(batch.diff().nonzero()[:, 0] + 1).tolist(), len(order)]
    generator = torch.Generator(rows.device).manual_seed(seed)
    for low, high in pairwise(bounds):
        chosen = order[low:high]
        candidates = _Candidates(operations, U, V, inverses, ridge, theta, rows[chosen], generator)
        changed[chosen] = candidates.best(U, n_subsets[chosen])
    return changed


class _Candidates:
    """Candidate solutions of several rows."""

    def __init__(
        self,
        operations: CUDAOperations,
        U: Tensor,
        V: Tensor,
        inverses: Tensor,
        ridge: float,
        theta: float,
        rows: Tensor,
        generator: torch.Generator,
    ) -> None:
        self._rows = rows
        self._ridge = ridge
        self._loss = Welsch(theta)
        self._generator = generator
        self._counts = operations.counts[rows]
        pointers = torch.cat([self._counts.new_zeros(1), self._counts.cumsum(0)])
        self._starts = pointers[:-1]
        owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), self._counts)
        entries = (
            operations.starts[rows][owner]
            + torch.arange(len(owner), device=rows.device)
            - pointers[owner]
        )
        j = operations.indices[entries].long()
        self._values = operations.values[entries]
        self._design = self._leave_one_out(U[rows][owner], V[j], self._values, inverses, j)
        columns = torch.arange(len(j), dtype=torch.int32, device=rows.device)
        arrays = (cast("Any", DeviceArray(a)) for a in (pointers, columns, self._values))
        own = DeviceObserved(Compressed(*arrays), (len(rows), len(j)))
        self._operations = operations.on(own)

    def _leave_one_out(
        self, u: Tensor, v: Tensor, y: Tensor, inverses: Tensor, j: Tensor
    ) -> Tensor:
        """v_j without the entry: else a column that fits an outlier of this row supports it."""
        e = y - (u * v).sum(1)
        w = torch.exp(-0.5 / (self._loss.theta * self._loss.theta) * e * e)
        moved = torch.empty_like(v)
        step = max(1, _OPTIONS.matrix_batch // inverses[0].numel())
        for low in range(0, len(j), step):
            part = slice(low, low + step)
            moved[part] = (inverses[j[part]] @ u[part, :, None])[:, :, 0]
        shift = w * e / torch.clamp(1 - w * (moved * u).sum(1), min=_OPTIONS.min_leverage)
        return v - shift[:, None] * moved

    def best(self, U: Tensor, n_subsets: Tensor) -> Tensor:
        """Write the best of the present factors and the subset fits; return which rows changed."""
        u = U[self._rows]
        self._reweight(u, _OPTIONS.first_steps)
        present = self._cost(u)
        best = present.clone()
        best_u = u.clone()
        for k in range(int(n_subsets.max())):
            u = self._subset_fit()
            self._reweight(u, _OPTIONS.subset_steps)
            cost = self._cost(u)
            better = (cost < best) & (k < n_subsets)
            best = torch.where(better, cost, best)
            best_u = torch.where(better[:, None], u, best_u)
        found = best < _OPTIONS.improvement * present
        self._reweight(best_u, _OPTIONS.last_steps)
        U[self._rows[found]] = best_u[found]
        return found

    def _reweight(self, u: Tensor, steps: int) -> None:
        """Reweighted least-squares steps, in place."""
        for _ in range(steps):
            self._operations.half_step(
                self._loss, self._ridge, DeviceArray(u), DeviceArray(self._design)
            )

    def _cost(self, u: Tensor) -> Tensor:
        """The terms of the objective that belong to each row."""
        loss = row_losses(self._operations, self._loss, u, self._design)
        return loss + 0.5 * self._ridge * u.double().square().sum(1)

    def _subset_fit(self) -> Tensor:
        """Ridge fits of as many random entries as there are factors, for all rows at once.

        The entries are distinct: the k-th of the sorted draws from a range that is shorter by
        ``rank − 1`` is moved up by k.
        """
        n = len(self._rows)
        rank = self._design.shape[1]
        # float64: a float32 below 1 may be rounded up to 1
        drawn = torch.rand(
            n, rank, generator=self._generator, device=self._rows.device, dtype=torch.float64
        )
        chosen = (drawn * (self._counts - rank + 1)[:, None]).long().sort(1).values
        at = self._starts[:, None] + chosen + torch.arange(rank, device=chosen.device)
        B = self._design[at]
        y = self._values[at]
        systems = B.new_zeros(n, rank + 1, system_width(rank))
        systems[:, :rank, :rank] = B.mT @ B
        systems[:, rank, :rank] = (B * y[:, :, None]).sum(1)
        return solve_systems(self._operations, systems, self._ridge, rank)
