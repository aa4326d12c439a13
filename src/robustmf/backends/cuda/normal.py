"""The weighted normal equations of the rows on the GPU: half-steps, spectral norms and inverses.

Low ranks are processed in lane order (:mod:`~robustmf.backends.cuda.kernels.lanes`): one chunk per
lane, solved in registers. Higher ranks are processed by tiles
(:mod:`~robustmf.backends.cuda.kernels.half_step`): one chunk per program; the normal matrices pass
through memory, one slice of rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.expression import N_PARAMETERS, values_of, weight_code
from robustmf.backends.cuda.kernels import (
    eliminate,
    half_step,
    lanes,
    nonnegative,
    parts,
    solve,
)
from robustmf.backends.cuda.layout import normal_tile, padded, row_layout, system_width
from robustmf.backends.cuda.loss_sums import row_losses
from robustmf.backends.ridge import Ridge, as_ridge
from robustmf.kernels.nonnegative import PASSES
from robustmf.losses import L2, GemanMcClure, Loss

if TYPE_CHECKING:
    from robustmf.backends.cuda.operations import CUDAOperations

Array = Any


@dataclass(frozen=True)
class NormalOptions:
    """Constants of the normal equations.

    Attributes
    ----------
    matrix_bytes : int
        Bytes of the normal matrices that are in memory at once.
    squarings : int
        Squarings after which the trace of a power gives the largest eigenvalue to the last digit.
    """

    matrix_bytes: int = 1 << 30
    squarings: int = 44


OPTIONS = NormalOptions()


def solve_rows(
    operations: CUDAOperations,
    loss: Loss,
    reg: float | Array | Ridge,
    U: Array,
    V: Array,
    sample_weights: Array | None,
    shifts: Array | None,
    clip: tuple[float, float],
    curvature: float,
    constrained: bool = False,
) -> None:
    """The half-step: update every row of U in place with V fixed.

    Non-negative rows (``constrained``) are solved from normal matrices in memory at every rank.
    """
    if not loss.unit_weight and weight_code(loss) is None:
        weights = values_of(loss.weight, operations.residuals(U, V, shifts))
        weights = weights.astype(operations.observed.dtype)
        sample_weights = weights if sample_weights is None else weights * sample_weights
        loss = L2()
        curvature = np.inf
    ridge = _ridge_tensors(operations, reg, U.shape[1])
    min_shares = None
    if curvature < np.inf:
        min_shares = _min_curvature_shares(
            operations, loss, U, V, sample_weights, shifts, curvature
        )
    if lanes.fits(U.shape[1], operations.values.element_size()) and not constrained:
        _solve_by_lanes(
            operations,
            loss,
            ridge,
            U.tensor,
            V.tensor,
            sample_weights,
            shifts,
            clip,
            min_shares,
        )
        return
    rows = torch.arange(len(U), device=operations.values.device)

    def solve_slice(low: int, high: int, offset: int, systems: Tensor, rank: int) -> None:
        slots = operations.chunks.first[low:high]
        solve_all = _solve_nonnegative if constrained else _solve
        solve_all(operations, rows[low:high], slots, offset, systems, ridge, U.tensor)

    _for_normal_matrices(
        operations,
        loss,
        U.tensor,
        V.tensor,
        sample_weights,
        shifts,
        clip,
        solve_slice,
        min_shares,
    )


def spectral_norms(operations: CUDAOperations, V: Tensor) -> Tensor:
    """Upper bounds, for each row, of the squared spectral norm of the rows of V it observes."""
    norms = operations.empty(len(operations.counts), dtype=torch.float64)
    U = V.new_zeros(1, V.shape[1]).expand(len(norms), -1).contiguous()

    def find_norms(low: int, high: int, offset: int, systems: Tensor, rank: int) -> None:
        grams = systems[operations.chunks.first[low:high] - offset, :rank, :rank].double()
        norms[low:high] = _largest_eigenvalues(grams)

    _for_normal_matrices(operations, L2(), U, V, None, None, None, find_norms)
    return norms


def normal_inverses(
    operations: CUDAOperations, loss: Loss, ridge: float, U: Tensor, V: Tensor
) -> Tensor:
    """(Σ w v vᵀ + ridge·I)⁻¹ for each row, with the weights of the loss at (U, V)."""
    rank = V.shape[1]
    inverses = operations.empty(len(operations.counts), rank, rank)

    def invert(low: int, high: int, offset: int, systems: Tensor, rank: int) -> None:
        normal = systems[operations.chunks.first[low:high] - offset, :rank, :rank]
        normal.diagonal(dim1=1, dim2=2).add_(ridge)
        inverses[low:high] = torch.linalg.inv_ex(normal).inverse

    _for_normal_matrices(operations, loss, U, V, None, None, None, invert)
    return inverses


def solve_systems(operations: CUDAOperations, systems: Tensor, ridge: float, rank: int) -> Tensor:
    """Solutions of ridge systems, (rank + 1) × R arrays with the right-hand side as last row."""
    U = operations.values.new_zeros(len(systems), rank)
    every = torch.arange(len(systems), device=systems.device)
    _solve(operations, every, every, 0, systems, _ridge_tensors(operations, ridge, rank), U)
    return U


def _ridge_tensors(
    operations: CUDAOperations, reg: float | Array | Ridge, rank: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The three arrays of :class:`~robustmf.backends.ridge.Ridge` in GPU memory."""
    if isinstance(reg, float):
        numbers = operations.numbers(reg, 0.0, *([1.0] * rank), *([0.0] * rank))
        return numbers[:1], numbers[1:2], numbers[2:]
    ridge = as_ridge(reg, rank)
    dtype = operations.values.dtype
    return (
        ridge.first.tensor.to(dtype),
        ridge.second.tensor.to(dtype),
        operations.numbers(*map(float, ridge.factors.ravel())),
    )


