"""What workers do in a sweep: pure functions of blocks and factors. A block is one task, on one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.cluster.blocks import Block
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.operations import Operations
from robustmf.solvers.irls import BiasModel, penalty, ridge

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
    """What a block adds to the objective: the losses' sums, the weight of the entries; and of what was set aside, errors and weight."""

    losses: tuple[float, ...]
    weight: float
    aside: tuple[float, float]

    @classmethod
    def total(cls, parts: Sequence[Sums]) -> Sums:
        """Added in the order of the blocks."""
        losses = tuple(sum(column) for column in zip(*(part.losses for part in parts), strict=True))
        aside = sum(part.aside[0] for part in parts), sum(part.aside[1] for part in parts)
        return cls(losses, sum(part.weight for part in parts), aside)


def on_block(block: Block) -> Operations:
    """The passes over a block's entries, on the thread of the task."""
    return Operations(block.observed, Team(1))


def offered(own: Array, before: Array, ahead: float, wanted: NDArray[np.int32] | None) -> Array:
    """Factors this share of the last step ahead; only those that another block wants, where it does not want nearly all."""
    if wanted is not None:
        own, before = own[wanted], before[wanted]
    return own + ahead * (own - before)


def half_step(block: Block, own: Array, before: Array, ahead: float, sections: Sequence[Array], loss: Loss, terms: Terms) -> Array:
    """The block's factors, solved for from this share of the last step ahead, the other side held."""
    return _solved(block, own + ahead * (own - before), np.concatenate(sections), loss, terms)


def _solved(block: Block, factors: Array, other: Array, loss: Loss, terms: Terms) -> Array:
    design, shifts = terms.biases.design(other)
    reg = ridge(terms.reg, terms.reg_by_count, block.observed)
    on_block(block).half_step(loss, reg, factors, design, block.weights, shifts)
    return factors


def block_penalty(block: Block, own: Array, terms: Terms) -> float:
    """The block's share of the penalty."""
    return penalty(ridge(terms.reg, terms.reg_by_count, block.observed), own)


def column_step(
    block: Block, own: Array, before: Array, ahead: float, sections: Sequence[Array], loss: Loss, losses: Sequence[Loss], terms: Terms
) -> tuple[Array, Sums, float]:
    """The half-step of a block of columns, and what it adds to the objective after it: one exchange for both."""
    U = np.concatenate(sections)
    V = _solved(block, own + ahead * (own - before), U, loss, terms)
    return _measured(block, V, U, losses, terms)


def column_measure(block: Block, V: Array, sections: Sequence[Array], losses: Sequence[Loss], terms: Terms) -> tuple[Array, Sums, float]:
    """What a block of columns adds to the objective where it is."""
    return _measured(block, V, np.concatenate(sections), losses, terms)


def _measured(block: Block, V: Array, U: Array, losses: Sequence[Loss], terms: Terms) -> tuple[Array, Sums, float]:
    left, right = terms.biases.predictors(U, V)
    sums = on_block(block).loss_sums(losses, right, left, block.weights)
    weight = float(block.observed.n_entries if block.weights is None else block.weights.sum(dtype=np.float64))
    aside = (0.0, 0.0) if block.aside is None else block.aside.error_sums(right, left, terms.bounds)
    return V, Sums(tuple(sums), weight, aside), block_penalty(block, V, terms)


def sweep_total(columns: Sequence[tuple[Sums, float]], row_penalties: Sequence[float]) -> tuple[Sums, float]:
    """Sums and penalty of all blocks."""
    return Sums.total([sums for sums, _ in columns]), sum(row_penalties) + sum(part for _, part in columns)


def factors_of(stepped: tuple[Array, Sums, float]) -> Array:
    """The factors of a column step."""
    return stepped[0]


def sums_of(stepped: tuple[Array, Sums, float]) -> tuple[Sums, float]:
    """What a column step adds to the objective."""
    return stepped[1], stepped[2]


def same(value: Any) -> Any:
    """A copy under another key, wherever the scheduler puts it."""
    return value
