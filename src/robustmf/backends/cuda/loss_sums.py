"""Sums of losses over the entries, on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.backends.base import common_base
from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.expression import value_code, values_of
from robustmf.backends.cuda.kernels import entries, lanes
from robustmf.backends.cuda.layout import entry_tile, padded, row_layout
from robustmf.losses import Loss, Smoothed

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations

Array = Any


def loss_sums(
    operations: CUDAOperations,
    losses: Sequence[Loss],
    U: Array,
    V: Array,
    sample_weights: Array | None,
) -> list[float]:
    """Σ s·φ(|e|) for each loss; without an array over the entries if φ can be traced."""
    base = common_base(losses)
    if base is None:
        return [operations.loss_sum(loss, U, V, sample_weights) for loss in losses]
    epsilons = [loss.epsilon if isinstance(loss, Smoothed) else 0.0 for loss in losses]
    sums = _sums_by_chunk(operations, base, epsilons, U, V, sample_weights)
    if sums is not None:
        return cast("list[float]", sums.sum(1).tolist())
    residual = operations.residuals(U, V).astype(np.float64)
    found = []
    for loss in losses:
        values = values_of(loss.value, residual).astype(np.float64, copy=False)
        if sample_weights is not None:
            values = values * sample_weights
        found.append(float(values.sum()))
    return found


def row_losses(
    operations: CUDAOperations,
    loss: Loss,
    U: Tensor,
    V: Tensor,
    sample_weights: Array | None = None,
) -> Tensor:
    """Σ s·φ(|e|) for each row, for a loss whose formula can be traced."""
    sums = _sums_by_chunk(operations, loss, (0.0,), DeviceArray(U), DeviceArray(V), sample_weights)
    assert sums is not None, f"the formula of {loss.name} cannot be traced"
    return operations.add_chunks(sums[0, :, None].contiguous())[:, 0]


def _sums_by_chunk(
    operations: CUDAOperations,
    loss: Loss,
    epsilons: Sequence[float],
    U: Array,
    V: Array,
    sample_weights: Array | None,
) -> Tensor | None:
    """Σ s·(φ(√(e² + ε²)) − φ(ε)) for each ε and chunk; None if φ cannot be traced."""
    code = value_code(loss)
    if code is None:
        return None
    function, parameters = code
    rank = U.shape[1]
    chunks = operations.chunks
    V = padded(V.tensor)
    squares = (epsilon * epsilon for epsilon in epsilons)
    numbers = operations.numbers(*parameters, *squares, dtype=torch.float64)
    weighted = sample_weights is not None
    weights = operations.values if sample_weights is None else sample_weights.tensor
    if lanes.value_fits(rank, operations.values.element_size()):
        n_lanes = len(operations.lanes.counts)
        sums = operations.empty(len(epsilons), n_lanes, dtype=torch.float64)
        lanes.value(rank, len(epsilons), operations.wide_loads)[(len(operations.lanes.starts),)](
            *operations.lane_arguments(sample_weights, None, U.tensor, V),
            numbers,
            sums,
            n_lanes,
            of=function,
            SAMPLE=weighted,
            SHIFTS=False,
            CLIP=False,
            UNIT=False,
            **row_layout(V),
            num_warps=1,
            num_stages=1,
        )
        sums = sums[:, operations.lanes.lane_of_chunk]
    else:
        sums = operations.empty(len(epsilons), len(chunks), dtype=torch.float64)
        entries.value_parts[(len(chunks),)](
            chunks.rows,
            chunks.starts,
            chunks.ends,
            operations.indices,
            operations.values,
            weights,
            U.tensor,
            V,
            numbers,
            sums,
            value=function,
            N_EPSILONS=len(epsilons),
            T=triton.next_power_of_2(len(epsilons)),
            SAMPLE=weighted,
            RANK=rank,
            **row_layout(V),
            **entry_tile(rank),
        )
    if any(epsilons):
        if weighted:
            total = operations.sums_by_chunk(weights, None)
        else:
            total = (chunks.ends - chunks.starts).double()
        for row, epsilon in zip(sums, epsilons, strict=True):
            row -= float(loss.value(np.array([epsilon]))[0]) * total
    return sums
