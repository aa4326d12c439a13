"""The columns with the highest predictions for every row, on the card."""

from __future__ import annotations

import torch
from torch import Tensor

from robustmf.backends.cuda.operations import CUDAOperations

#: Predictions held at once.
_TOGETHER = 1 << 28


def top_columns(
    U: Tensor, V: Tensor, count: int, seen: CUDAOperations | None = None
) -> tuple[Tensor, Tensor]:
    """For each row the ``count`` columns with the largest u·v, best first, and these predictions.

    ``U`` and ``V`` are factors whose product is the prediction, biases included. Entries of ``seen`` are left out.
    """
    columns = torch.empty(len(U), count, dtype=torch.int32, device=U.device)
    values = torch.empty(len(U), count, dtype=U.dtype, device=U.device)
    step = max(1, _TOGETHER // len(V))
    for low in range(0, len(U), step):
        part = slice(low, low + step)
        scores = U[part] @ V.T
        if seen is not None:
            counts = seen.counts[part]
            owner = torch.repeat_interleave(torch.arange(len(counts), device=U.device), counts)
            first = int(seen.starts[low])
            scores[owner, seen.indices[first : first + len(owner)].long()] = -torch.inf
        best = scores.topk(count, dim=1)
        values[part], columns[part] = best.values, best.indices.int()
    return columns, values
