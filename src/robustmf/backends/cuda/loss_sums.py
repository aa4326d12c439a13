"""Sums of a loss over the entries, on the card: without an array over all of them, where the loss's formula can be traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.expression import value_code, values_of
from robustmf.backends.cuda.kernels import entries, lanes
from robustmf.backends.cuda.layout import entry_tile, padded, rows_of
from robustmf.losses import Loss, Smoothed

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations

Array = Any


def loss_sums(
    of: CUDAOperations, losses: Sequence[Loss], U: Array, V: Array, sample_weights: Array | None
) -> list[float]:
    """Σ s·φ(|e|) for each of the losses. Losses that differ in how far their tip is rounded take one pass together."""
    bases = [loss.base if isinstance(loss, Smoothed) else loss for loss in losses]
    if any(base != bases[0] for base in bases):
        return [of.loss_sum(loss, U, V, sample_weights) for loss in losses]
    tips = [loss.epsilon if isinstance(loss, Smoothed) else 0.0 for loss in losses]
    found = _values_by_chunk(of, bases[0], tips, U, V, sample_weights)
    if found is not None:
        return cast("list[float]", found.sum(1).tolist())
    residual = of.residuals(U, V).astype(np.float64)
    values = (values_of(loss.value, residual).astype(np.float64, copy=False) for loss in losses)
    return [
        float((each if sample_weights is None else each * sample_weights).sum()) for each in values
    ]


def row_losses(
    of: CUDAOperations, loss: Loss, U: Tensor, V: Tensor, sample_weights: Array | None = None
) -> Tensor:
    """Σ s·φ(|e|) row by row."""
    found = _values_by_chunk(of, loss, (0.0,), DeviceArray(U), DeviceArray(V), sample_weights)
    assert found is not None, f"{loss.name} has a formula that can be traced"
    return of.add_chunks(found[0, :, None].contiguous())[:, 0]


def _values_by_chunk(
    of: CUDAOperations,
    loss: Loss,
    tips: Sequence[float],
    U: Array,
    V: Array,
    sample_weights: Array | None,
) -> Tensor | None:
    """Σ s·(φ(√(e² + ε²)) − φ(ε)) for each ε in ``tips``, chunk by chunk; None for a loss that cannot be traced."""
    rank, chunks, V, code = U.shape[1], of.chunks, padded(V.tensor), value_code(loss)
    if code is None:
        return None
    numbers = of.numbers(*code[1], *(tip * tip for tip in tips), dtype=torch.float64)
    weighted, weights = (
        sample_weights is not None,
        of.values if sample_weights is None else sample_weights.tensor,
    )
    if lanes.value_fits(rank, of.values.element_size()):
        found = of.empty(len(tips), len(of.lanes.counts), dtype=torch.float64)
        lanes.value(rank, len(tips), of.wide)[(len(of.lanes.starts),)](
            *of.lane_entries(sample_weights, None, U.tensor, V), numbers, found, found.shape[1], of=code[0], SAMPLE=weighted,
            SHIFTS=False, CLIP=False, UNIT=False, **rows_of(V), num_warps=1, num_stages=1,
        )  # fmt: skip
        found = found[:, of.lanes.places]
    else:
        found = of.empty(len(tips), len(chunks), dtype=torch.float64)
        entries.value_parts[(len(chunks),)](
            chunks.rows, chunks.starts, chunks.ends, of.indices, of.values, weights, U.tensor, V, numbers, found,
            value=code[0], TIPS=len(tips), T=triton.next_power_of_2(len(tips)), SAMPLE=weighted, RANK=rank,
            **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
    if any(tips):
        weight = (
            of.sums_by_chunk(weights, None) if weighted else (chunks.ends - chunks.starts).double()
        )
        for sums, tip in zip(found, tips, strict=True):
            sums -= float(loss.value(np.array([tip]))[0]) * weight
    return found
