"""The rows' weighted normal equations, on the card: half-steps, and what else their matrices are asked for.

Low ranks go by lanes (:mod:`~robustmf.backends.cuda.kernels.lanes`), a chunk a lane, solved where it stands. Others go by tiles
(:mod:`~robustmf.backends.cuda.kernels.half_step`), a chunk a program; the matrices pass through memory, a slice of rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.expression import SLOTS, values_of, weight_code
from robustmf.backends.cuda.kernels import eliminate, half_step, lanes, parts, solve
from robustmf.backends.cuda.layout import normal_tile, padded, rows_of, system_width
from robustmf.backends.cuda.loss_sums import row_losses
from robustmf.losses import L2, GemanMcClure, Loss

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations

Array = Any

#: Bytes that the normal matrices of a half-step may take at once; rows are handled in slices of that many.
_ROOM = 1 << 30

#: Squarings after which the trace of a power tells the largest eigenvalue to the last digit.
_SQUARINGS = 44


def solve_rows(
    of: CUDAOperations, loss: Loss, reg: float | Array, U: Array, V: Array, sample_weights: Array | None, shifts: Array | None,
    clip: tuple[float, float], curvature: float,
) -> None:  # fmt: skip
    """The half-step: solve for every row of U, in place, V held."""
    if not loss.unit_weight and weight_code(loss) is None:
        weights = values_of(loss.weight, of.residuals(U, V, shifts)).astype(of.observed.dtype)
        sample_weights = weights if sample_weights is None else weights * sample_weights
        loss, curvature = L2(), np.inf
    ridge = (
        reg.tensor.to(of.values.dtype) if isinstance(reg, DeviceArray) else of.numbers(float(reg))
    )
    bends = (
        _bends(of, loss, U, V, sample_weights, shifts, curvature) if curvature < np.inf else None
    )
    if lanes.fits(U.shape[1], of.values.element_size()):
        _solve_by_lanes(of, loss, ridge, U.tensor, V.tensor, sample_weights, shifts, clip, bends)
        return
    rows = torch.arange(len(U), device=of.values.device)

    def solved(low: int, high: int, offset: int, found: Tensor, rank: int) -> None:
        _solve(of, rows[low:high], of.chunks.first[low:high], offset, found, ridge, U.tensor)

    _normal_matrices(of, loss, U.tensor, V.tensor, sample_weights, shifts, clip, solved, bends)


def spectral_norms(of: CUDAOperations, V: Tensor) -> Tensor:
    """For each row the squared spectral norm of the rows of V it observes, from above."""
    norms = of.empty(len(of.counts), dtype=torch.float64)
    U = V.new_zeros(1, V.shape[1]).expand(len(norms), -1).contiguous()

    def largest(low: int, high: int, offset: int, found: Tensor, rank: int) -> None:
        grams = found[of.chunks.first[low:high] - offset, :rank, :rank].double()
        norms[low:high] = _largest_eigenvalues(grams)

    _normal_matrices(of, L2(), U, V, None, None, None, largest)
    return norms


def normal_inverses(of: CUDAOperations, loss: Loss, ridge: float, U: Tensor, V: Tensor) -> Tensor:
    """(Σ w v vᵀ + ridge·I)⁻¹ row by row, with the loss's weights at (U, V)."""
    rank = V.shape[1]
    inverses = of.empty(len(of.counts), rank, rank)

    def inverted(low: int, high: int, offset: int, found: Tensor, rank: int) -> None:
        normal = found[of.chunks.first[low:high] - offset, :rank, :rank]
        normal.diagonal(dim1=1, dim2=2).add_(ridge)
        inverses[low:high] = torch.linalg.inv_ex(normal).inverse

    _normal_matrices(of, loss, U, V, None, None, None, inverted)
    return inverses


def solved_systems(of: CUDAOperations, systems: Tensor, ridge: float, rank: int) -> Tensor:
    """Solutions of ridge systems, (rank + 1) × R arrays with the right-hand side as the last row."""
    U, every = (
        of.values.new_zeros(len(systems), rank),
        torch.arange(len(systems), device=systems.device),
    )
    _solve(of, every, every, 0, systems, of.numbers(ridge), U)
    return U


def _solve(
    of: CUDAOperations,
    rows: Tensor,
    slots: Tensor,
    offset: int,
    systems: Tensor,
    ridge: Tensor,
    U: Tensor,
) -> None:
    R, rank = systems.shape[2], U.shape[1]
    arguments = (rows, slots, offset, systems, ridge, U, _rounding(of))
    if eliminate.fits(rank, of.values.element_size()):
        eliminate.solve(rank, of.wide)[(len(rows),)](
            *arguments, REGS=len(ridge) > 1, R=R, num_warps=1
        )
    else:
        solve.solve_tile[(len(rows),)](
            *arguments, REGS=len(ridge) > 1, RANK=rank, R=R, num_warps=1 if R <= 64 else 4
        )


def _rounding(of: CUDAOperations) -> float:
    """Pivots that are not above this share of their diagonal are noise."""
    return 4 * float(np.finfo(of.observed.dtype).eps)


