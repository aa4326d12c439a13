"""The operations that solvers are made of, on the card: Triton kernels bound to one set of entries.

The contract is that of :class:`robustmf.operations.Operations`; one suite of tests runs over both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.device.array import DeviceArray, tensor_like
from robustmf.device.chunks import Chunks, cut
from robustmf.device.dual import DeviceDualPass
from robustmf.device.expression import SLOTS, value_code, weight_code
from robustmf.device.kernels import dual, eliminate, entries, half_step, parts, solve
from robustmf.device.kernels import lanes as lane_kernels
from robustmf.device.kernels.written import interpreted
from robustmf.device.lanes import Lanes, side_by_side
from robustmf.device.layout import entry_tile, normal_tile, padded, rows_of
from robustmf.device.observed import DeviceObserved
from robustmf.device.repair import repair_rows
from robustmf.kernels.team import Team
from robustmf.losses import L2, Loss, Rounded, Welsch
from robustmf.observed import Observed
from robustmf.operations import Operations

Array = Any

#: Bytes that the normal matrices of a half-step may take at once; rows are handled in slices of that many.
_ROOM = 1 << 30

#: Squarings after which the trace of a power tells the largest eigenvalue to the last digit.
_SQUARINGS = 44


class DeviceOperations(Operations):
    """Passes over the entries of ``observed`` on its card. ``team`` serves what stays on the host: small starts."""

    projects = False
    largest_rank = 128  # whose normal matrix is one tile

    def __init__(self, observed: DeviceObserved, team: Team) -> None:
        self.observed: DeviceObserved = observed
        self.team = team
        rows = observed.rows
        self._pointers, self.indices, self.values = (cast("Any", array).tensor for array in (rows.pointers, rows.indices, rows.values))
        self._other: DeviceOperations | None = None
        self._original: weakref.ref[DeviceOperations] | None = None
        self.starts, self.counts = self._pointers[:-1], self._pointers.diff()

    def on(self, observed: Observed) -> DeviceOperations:
        """The same operations on other entries."""
        return DeviceOperations(cast("DeviceObserved", observed), self.team)

    def host(self) -> Operations:
        """The same entries in the memory of the host, and operations there."""
        return Operations(self.observed.to_host(), self.team)

    def array(self, values: Any) -> Array:
        """``values`` on the card."""
        return DeviceArray(tensor_like(values, self.values).contiguous())

    @property
    def transposed(self) -> DeviceOperations:
        """The same operations with the roles of rows and columns swapped."""
        original = None if self._original is None else self._original()
        if original is not None:
            return original
        if self._other is None:
            self._other = self.on(self.observed.transposed)
            # weak: a cycle would keep gigabytes on the card until Python looks for cycles
            self._other._original = weakref.ref(self)
        return self._other

    @cached_property
    def chunks(self) -> Chunks:
        """The rows cut into chunks."""
        return cut(self._pointers)

    def numbers(self, *numbers: float, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers for a kernel to read, in the precision of the entries unless given."""
        # from pinned memory: else the copy would wait for the kernels before it, and the host with it
        pinned = torch.tensor(numbers, dtype=dtype or self.values.dtype, pin_memory=self.values.is_cuda)
        return pinned.to(self.values.device, non_blocking=True)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room on the card, in the precision of the entries unless given."""
        return torch.empty(shape, dtype=dtype or self.values.dtype, device=self.values.device)

    def add_chunks(self, found: Tensor) -> Tensor:
        """Rows' sums of what is known chunk by chunk."""
        chunks, size = self.chunks, found.shape[1]
        if len(chunks.split):
            block = min(triton.next_power_of_2(size), 1024)
            grid = (len(chunks.split), triton.cdiv(size, block))
            parts.add_into_first[grid](chunks.split, chunks.first, 0, found, size, BLOCK=block)
        return found[chunks.first[:-1]] if len(chunks) > len(self._pointers) - 1 else found

    def residuals(self, U: Array, V: Array, shifts: Array | None = None) -> Array:
        """E = M − UVᵀ (less a shift for each column, where given) at the entries."""
        chunks, rank, out = self.chunks, U.shape[1], torch.empty_like(self.values)
        V = padded(V.tensor)
        entries.residuals[(len(chunks),)](
            chunks.rows, chunks.starts, chunks.ends, self.indices, self.values, self.values if shifts is None else shifts.tensor,
            U.tensor, V, out, SHIFTS=shifts is not None, RANK=rank, **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
        return DeviceArray(out)

    def loss_sums(self, losses: Sequence[Loss], U: Array, V: Array, sample_weights: Array | None = None) -> list[float]:
        """Σ s·φ(|e|) for each of the losses, without an array over all entries (for formulas that can be traced).

        Losses that differ in how far their tip is rounded take one pass together.
        """
        bases = [loss.base if isinstance(loss, Rounded) else loss for loss in losses]
        if any(base != bases[0] for base in bases):
            return [self.loss_sum(loss, U, V, sample_weights) for loss in losses]
        tips = [loss.epsilon if isinstance(loss, Rounded) else 0.0 for loss in losses]
        found = self._values_by_chunk(bases[0], tips, U, V, sample_weights)
        if found is not None:
            return cast("list[float]", found.sum(1).tolist())
        residual = self.residuals(U, V).astype(np.float64)
        values = (_values_of(loss.value, residual) for loss in losses)
        return [float((of if sample_weights is None else of * sample_weights).sum()) for of in values]

    def _values_by_chunk(self, loss: Loss, tips: Sequence[float], U: Array, V: Array, sample_weights: Array | None) -> Tensor | None:
        """Σ s·(φ(√(e² + ε²)) − φ(ε)) for each ε in ``tips``, chunk by chunk; None for a loss that cannot be traced."""
        rank, chunks, V, code = U.shape[1], self.chunks, padded(V.tensor), value_code(loss)
        if code is None:
            return None
        numbers = self.numbers(*code[1], *(tip**2 for tip in tips), dtype=torch.float64)
        weighted, weights = sample_weights is not None, self.values if sample_weights is None else sample_weights.tensor
        if lane_kernels.value_fits(rank, self.values.element_size()):
            found = self.empty(len(tips), len(self._lanes.counts), dtype=torch.float64)
            lane_kernels.value(rank, len(tips), self._wide)[(len(self._lanes.starts),)](
                *self._lane_entries(sample_weights, None, U.tensor, V), numbers, found, found.shape[1], of=code[0], SAMPLE=weighted,
                SHIFTS=False, CLIP=False, UNIT=False, **rows_of(V), num_warps=1, num_stages=1,
            )  # fmt: skip
            found = found[:, self._lanes.places]
        else:
            found = self.empty(len(tips), len(chunks), dtype=torch.float64)
            entries.value_parts[(len(chunks),)](
                chunks.rows, chunks.starts, chunks.ends, self.indices, self.values, weights, U.tensor, V, numbers, found,
                value=code[0], TIPS=len(tips), T=triton.next_power_of_2(len(tips)), SAMPLE=weighted, RANK=rank,
                **rows_of(V), **entry_tile(rank),
            )  # fmt: skip
        if any(tips):
            weight = self._sums_by_chunk(weights, None) if weighted else (chunks.ends - chunks.starts).double()
            for sums, tip in zip(found, tips, strict=True):
                sums -= float(loss.value(np.array([tip]))[0]) * weight
        return found

    def products(self, x: Array, U: Array, V: Array) -> tuple[Array, Array]:
        """XV and XᵀU for the sparse matrix X with entries x."""
        return DeviceArray(self._product(x.tensor, V.tensor, None)), DeviceArray(self.column_product(x.tensor, U.tensor))

    def column_product(self, x: Tensor, U: Tensor) -> Tensor:
        """XᵀU."""
        return self.transposed._product(x, U, self._places)

    @cached_property
    def _places(self) -> Tensor:
        order = cast("Any", self.observed.column_order).tensor
        return order.int() if len(order) < 2**31 else order

    def _product(self, x: Tensor, V: Tensor, places: Tensor | None) -> Tensor:
        chunks, rank = self.chunks, V.shape[1]
        found = self.empty(len(chunks), rank)
        V = padded(V)
        entries.product_parts[(len(chunks),)](
            chunks.starts, chunks.ends, self.indices, self.indices if places is None else places, x, V, found,
            PLACES=places is not None, RANK=rank, **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
        return self.add_chunks(found)

    def sums(self, x: Array) -> tuple[Array, Array]:
        """Row sums and column sums of the entries x."""
        by_row = self.add_chunks(self._sums_by_chunk(x.tensor, None)[:, None])
        other = self.transposed
        by_column = other.add_chunks(other._sums_by_chunk(x.tensor, self._places)[:, None])
        return DeviceArray(by_row[:, 0]), DeviceArray(by_column[:, 0])

    def _sums_by_chunk(self, x: Tensor, places: Tensor | None) -> Tensor:
        chunks = self.chunks
        found = self.empty(len(chunks), dtype=torch.float64)
        entries.sum_parts[(len(chunks),)](
            chunks.starts, chunks.ends, self.indices if places is None else places, x, found, PLACES=places is not None,
            BLOCK=256, num_warps=2,
        )  # fmt: skip
        return found

    def curvatures(self, U: Array, V: Array) -> tuple[Array, Array]:
        """For each row the squared spectral norm of the rows of V it observes, for each column that of U; from above."""
        return DeviceArray(self._spectral_norms(V.tensor)), DeviceArray(self.transposed._spectral_norms(U.tensor))

    def _spectral_norms(self, V: Tensor) -> Tensor:
        norms = self.empty(len(self._pointers) - 1, dtype=torch.float64)
        U = V.new_zeros(1, V.shape[1]).expand(len(norms), -1).contiguous()

        def largest(low: int, high: int, offset: int, found: Tensor, rank: int) -> None:
            grams = found[self.chunks.first[low:high] - offset, :rank, :rank].double()
            norms[low:high] = _largest_eigenvalues(grams)

        self._normal_matrices(L2(), U, V, None, None, None, largest)
        return norms

    def half_step(
        self, loss: Loss, reg: float | Array, U: Array, V: Array, sample_weights: Array | None = None, shifts: Array | None = None,
        clip: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:  # fmt: skip
        """Solve for every row of U, in place, V held; see the contract."""
        if not loss.unit_weight and weight_code(loss) is None:
            weights = _values_of(loss.weight, self.residuals(U, V, shifts)).astype(self.observed.dtype)
            sample_weights = weights if sample_weights is None else weights * sample_weights
            loss = L2()
        ridge = reg.tensor.to(self.values.dtype) if isinstance(reg, DeviceArray) else self.numbers(float(reg))
        if self._by_lanes(U.shape[1]):
            self._half_step_by_lanes(loss, ridge, U.tensor, V.tensor, sample_weights, shifts, clip)
            return

        rows = torch.arange(len(U), device=self.values.device)

        def solved(low: int, high: int, offset: int, found: Tensor, rank: int) -> None:
            self._solve(rows[low:high], self.chunks.first[low:high], offset, found, ridge, U.tensor)

        self._normal_matrices(loss, U.tensor, V.tensor, sample_weights, shifts, clip, solved)

    def _solve(self, rows: Tensor, slots: Tensor, offset: int, systems: Tensor, ridge: Tensor, U: Tensor) -> None:
        R, rank = systems.shape[2], U.shape[1]
        if eliminate.fits(rank, self.values.element_size()):
            eliminate.solve(rank, self._wide)[(len(rows),)](
                rows, slots, offset, systems, ridge, U, self._rounding, REGS=len(ridge) > 1, R=R, num_warps=1
            )
            return
        solve.solve_tile[(len(rows),)](
            rows, slots, offset, systems, ridge, U, self._rounding, REGS=len(ridge) > 1, RANK=rank, R=R, num_warps=1 if R <= 64 else 4
        )

    def _by_lanes(self, rank: int) -> bool:
        return lane_kernels.fits(rank, self.values.element_size())

    @property
    def _rounding(self) -> float:
        """Pivots that are not above this share of their diagonal are noise."""
        return 4 * float(np.finfo(self.observed.dtype).eps)

    def _half_step_by_lanes(
        self, loss: Loss, ridge: Tensor, U: Tensor, V: Tensor, sample_weights: Array | None, shifts: Array | None,
        clip: tuple[float, float],
    ) -> None:  # fmt: skip
        """One chunk a lane; rows of several chunks are added up and solved afterwards."""
        chunks, lanes, rank, V = self.chunks, self._lanes, V.shape[1], padded(V)
        numbers, formula, clipped = self._weight_numbers(loss, clip)
        R, split = triton.next_power_of_2(rank), chunks.split
        places = _square_places(rank, V.device)
        size = len(places)
        found = self.empty(size, len(lanes.counts))
        lane_kernels.half_step(rank, self._wide)[(len(lanes.starts),)](
            *self._lane_entries(sample_weights, shifts, U, V), numbers, ridge, found, found.shape[1], self._rounding, weight=formula,
            REGS=len(ridge) > 1, SAMPLE=sample_weights is not None, SHIFTS=shifts is not None, CLIP=clipped, UNIT=loss.unit_weight,
            **rows_of(V), num_warps=1, num_stages=1,
        )  # fmt: skip
        if len(split):
            systems = self.empty(len(split), rank + 1, R)
            parts.gather[(len(split),)](
                split, chunks.first, lanes.places, found, found.shape[1], places, size, systems, (rank + 1) * R,
                Q=triton.next_power_of_2(size), C=16, num_warps=4,
            )  # fmt: skip
            self._solve(split, torch.arange(len(split), device=V.device), 0, systems, ridge, U)

    @cached_property
    def _lanes(self) -> Lanes:
        return side_by_side(self.chunks, self.indices, self.values)

    @property
    def _wide(self) -> bool:
        return self.values.dtype == torch.float32 and not interpreted()

    def _lane_entries(self, sample_weights: Array | None, shifts: Array | None, U: Tensor, V: Tensor) -> tuple[Tensor, ...]:
        lanes = self._lanes
        return (
            lanes.starts, lanes.widths, lanes.counts, lanes.rows, lanes.alone, lanes.origins, lanes.indices, lanes.values,
            self.values if sample_weights is None else sample_weights.tensor, self.values if shifts is None else shifts.tensor, U, V,
        )  # fmt: skip

    def _weight_numbers(self, loss: Loss, clip: tuple[float, float] | None) -> tuple[Tensor, Any, bool]:
        """What kernels need to know of a loss's weight: its numbers, its code; and whether values are clipped."""
        formula, parameters = (None if loss.unit_weight else weight_code(loss)) or (None, (0.0,) * SLOTS)
        clipped = clip is not None and bool(np.isfinite(clip).all())
        largest = float(np.sqrt(np.finfo(self.observed.dtype).max))
        return self.numbers(*(clip if clip and clipped else (0.0, 0.0)), loss.epsilon**2, *parameters, largest), formula, clipped

    def _normal_matrices(
        self, loss: Loss, U: Tensor, V: Tensor, sample_weights: Array | None, shifts: Array | None, clip: tuple[float, float] | None,
        use: Callable[[int, int, int, Tensor, int], None],
    ) -> None:  # fmt: skip
        """Hand the rows' weighted normal matrices to ``use``, a slice of rows at a time: low, high, first chunk, parts, rank."""
        chunks, rank = self.chunks, V.shape[1]
        V = padded(V)
        numbers, formula, clipped = self._weight_numbers(loss, clip)
        settings = normal_tile(rank, self.values.dtype)
        R, size = settings["R"], self.values.element_size() * (rank + 1) * settings["R"]
        slices = self._slices(max(1, _ROOM // size))
        found = self.empty(max(last - first for _, _, first, last in slices), rank + 1, R)
        for low, high, first, last in slices:
            half_step.accumulate[(last - first,)](
                first, chunks.rows, chunks.starts, chunks.ends, self.indices, self.values,
                self.values if sample_weights is None else sample_weights.tensor, self.values if shifts is None else shifts.tensor,
                U, V, numbers, found, weight=formula, SAMPLE=sample_weights is not None, SHIFTS=shifts is not None,
                CLIP=clipped, UNIT=loss.unit_weight, RANK=rank, **rows_of(V), **settings,
            )  # fmt: skip
            split = chunks.split if len(slices) == 1 else chunks.split[(chunks.split >= low) & (chunks.split < high)]
            if len(split):
                flat = (rank + 1) * R
                parts.add_into_first[(len(split), triton.cdiv(flat, 1024))](split, chunks.first, first, found, flat, BLOCK=1024)
            use(low, high, first, found, rank)

    def _slices(self, most: int) -> list[tuple[int, int, int, int]]:
        """Rows low … high, whose chunks are first … last, with at most ``most`` chunks a slice (or one row)."""
        m, total = len(self._pointers) - 1, len(self.chunks)
        if total <= most:
            return [(0, m, 0, total)]
        first, slices, low = self.chunks.first.cpu().numpy(), [], 0
        while low < m:
            high = max(int(np.searchsorted(first, first[low] + most, side="right")) - 1, low + 1)
            slices.append((low, high, int(first[low]), int(first[high])))
            low = high
        return slices

    def explained_shares(self, U: Array, V: Array, theta: float) -> Array:
        """For each row the share of its entries that the fit explains: the mean Welsch weight at scale θ."""
        lost = self.row_losses(Welsch(theta), U.tensor, V.tensor) / theta**2
        return DeviceArray(1 - lost / torch.clamp(self.counts, min=1))

    def row_losses(self, loss: Loss, U: Tensor, V: Tensor) -> Tensor:
        """Σ φ(|e|) row by row."""
        found = self._values_by_chunk(loss, (0.0,), DeviceArray(U), DeviceArray(V), None)
        assert found is not None, f"{loss.name} has a formula that can be traced"
        return self.add_chunks(found[0, :, None].contiguous())[:, 0]

    def normal_inverses(self, loss: Loss, ridge: float, U: Tensor, V: Tensor) -> Tensor:
        """(Σ w v vᵀ + ridge·I)⁻¹ row by row, with the loss's weights at (U, V)."""
        rank = V.shape[1]
        inverses = self.empty(len(self.counts), rank, rank)

        def inverted(low: int, high: int, offset: int, found: Tensor, rank: int) -> None:
            normal = found[self.chunks.first[low:high] - offset, :rank, :rank]
            normal.diagonal(dim1=1, dim2=2).add_(ridge)
            inverses[low:high] = torch.linalg.inv_ex(normal).inverse

        self._normal_matrices(loss, U, V, None, None, None, inverted)
        return inverses

    def solved(self, systems: Tensor, ridge: float, rank: int) -> Tensor:
        """Solutions of ridge systems, (rank + 1) × R arrays with the right-hand side as the last row."""
        U, every = self.values.new_zeros(len(systems), rank), torch.arange(len(systems), device=systems.device)
        self._solve(every, every, 0, systems, self.numbers(ridge), U)
        return U

    def repair_rows(
        self, U: Array, V: Array, ridge: float, theta: float, rows: Array, trials: Array, seed: int
    ) -> Array:  # fmt: skip
        """Refit the given rows of U, in place, from random subsets of their entries; which of them found something better."""
        return DeviceArray(repair_rows(self, U.tensor, V.tensor, ridge, theta, rows.tensor, trials.tensor, seed))

    def propagate(self, *arguments: Any) -> Any:
        """Message passing has no twin here: problems small enough for it have their start on the host."""
        raise NotImplementedError("message passing runs on the host; see Operations.host")

    def dual_pass(self, rank: int) -> Any:
        """Buffers for repeated steps on the dual at this rank."""
        return DeviceDualPass(self, rank)

    def linearised_loss(self, e: Array, w: Array, U: Array, V: Array, dU: Array, dV: Array, x: Array) -> tuple[float, float]:
        """Σ w|ρ| and Σ (w|ρ| − xρ), where ρ = e − dU Vᵀ − U dVᵀ at the entries."""
        chunks, rank = self.chunks, U.shape[1]
        sums = self.empty(len(chunks), 2, dtype=torch.float64)
        V, dV = padded(V.tensor), padded(dV.tensor)
        dual.linearised_parts[(len(chunks),)](
            chunks.rows, chunks.starts, chunks.ends, self.indices, e.tensor, w.tensor, U.tensor, V, dU.tensor, dV, x.tensor, sums,
            RANK=rank, **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
        loss, gap = sums.sum(0).tolist()
        return loss, gap


@cache
def _square_places(rank: int, device: torch.device) -> Tensor:
    return torch.tensor(lane_kernels.square_places(rank, triton.next_power_of_2(rank)), device=device)


def _largest_eigenvalues(grams: Tensor) -> Tensor:
    """Of positive semidefinite matrices, from above: tr(G^k)^(1/k) for k = 2^44, by repeated squaring."""
    logarithm, share = grams.new_zeros(len(grams)), 1.0
    for _ in range(_SQUARINGS):
        trace = grams.diagonal(dim1=1, dim2=2).sum(1)
        logarithm += share * trace.log()
        grams = grams / torch.where(trace > 0, trace, 1.0)[:, None, None]
        grams, share = grams @ grams, 0.5 * share
    return logarithm.exp()


def _values_of(function: Callable[[Any], Any], array: DeviceArray) -> DeviceArray:
    """A NumPy expression of an array on the card: there, or on the host if it asks for what torch does not have."""
    try:
        return cast("DeviceArray", function(array))
    except (TypeError, ValueError, AttributeError):
        return DeviceArray(tensor_like(function(np.asarray(array)), array.tensor))
