"""Factors on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.connection import identity
from robustmf.data.factorization import Factorization

if TYPE_CHECKING:
    from robustmf.backends.dask.matrix import Matrix

Array = NDArray[np.floating[Any]]


class Factors:
    """The factors of one side: one immutable array per block, each on two workers.

    ``np.asarray`` gathers them on the client, in the order of the ids.

    Parameters
    ----------
    matrix : Matrix
    side : int
        0 for rows, 1 for columns.
    blocks : futures of arrays
    width : int
        Columns of each block.
    """

    def __init__(self, matrix: Matrix, side: int, blocks: Sequence[Any], width: int) -> None:
        self._matrix = matrix
        self.side = side
        self.blocks = list(blocks)
        self.shape = (matrix.shape[side], width)
        self.dtype = matrix.dtype
        self._copies: list[Any] = []
        #: For each block of the other side, the futures of its sections; None if not yet computed.
        self.sections: list[list[Any]] | None = None

    def copy(self) -> Factors:
        """The object itself, which is immutable."""
        return self

    def replicate(self, wait: bool = False) -> None:
        """Copy every block to a second worker, if there is one."""
        connection = self._matrix.connection
        addresses = list(connection.workers())
        for k, (block, holders) in enumerate(
            zip(self.blocks, connection.holders(self.blocks), strict=True)
        ):
            # a worker that received the block for its own tasks already has it
            others = list(holders[1:2]) or [one for one in addresses if one not in holders]
            if not others:
                return
            copy = connection.submit(
                identity, block, workers=[others[k % len(others)]], allow_other_workers=True
            )
            self._copies.append(copy)
        if wait:
            connection.wait(self._copies)

    def recover(self) -> bool:
        """Replace lost blocks by their copies; return whether any was."""
        lost = [
            k
            for k, copy in enumerate(self._copies)
            if self.blocks[k].status != "finished" and copy.status == "finished"
        ]
        for k in lost:
            self.blocks[k] = self._copies[k]
        if lost:
            self._copies = []
            self.sections = None
            self.replicate()
        return bool(lost)

    def each(self) -> Iterator[Array]:
        """The blocks, one at a time on the client."""
        gather = self._matrix.connection.gather_with_recovery
        for k in range(len(self.blocks)):
            yield gather(partial(self._block, k), [self])[1]

    def _block(self, k: int) -> tuple[None, Any]:
        return None, self.blocks[k]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        whole = np.empty(self.shape, self.dtype)
        order = self._matrix.order(self.side)
        start = 0
        for block in self.each():
            whole[order[start : start + len(block)]] = block
            start += len(block)
        return whole if dtype is None else whole.astype(dtype, copy=False)


@dataclass(frozen=True)
class Predictors:
    """Factors whose product is the prediction, computed when ``np.asarray`` gathers them."""

    factors: Factors
    biases: BiasModel

    def copy(self) -> Predictors:
        """The object itself, which is immutable."""
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        own = np.asarray(self.factors, dtype)
        return self.biases.predictors(own, own)[self.factors.side]


@dataclass(frozen=True)
class RemoteFactorization:
    """A :class:`~robustmf.data.factorization.Factorization` on the workers, in augmented factors.

    Attributes
    ----------
    row_factors, column_factors : Factors
        With biases, each with its own bias in units of ``bias_unit`` as last column.
    center : float or None
        None for a model without biases.
    bias_unit : float
    """

    row_factors: Factors
    column_factors: Factors
    center: float | None
    bias_unit: float

    def augmented(self, bias_unit: float) -> tuple[Factors, Factors]:
        """The augmented factors."""
        return self.row_factors, self.column_factors

    def with_augmented(self, A: Factors, B: Factors, bias_unit: float) -> RemoteFactorization:
        """The same model with other augmented factors."""
        return replace(self, row_factors=A, column_factors=B)

    def to_host(self) -> Factorization:
        """The factorization in the memory of the client."""
        A, B = map(np.asarray, self.augmented(self.bias_unit))
        return Factorization.from_augmented(A, B, self.center, self.bias_unit)