def _solve_by_lanes(
    of: CUDAOperations, loss: Loss, ridge: Tensor, U: Tensor, V: Tensor, sample_weights: Array | None, shifts: Array | None,
    clip: tuple[float, float], bends: Tensor | None,
) -> None:  # fmt: skip
    """One chunk a lane; rows of several chunks are added up and solved afterwards."""
    chunks, rank, V = of.chunks, V.shape[1], padded(V)
    numbers, formula, clipped = _weight_numbers(of, loss, clip)
    R, split = system_width(rank), chunks.split
    places = _square_places(rank, V.device)
    size = len(places)
    found = of.empty(size, len(of.lanes.counts))
    lanes.half_step(rank, of.wide)[(len(of.lanes.starts),)](
        *of.lane_entries(sample_weights, shifts, U, V), numbers, ridge, numbers if bends is None else bends, found, found.shape[1],
        _rounding(of), weight=formula, REGS=len(ridge) > 1, BENT=bends is not None, SAMPLE=sample_weights is not None,
        SHIFTS=shifts is not None, CLIP=clipped, UNIT=loss.unit_weight, **rows_of(V), num_warps=1, num_stages=1,
    )  # fmt: skip
    if len(split):
        systems = of.empty(len(split), rank + 1, R)
        parts.gather[(len(split),)](
            split, chunks.first, of.lanes.places, found, found.shape[1], places, size, systems, (rank + 1) * R,
            Q=triton.next_power_of_2(size), C=16, num_warps=4,
        )  # fmt: skip
        _solve(of, split, torch.arange(len(split), device=V.device), 0, systems, ridge, U)


def _bends(
    of: CUDAOperations,
    loss: Loss,
    U: Array,
    V: Array,
    sample_weights: Array | None,
    shifts: Array | None,
    curvature: float,
) -> Tensor:
    """For each row the least share of a weight that counts as curvature; see the contract."""
    left, right = U.tensor, V.tensor
    if shifts is not None:
        left = torch.hstack([left, torch.ones_like(left[:, :1])])
        right = torch.hstack([right, shifts.tensor[:, None]])
    counted, counts = None, of.counts
    if sample_weights is not None:
        counted = DeviceArray((sample_weights.tensor > 0).to(of.values.dtype))
        counts = of.add_chunks(of.sums_by_chunk(counted.tensor, None)[:, None])[:, 0]
    # Σ ε²/(e² + ε²) over the row's entries that have a weight
    at_tip = counts - 2 / (loss.epsilon * loss.epsilon) * row_losses(
        of, GemanMcClure(loss.epsilon), left, right, counted
    )
    enough = curvature * U.shape[1]
    return (enough / torch.clamp(at_tip, min=enough)).to(of.values.dtype)


def _weight_numbers(
    of: CUDAOperations, loss: Loss, clip: tuple[float, float] | None
) -> tuple[Tensor, Any, bool]:
    """What kernels need to know of a loss's weight: its numbers, its code; and whether values are clipped."""
    formula, parameters = (None if loss.unit_weight else weight_code(loss)) or (
        None,
        (0.0,) * SLOTS,
    )
    clipped = clip is not None and bool(np.isfinite(clip).all())
    largest = float(np.sqrt(np.finfo(of.observed.dtype).max))
    return (
        of.numbers(
            *(clip if clip and clipped else (0.0, 0.0)),
            loss.epsilon * loss.epsilon,
            *parameters,
            largest,
        ),
        formula,
        clipped,
    )


def _normal_matrices(
    of: CUDAOperations, loss: Loss, U: Tensor, V: Tensor, sample_weights: Array | None, shifts: Array | None,
    clip: tuple[float, float] | None, use: Callable[[int, int, int, Tensor, int], None], bends: Tensor | None = None,
) -> None:  # fmt: skip
    """Hand the rows' weighted normal matrices to ``use``, a slice of rows at a time: low, high, first chunk, parts, rank."""
    chunks, rank = of.chunks, V.shape[1]
    V = padded(V)
    numbers, formula, clipped = _weight_numbers(of, loss, clip)
    settings = normal_tile(rank, of.values.dtype)
    flat = (rank + 1) * settings["R"]
    slices = of.slices(max(1, _ROOM // (of.values.element_size() * flat)))
    found = of.empty(max(part.last - part.first for part in slices), rank + 1, settings["R"])
    for part in slices:
        half_step.accumulate[(part.last - part.first,)](
            part.first, chunks.rows, chunks.starts, chunks.ends, of.indices, of.values,
            of.values if sample_weights is None else sample_weights.tensor, of.values if shifts is None else shifts.tensor,
            U, V, numbers, numbers if bends is None else bends, found, weight=formula, SAMPLE=sample_weights is not None,
            SHIFTS=shifts is not None, CLIP=clipped, UNIT=loss.unit_weight, BENT=bends is not None, RANK=rank, **rows_of(V), **settings,
        )  # fmt: skip
        if len(part.split):
            grid = (len(part.split), triton.cdiv(flat, 1024))
            parts.add_into_first[grid](
                part.split, chunks.first, part.first, found, flat, BLOCK=1024
            )
        use(part.low, part.high, part.first, found, rank)


@cache
def _square_places(rank: int, device: torch.device) -> Tensor:
    return torch.tensor(lanes.square_places(rank, system_width(rank)), device=device)


def _largest_eigenvalues(grams: Tensor) -> Tensor:
    """Of positive semidefinite matrices, from above: tr(G^k)^(1/k) for k = 2^44, by repeated squaring."""
    logarithm, share = grams.new_zeros(len(grams)), 1.0
    for _ in range(_SQUARINGS):
        trace = grams.diagonal(dim1=1, dim2=2).sum(1)
        logarithm += share * trace.log()
        grams = grams / torch.where(trace > 0, trace, 1.0)[:, None, None]
        grams, share = grams @ grams, 0.5 * share
    return logarithm.exp()
