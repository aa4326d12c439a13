"""Repeated steps on the dual of the MM surrogate, on the card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from robustmf.backends.cuda.kernels import dual
from robustmf.backends.cuda.layout import entry_tile, padded, rows_of

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations

Array = Any


class DeviceDualPass:
    """One accelerated step on the dual: a pass by rows, and one by columns for the products."""

    def __init__(self, operations: CUDAOperations, rank: int) -> None:
        self._operations, self._rank = operations, rank
        chunks = operations.chunks
        self._parts = operations.empty(len(chunks), rank)
        self._sums = operations.empty(len(chunks), 3, dtype=torch.float64)

    def step(
        self, e: Array, w: Array, curvatures: tuple[Array, Array], momentum: float, scale: float, factors: tuple[Array, Array],
        increments: tuple[Array, Array], x: Array, x_before: Array, x_new: Array, products: tuple[Array, Array],
    ) -> tuple[float, float, float]:  # fmt: skip
        """Write x_new and its products; return Σ c(x_new − z)², ⟨x_new, e⟩, Σ c(z − x_new)(x_new − x)."""
        of, rank = self._operations, self._rank
        chunks, (U, V) = of.chunks, factors
        columns, column_increments = padded(V.tensor), padded(increments[1].tensor)
        dual.step_parts[(len(chunks),)](
            chunks.rows, chunks.starts, chunks.ends, of.indices, e.tensor, w.tensor, curvatures[0].tensor, curvatures[1].tensor,
            of.numbers(momentum, scale), U.tensor, columns, increments[0].tensor, column_increments,
            x.tensor, x_before.tensor, x_new.tensor, self._parts, self._sums, RANK=rank, **rows_of(columns), **entry_tile(rank),
        )  # fmt: skip
        products[0].tensor.copy_(of.add_chunks(self._parts))
        products[1].tensor.copy_(of.column_product(x_new.tensor, U.tensor))
        moved, linear, turning = self._sums.sum(0).tolist()
        return moved, linear, turning

    def quadratics(
        self, side: int, inverse: Array, pull: Array, products: Array, products_at_z: Array
    ) -> tuple[float, float]:
        """½ Σ ‖products − pull‖²·inverse and Σ ‖products − products_at_z‖²·inverse over the rows or columns."""
        p, weight = products.tensor, inverse.tensor.double()
        norms = [(p - other.tensor).double().square_().sum(1) for other in (pull, products_at_z)]
        value, moved = torch.stack([torch.dot(norm, weight) for norm in norms]).tolist()
        return 0.5 * value, moved

    def extrapolate(
        self, side: int, inverse: Array, pull: Array, products: Array, products_before: Array, momentum: float, at_z: Array,
        increments: Array,
    ) -> None:  # fmt: skip
        """Products and increments at z = x + momentum·(x − x_before), written to ``at_z`` and ``increments``."""
        torch.sub(products.tensor, products_before.tensor, out=at_z.tensor).mul_(momentum).add_(
            products.tensor
        )
        torch.sub(at_z.tensor, pull.tensor, out=increments.tensor).mul_(inverse.tensor[:, None])
