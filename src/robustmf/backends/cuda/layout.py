"""Padding of factors, and the tiles of kernels that were fastest on an H200."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from robustmf.backends.cuda.kernels.generated import is_interpreted


def padded(V: Tensor) -> Tensor:
    """V with rows padded to multiples of 16 bytes, so that a row is read in few wide loads."""
    rank = V.shape[1]
    stride = -(-rank // 4) * 4
    return V.contiguous() if stride == rank else torch.nn.functional.pad(V, (0, stride - rank))


def row_layout(V: Tensor) -> dict[str, Any]:
    """Length of the rows of padded factors, and an integer type for the offset of the last row."""
    return {"STRIDE": V.shape[1], "WIDTH": tl.int32 if V.numel() < 2**31 else tl.int64}


def entry_tile(rank: int) -> dict[str, int]:
    """Tile of a pass over entries: at least as wide as the rank."""
    R = max(4, triton.next_power_of_2(rank))
    return {"R": R, "BLOCK": max(16, 1024 // R), "num_warps": 1 if R <= 32 else 2}


def system_width(rank: int) -> int:
    """Length of the rows of a linear system; not 2, for which Triton 3.6 does not terminate."""
    return max(4, triton.next_power_of_2(rank))


def normal_tile(rank: int, dtype: torch.dtype) -> dict[str, Any]:
    """Tile of the normal equations; tensor cores need 16 columns. float64 does not use them."""
    R = max(16, triton.next_power_of_2(rank))
    if dtype == torch.float64:
        return {"R": R, "BLOCK": 4 if R <= 32 else 1, "PART": None, "num_warps": 4, "num_stages": 1}
    # the interpreter has no products of bfloat16
    part = tl.float32 if is_interpreted() else tl.bfloat16
    # at most 128 registers: four programs per multiprocessor
    registers = {"maxnreg": 128} if R == 64 else {}
    return {
        "R": R,
        "BLOCK": 32,
        "PART": part,
        "num_warps": {16: 1, 32: 2, 64: 4, 128: 8}[R],
        "num_stages": 2,
        **registers,
    }
