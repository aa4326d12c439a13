"""What workers do in a sweep: pure functions of blocks and factors. A block is one task, on one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel, entries_weight, penalty, ridge
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.kernels.reductions import squared_norm
from robustmf.kernels.team import Team
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Terms:
    """What stays the same from sweep to sweep."""

    reg: float
    reg_by_count: bool
    biases: BiasModel
    bounds: tuple[float, float]


@dataclass(frozen=True)
class Sums:
    """What a block adds to the objective: losses' sums, entries' weight and number; and of what was set aside, errors and weight."""

    losses: tuple[float, ...]
    weight: float
    entries: int
    aside: tuple[float, float]

    @classmethod
    def total(cls, parts: Sequence[Sums]) -> Sums:
        """Added in the order of the blocks."""
        losses = tuple(sum(column) for column in zip(*(part.losses for part in parts), strict=True))
        aside = sum(part.aside[0] for part in parts), sum(part.aside[1] for part in parts)
        return cls(
            losses, sum(part.weight for part in parts), sum(part.entries for part in parts), aside
        )


def on_block(block: Block) -> CPUOperations:
    """The passes over a block's entries, on the thread of the task."""
    return CPUOperations(block.observed, Team(1))


def offered(factors: Array, wanted: NDArray[np.int32]) -> Array:
    """What another block wants, where it does not want nearly all."""
    return factors[wanted]


def half_step(
    block: Block, own: Array, before: Array, ahead: float, others: Sequence[Array], others_before: Sequence[Array] | None,
    loss: Loss, terms: Terms, curvature: float, single: bool,
) -> Array:  # fmt: skip
    """The block's factors, solved for from this share of the last step ahead, the other side held; that is ahead too, where it was."""
    other = np.concatenate(others)
    if others_before is not None:
        other = other + ahead * (other - np.concatenate(others_before))
    design, shifts = terms.biases.design(other)
    factors = own + ahead * (own - before)
    reg = ridge(terms.reg, terms.reg_by_count, block.observed)
    on_block(block).half_step(
        loss, reg, factors, design, block.weights, shifts, curvature=curvature, single=single
    )
    return factors


def entries_size(block: Block) -> tuple[float, float, int]:
    """The sum of the block's squared values, of its entries' weights, and how many have any."""
    return squared_norm(block.observed.rows.values[None]), *entries_weight(
        block.observed, block.weights
    )


def block_penalty(block: Block, own: Array, terms: Terms) -> float:
    """The block's share of the penalty."""
    return penalty(ridge(terms.reg, terms.reg_by_count, block.observed), own)


def row_sums(
    block: Block, U: Array, others: Sequence[Array], losses: Sequence[Loss], terms: Terms, single: bool
) -> tuple[Sums, float]:  # fmt: skip
    """What a block of rows adds to the objective, and to the penalty."""
    left, right = terms.biases.predictors(U, np.concatenate(others))
    sums = on_block(block).loss_sums(losses, left, right, block.weights, single)
    aside = (0.0, 0.0) if block.aside is None else block.aside.error_sums(left, right, terms.bounds)
    return Sums(tuple(sums), *entries_weight(block.observed, block.weights), aside), block_penalty(
        block, U, terms
    )


def sweep_total(
    rows: Sequence[tuple[Sums, float]], column_penalties: Sequence[float]
) -> tuple[Sums, float]:
    """Sums and penalty of all blocks."""
    return Sums.total([sums for sums, _ in rows]), sum(part for _, part in rows) + sum(
        column_penalties
    )


def same(value: Any) -> Any:
    """A copy under another key, wherever the scheduler puts it."""
    return value
