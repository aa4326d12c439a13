"""Rows cut into chunks of bounded length: a program a chunk, so that no long row holds the others up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Entries of a chunk at most.
LONGEST = 512


@dataclass(frozen=True)
class Chunks:
    """The chunks of all rows, in order; a row without entries has one, empty.

    Attributes
    ----------
    rows, starts, ends : tensors over the chunks
        The row, and the range of entries.
    first : tensor of length m + 1
        The first chunk of each row.
    split : tensor
        The rows that have more than one.
    """

    rows: Tensor
    starts: Tensor
    ends: Tensor
    first: Tensor
    split: Tensor

    def __len__(self) -> int:
        return len(self.rows)


def cut(pointers: Tensor) -> Chunks:
    """Chunks of the rows that ``pointers`` delimit."""
    counts = pointers.diff()
    pieces = torch.clamp((counts + LONGEST - 1) // LONGEST, min=1)
    first = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    rows = torch.repeat_interleave(torch.arange(len(counts), device=pointers.device, dtype=torch.int32), pieces)
    within = torch.arange(len(rows), device=pointers.device) - first[rows.long()]
    starts = pointers[rows.long()] + within * LONGEST
    ends = torch.minimum(starts + LONGEST, pointers[rows.long() + 1])
    return Chunks(rows, starts, ends, first, (pieces > 1).nonzero()[:, 0])
