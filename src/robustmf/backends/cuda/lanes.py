"""The entries in lane order: one chunk per lane, chunks of similar length in one group of lanes.

Lane l of group g reads its entry s at ``starts[g] + s·LANES + l``, so that neighbouring lanes read
neighbouring memory. All sums of a chunk stay in one lane: lanes exchange nothing, and a symmetric
matrix is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from robustmf.backends.cuda.chunks import Chunks
from robustmf.backends.cuda.kernels.generated import LANES
from robustmf.backends.cuda.kernels.interleave import interleave

#: Steps that a lane may read beyond the end of its group.
_READ_AHEAD = 8


@dataclass(frozen=True)
class Lanes:
    """Entries in lane order.

    Attributes
    ----------
    starts, widths : tensors over the groups
        The position of the first entry of a group, and the length of its longest chunk.
    counts, rows, alone, origins : tensors over the lanes
        For the chunk of the lane: its length (0 for a lane without a chunk), its row, whether it is
        the only chunk of its row, and the position of its first entry in row order.
    lane_of_chunk : tensor over the chunks
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
    lane_of_chunk: Tensor
    indices: Tensor
    values: Tensor


def interleaved(chunks: Chunks, indices: Tensor, values: Tensor) -> Lanes:
    """The entries of ``chunks`` in lane order, long chunks first."""
    lengths, order = (chunks.ends - chunks.starts).int().sort(descending=True, stable=True)
    groups = triton.cdiv(len(order), LANES)
    pad = (0, groups * LANES - len(order))
    counts = torch.nn.functional.pad(lengths, pad)
    rows = torch.nn.functional.pad(chunks.rows[order], pad)
    is_alone = chunks.first.diff() == 1
    alone = torch.nn.functional.pad(is_alone[chunks.rows[order].long()].int(), pad)
    origins = torch.nn.functional.pad(chunks.starts[order], pad)
    widths = counts[::LANES].contiguous()
    ends = widths.long().cumsum(0) * LANES
    starts = ends - widths.long() * LANES
    size = int(ends[-1]) + LANES * _READ_AHEAD
    lane_indices = indices.new_zeros(size)
    lane_values = values.new_zeros(size)
    interleave[(groups,)](
        starts,
        widths,
        counts,
        origins,
        indices,
        values,
        lane_indices,
        lane_values,
        LANES=LANES,
        STEPS=32,
        num_warps=2,
    )
    lane_of_chunk = torch.empty_like(order)
    lane_of_chunk[order] = torch.arange(len(order), device=order.device)
    return Lanes(
        starts, widths, counts, rows, alone, origins, lane_of_chunk, lane_indices, lane_values
    )
