"""Steps on the dual of the MM surrogate on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from robustmf.backends.cuda.kernels import dual
from robustmf.backends.cuda.layout import entry_tile, padded, row_layout

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations

Array = Any


class CUDADualPass:
    """One accelerated gradient step on the dual: a pass by rows, and one by columns for products.

    The contract is :class:`robustmf.backends.base.DualPass`. Buffers are kept between steps.
    """

    def __init__(self, operations: CUDAOperations, rank: int) -> None:
        chunks = operations.chunks
        self._operations = operations
        self._rank = rank
        self._parts = operations.empty(len(chunks), rank)
        self._sums = operations.empty(len(chunks), 3, dtype=torch.float64)

    def step(
        self,
        e: Array,
        w: Array,
        curvatures: tuple[Array, Array],
        momentum: float,
        scale: float,
        factors: tuple[Array, Array],
        increments: tuple[Array, Array],
        x: Array,
        x_before: Array,
        x_new: Array,
        products: tuple[Array, Array],
    ) -> tuple[float, float, float]:
        """Write x_new and its products; return three sums, see the contract."""
        operations = self._operations
        rank = self._rank
        chunks = operations.chunks
        U = factors[0].tensor
        V = padded(factors[1].tensor)
        dV = padded(increments[1].tensor)
        dual.step_parts[(len(chunks),)](
            chunks.rows,
            chunks.starts,
            chunks.ends,
            operations.indices,
            e.tensor,
            w.tensor,
            curvatures[0].tensor,
            curvatures[1].tensor,
            operations.numbers(momentum, scale),
            U,
            V,
            increments[0].tensor,
            dV,
            x.tensor,
            x_before.tensor,
            x_new.tensor,
            self._parts,
            self._sums,
            RANK=rank,
            **row_layout(V),
            **entry_tile(rank),
        )
        products[0].tensor.copy_(operations.add_chunks(self._parts))
        products[1].tensor.copy_(operations.column_product(x_new.tensor, U))
        moved, linear, restart = self._sums.sum(0).tolist()
        return moved, linear, restart

    def quadratics(
        self, side: int, inverse: Array, pull: Array, products: Array, products_at_z: Array
    ) -> tuple[float, float]:
        """½ Σ ‖products − pull‖²·inverse and Σ ‖products − products_at_z‖²·inverse."""
        p = products.tensor
        weight = inverse.tensor.double()
        norms = [(p - other.tensor).double().square_().sum(1) for other in (pull, products_at_z)]
        value, moved = torch.stack([torch.dot(norm, weight) for norm in norms]).tolist()
        return 0.5 * value, moved

    def extrapolate(
        self,
        side: int,
        inverse: Array,
        pull: Array,
        products: Array,
        products_before: Array,
        momentum: float,
        at_z: Array,
        increments: Array,
    ) -> None:
        """Write products and increments at z = x + momentum·(x − x_before)."""
        torch.sub(products.tensor, products_before.tensor, out=at_z.tensor).mul_(momentum).add_(
            products.tensor
        )
        torch.sub(at_z.tensor, pull.tensor, out=increments.tensor).mul_(inverse.tensor[:, None])
