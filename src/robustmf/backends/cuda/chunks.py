"""Rows cut into chunks of bounded length: a program a chunk, so that no long row holds the others up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robustmf.backends.cuda.memory_estimate import CHUNK_LENGTH


@dataclass(frozen=True)
class Slice:
    """Rows low … high, whose chunks are first … last; ``split`` are those of several chunks."""

    low: int
    high: int
    first: int
    last: int
    split: Tensor


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

    def slices(self, most: int) -> list[Slice]:
        """All rows, in slices of at most ``most`` chunks, or of one row."""
        m = len(self.first) - 1
        if len(self) <= most:
            return [Slice(0, m, 0, len(self), self.split)]
        first, found, low = self.first.cpu().numpy(), [], 0
        while low < m:
            high = max(int(np.searchsorted(first, first[low] + most, side="right")) - 1, low + 1)
            within = (self.split >= low) & (self.split < high)
            found.append(Slice(low, high, int(first[low]), int(first[high]), self.split[within]))
            low = high
        return found


def cut(pointers: Tensor) -> Chunks:
    """Chunks of the rows that ``pointers`` delimit."""
    counts = pointers.diff()
    pieces = torch.clamp((counts + CHUNK_LENGTH - 1) // CHUNK_LENGTH, min=1)
    first = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    rows = torch.repeat_interleave(
        torch.arange(len(counts), device=pointers.device, dtype=torch.int32), pieces
    )
    within = torch.arange(len(rows), device=pointers.device) - first[rows.long()]
    starts = pointers[rows.long()] + within * CHUNK_LENGTH
    ends = torch.minimum(starts + CHUNK_LENGTH, pointers[rows.long() + 1])
    return Chunks(rows, starts, ends, first, (pieces > 1).nonzero()[:, 0])
