"""Rows cut into chunks of bounded length, so that a long row does not delay the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robustmf.backends.cuda.memory_estimate import OPTIONS as MEMORY


@dataclass(frozen=True)
class Slice:
    """Consecutive rows with their chunks.

    Attributes
    ----------
    low, high : int
        The rows low … high − 1.
    first, last : int
        Their chunks first … last − 1.
    split : tensor
        The rows with more than one chunk.
    """

    low: int
    high: int
    first: int
    last: int
    split: Tensor


@dataclass(frozen=True)
class Chunks:
    """The chunks of all rows, in order; a row without entries has one empty chunk.

    Attributes
    ----------
    rows, starts, ends : tensors over the chunks
        The row, and the range of entries.
    first : tensor of length m + 1
        The first chunk of each row.
    split : tensor
        The rows with more than one chunk.
    """

    rows: Tensor
    starts: Tensor
    ends: Tensor
    first: Tensor
    split: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def slices(self, max_chunks: int) -> list[Slice]:
        """All rows in slices of at most ``max_chunks`` chunks, or of one row."""
        m = len(self.first) - 1
        if len(self) <= max_chunks:
            return [Slice(0, m, 0, len(self), self.split)]
        first = self.first.cpu().numpy()
        found = []
        low = 0
        while low < m:
            end = int(np.searchsorted(first, first[low] + max_chunks, side="right")) - 1
            high = max(end, low + 1)
            within = (self.split >= low) & (self.split < high)
            found.append(Slice(low, high, int(first[low]), int(first[high]), self.split[within]))
            low = high
        return found


def cut(pointers: Tensor) -> Chunks:
    """Chunks of the rows that ``pointers`` delimit."""
    length = MEMORY.chunk_length
    counts = pointers.diff()
    pieces = torch.clamp((counts + length - 1) // length, min=1)
    first = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    every_row = torch.arange(len(counts), device=pointers.device, dtype=torch.int32)
    rows = torch.repeat_interleave(every_row, pieces)
    within = torch.arange(len(rows), device=pointers.device) - first[rows.long()]
    starts = pointers[rows.long()] + within * length
    ends = torch.minimum(starts + length, pointers[rows.long() + 1])
    return Chunks(rows, starts, ends, first, (pieces > 1).nonzero()[:, 0])