def _solve(
    operations: CUDAOperations,
    rows: Tensor,
    slots: Tensor,
    offset: int,
    systems: Tensor,
    ridge: tuple[Tensor, Tensor, Tensor],
    U: Tensor,
) -> None:
    """Solve the systems of ``rows``, at ``slots`` − ``offset``, and write the solutions to U."""
    R = systems.shape[2]
    rank = U.shape[1]
    arguments = (rows, slots, offset, systems, *ridge, U, _pivot_tolerance(operations))
    if eliminate.fits(rank, operations.values.element_size()):
        eliminate.solve(rank, operations.wide_loads)[(len(rows),)](
            *arguments, REGS=len(ridge[0]) > 1, R=R, num_warps=1
        )
    else:
        solve.solve_tile[(len(rows),)](
            *arguments, REGS=len(ridge[0]) > 1, RANK=rank, R=R, num_warps=1 if R <= 64 else 4
        )


def _solve_nonnegative(
    operations: CUDAOperations,
    rows: Tensor,
    slots: Tensor,
    offset: int,
    systems: Tensor,
    ridge: tuple[Tensor, Tensor, Tensor],
    U: Tensor,
) -> None:
    """As :func:`_solve`, from the present rows of U, which are non-negative and remain so."""
    R = systems.shape[2]
    nonnegative.solve_nonnegative[(len(rows),)](
        rows,
        slots,
        offset,
        systems,
        *ridge,
        U,
        _pivot_tolerance(operations),
        REGS=len(ridge[0]) > 1,
        RANK=U.shape[1],
        R=R,
        PASSES=PASSES,
        num_warps=1 if R <= 64 else 4,
    )


def _pivot_tolerance(operations: CUDAOperations) -> float:
    """Pivots below this multiple of their diagonal element are rounding errors."""
    return 4 * float(np.finfo(operations.observed.dtype).eps)


def _solve_by_lanes(
    operations: CUDAOperations,
    loss: Loss,
    ridge: tuple[Tensor, Tensor, Tensor],
    U: Tensor,
    V: Tensor,
    sample_weights: Array | None,
    shifts: Array | None,
    clip: tuple[float, float],
    min_shares: Tensor | None,
) -> None:
    """One chunk per lane; rows of several chunks are added up and solved afterwards."""
    chunks = operations.chunks
    rank = V.shape[1]
    V = padded(V)
    numbers, formula, clipped = _weight_numbers(operations, loss, clip)
    R = system_width(rank)
    split = chunks.split
    positions = _square_positions(rank, V.device)
    size = len(positions)
    found = operations.empty(size, len(operations.lanes.counts))
    lanes.half_step(rank, operations.wide_loads)[(len(operations.lanes.starts),)](
        *operations.lane_arguments(sample_weights, shifts, U, V),
        numbers,
        *ridge,
        numbers if min_shares is None else min_shares,
        found,
        found.shape[1],
        _pivot_tolerance(operations),
        weight=formula,
        REGS=len(ridge[0]) > 1,
        CURVATURE=min_shares is not None,
        SAMPLE=sample_weights is not None,
        SHIFTS=shifts is not None,
        CLIP=clipped,
        UNIT=loss.unit_weight,
        **row_layout(V),
        num_warps=1,
        num_stages=1,
    )
    if len(split):
        systems = operations.empty(len(split), rank + 1, R)
        parts.gather[(len(split),)](
            split,
            chunks.first,
            operations.lanes.lane_of_chunk,
            found,
            found.shape[1],
            positions,
            size,
            systems,
            (rank + 1) * R,
            Q=triton.next_power_of_2(size),
            C=16,
            num_warps=4,
        )
        every = torch.arange(len(split), device=V.device)
        _solve(operations, split, every, 0, systems, ridge, U)


