"""The columns with the highest predictions for every row, on the GPU; to be measured."""

from __future__ import annotations

import torch
from torch import Tensor

from robustmf.backends.cuda.operations import CUDAOperations

#: The number of predictions in memory at once.
_BATCH = 1 << 28


def top_columns(
    U: Tensor, V: Tensor, count: int, seen: CUDAOperations | None = None
) -> tuple[Tensor, Tensor]:
    """Return the columns with the largest predictions u·v for each row.

    Parameters
    ----------
    U, V : tensors of shapes (m, r) and (n, r)
        Factors whose product is the prediction, biases included.
    count : int
        The number of columns for each row.
    seen : CUDAOperations, optional
        Entries to exclude.

    Returns
    -------
    columns, values : tensors of shape (m, count)
        Columns and predictions, the largest first.
    """
    columns = torch.empty(len(U), count, dtype=torch.int32, device=U.device)
    values = torch.empty(len(U), count, dtype=U.dtype, device=U.device)
    step = max(1, _BATCH // len(V))
    for low in range(0, len(U), step):
        part = slice(low, low + step)
        scores = U[part] @ V.T
        if seen is not None:
            counts = seen.counts[part]
            owner = torch.repeat_interleave(torch.arange(len(counts), device=U.device), counts)
            first = int(seen.starts[low])
            scores[owner, seen.indices[first : first + len(owner)].long()] = -torch.inf
        best = scores.topk(count, dim=1)
        values[part] = best.values
        columns[part] = best.indices.int()
    return columns, values
