"""The entries rearranged for one chunk a lane: chunks of like length side by side, so that neighbouring lanes read neighbours.

Lane l of group g reads its entry s at ``starts[g] + s·LANES + l``. Sums then stay in the lane that owns the chunk: no exchange
between lanes, no room for two copies of a symmetric matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from robustmf.backends.cuda.chunks import Chunks
from robustmf.backends.cuda.kernels.interleave import interleave

#: Lanes of a group: a warp.
LANES = 32

#: A lane may look this many steps past its group's end.
AHEAD = 8


@dataclass(frozen=True)
class Lanes:
    """Entries by lanes.

    Attributes
    ----------
    starts, widths : tensors over the groups
        Where a group's entries begin, and the length of its longest chunk.
    counts, rows, alone, origins : tensors over the lanes
        Of the lane's chunk: its length (0 for a lane without one), its row, whether it is its row's only one, its first entry in
        row order.
    places : tensor over the chunks
        The lane of each chunk.
    indices, values : tensors
        The entries.
    """

    starts: Tensor
    widths: Tensor
    counts: Tensor
    rows: Tensor
    alone: Tensor
    origins: Tensor
    places: Tensor
    indices: Tensor
    values: Tensor


def side_by_side(chunks: Chunks, indices: Tensor, values: Tensor) -> Lanes:
    """The entries of ``chunks``, long chunks first."""
    lengths, order = (chunks.ends - chunks.starts).int().sort(descending=True, stable=True)
    groups = triton.cdiv(len(order), LANES)
    pad = (0, groups * LANES - len(order))
    counts = torch.nn.functional.pad(lengths, pad)
    rows = torch.nn.functional.pad(chunks.rows[order], pad)
    single = chunks.first.diff() == 1
    alone = torch.nn.functional.pad(single[chunks.rows[order].long()].int(), pad)
    origins = torch.nn.functional.pad(chunks.starts[order], pad)
    widths = counts[::LANES].contiguous()
    ends = widths.long().cumsum(0) * LANES
    starts = ends - widths.long() * LANES
    size = int(ends[-1]) + LANES * AHEAD
    spread_indices, spread_values = indices.new_zeros(size), values.new_zeros(size)
    interleave[(groups,)](
        starts,
        widths,
        counts,
        origins,
        indices,
        values,
        spread_indices,
        spread_values,
        LANES=LANES,
        STEPS=32,
        num_warps=2,
    )
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return Lanes(
        starts, widths, counts, rows, alone, origins, places, spread_indices, spread_values
    )