def _min_curvature_shares(
    operations: CUDAOperations,
    loss: Loss,
    U: Array,
    V: Array,
    sample_weights: Array | None,
    shifts: Array | None,
    curvature: float,
) -> Tensor:
    """For each row the smallest share of a weight that counts as curvature; see the contract."""
    left = U.tensor
    right = V.tensor
    if shifts is not None:
        left = torch.hstack([left, torch.ones_like(left[:, :1])])
        right = torch.hstack([right, shifts.tensor[:, None]])
    counted = None
    counts = operations.counts
    if sample_weights is not None:
        counted = DeviceArray((sample_weights.tensor > 0).to(operations.values.dtype))
        sums = operations.sums_by_chunk(counted.tensor, None)
        counts = operations.add_chunks(sums[:, None])[:, 0]
    # Σ ε²/(e² + ε²) over the entries of the row that have a weight
    near_zero = counts - 2 / (loss.epsilon * loss.epsilon) * row_losses(
        operations, GemanMcClure(loss.epsilon), left, right, counted
    )
    enough = curvature * U.shape[1]
    return (enough / torch.clamp(near_zero, min=enough)).to(operations.values.dtype)


def _weight_numbers(
    operations: CUDAOperations, loss: Loss, clip: tuple[float, float] | None
) -> tuple[Tensor, Any, bool]:
    """The numbers and the code of the weight for kernels, and whether values are clipped."""
    code = None if loss.unit_weight else weight_code(loss)
    formula, parameters = code or (None, (0.0,) * N_PARAMETERS)
    clipped = clip is not None and bool(np.isfinite(clip).all())
    largest = float(np.sqrt(np.finfo(operations.observed.dtype).max))
    numbers = operations.numbers(
        *(clip if clip and clipped else (0.0, 0.0)),
        loss.epsilon * loss.epsilon,
        *parameters,
        largest,
    )
    return numbers, formula, clipped


def _for_normal_matrices(
    operations: CUDAOperations,
    loss: Loss,
    U: Tensor,
    V: Tensor,
    sample_weights: Array | None,
    shifts: Array | None,
    clip: tuple[float, float] | None,
    use: Callable[[int, int, int, Tensor, int], None],
    min_shares: Tensor | None = None,
) -> None:
    """Call ``use(low, high, first chunk, systems, rank)`` for each slice of rows."""
    chunks = operations.chunks
    rank = V.shape[1]
    V = padded(V)
    numbers, formula, clipped = _weight_numbers(operations, loss, clip)
    tile = normal_tile(rank, operations.values.dtype)
    size = (rank + 1) * tile["R"]
    matrix_bytes = operations.values.element_size() * size
    slices = operations.slices(max(1, OPTIONS.matrix_bytes // matrix_bytes))
    longest = max(part.last - part.first for part in slices)
    systems = operations.empty(longest, rank + 1, tile["R"])
    for part in slices:
        half_step.accumulate[(part.last - part.first,)](
            part.first,
            chunks.rows,
            chunks.starts,
            chunks.ends,
            operations.indices,
            operations.values,
            operations.values if sample_weights is None else sample_weights.tensor,
            operations.values if shifts is None else shifts.tensor,
            U,
            V,
            numbers,
            numbers if min_shares is None else min_shares,
            systems,
            weight=formula,
            SAMPLE=sample_weights is not None,
            SHIFTS=shifts is not None,
            CLIP=clipped,
            UNIT=loss.unit_weight,
            CURVATURE=min_shares is not None,
            RANK=rank,
            **row_layout(V),
            **tile,
        )
        if len(part.split):
            grid = (len(part.split), triton.cdiv(size, 1024))
            parts.add_into_first[grid](
                part.split, chunks.first, part.first, systems, size, BLOCK=1024
            )
        use(part.low, part.high, part.first, systems, rank)


@cache
def _square_positions(rank: int, device: torch.device) -> Tensor:
    return torch.tensor(lanes.square_positions(rank, system_width(rank)), device=device)


def _largest_eigenvalues(grams: Tensor) -> Tensor:
    """Upper bounds for positive semidefinite matrices: tr(G^k)^(1/k), k = 2^44, by squaring."""
    logarithm = grams.new_zeros(len(grams))
    share = 1.0
    for _ in range(OPTIONS.squarings):
        trace = grams.diagonal(dim1=1, dim2=2).sum(1)
        logarithm += share * trace.log()
        grams = grams / torch.where(trace > 0, trace, 1.0)[:, None, None]
        grams = grams @ grams
        share = 0.5 * share
    return logarithm.exp()
