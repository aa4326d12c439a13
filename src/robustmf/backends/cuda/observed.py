"""Observed entries in GPU memory, compressed there by rows and by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustmf.backends.cuda.array import DeviceArray, as_tensor
from robustmf.backends.cuda.lazy_entries import LazyEntries
from robustmf.backends.cuda.memory import check_memory
from robustmf.backends.cuda.memory_estimate import entry_bytes
from robustmf.data.observed import Compressed, Duplicates, Observed, as_observed
from robustmf.exceptions import DuplicateEntryError


class DeviceObserved(Observed):
    """Observed entries whose arrays are in GPU memory; see :class:`robustmf.Observed`."""

    #: The same entries in host memory, if they were copied from there in this order.
    _host: Observed | None = None

    @property
    def device(self) -> torch.device:
        """The GPU that holds the entries."""
        return _tensor(self.rows.values).device

    def _compute_columns(self) -> Compressed:
        """The entries by columns."""
        known = self._column_order
        order = self._order() if known is None else _tensor(known)
        m, n = self.shape
        indices = _tensor(self.rows.indices)
        every_row = torch.arange(m, dtype=torch.int32, device=self.device)
        rows = torch.repeat_interleave(every_row, _tensor(self.rows.pointers).diff())
        return _compressed(_pointers(indices, n), rows[order], _tensor(self.rows.values)[order])

    def _compute_column_order(self) -> Any:
        """Positions, in row order, of the entries in column order."""
        return DeviceArray(self._order())

    def _order(self) -> Tensor:
        """The permutation to column order."""
        return _tensor(self.rows.indices).sort(stable=True).indices

    def with_values(self, values: Any) -> DeviceObserved:
        """The same positions with other values, given in row order in GPU memory."""
        return DeviceObserved(
            Compressed(self.rows.pointers, self.rows.indices, values),
            self.shape,
            self.row_ids,
            self.column_ids,
        )

    def to_host(self) -> Observed:
        """The same entries in host memory."""
        if self._host is not None:
            return self._host
        rows = self.rows
        host = Compressed(
            np.asarray(rows.pointers),
            np.asarray(rows.indices),
            cast("Any", np.asarray(rows.values)),
        )
        return Observed(host, self.shape, self.row_ids, self.column_ids)

    def placed(self, array: Any) -> DeviceArray:
        """An array as a C-contiguous one in GPU memory."""
        return DeviceArray(as_tensor(array, _tensor(self.rows.values)).contiguous())

    def column_counts(self) -> NDArray[np.int64]:
        """Number of entries of each column, in host memory."""
        if self._columns is not None:
            return np.asarray(self._columns.counts)
        counts = torch.bincount(_tensor(self.rows.indices), minlength=self.shape[1])
        return counts.cpu().numpy()

    def to_keep(self, weights: Any) -> Mapping[str, Any]:
        """The entries by rows and their weights; copied to the host only when they are used."""
        if self._host is not None:
            return self._host.to_keep(weights)
        # a new object, because this one may hold the columns too
        return LazyEntries(DeviceObserved(self.rows, self.shape), weights)

    @classmethod
    def from_host(cls, observed: Observed, device: torch.device) -> DeviceObserved:
        """Copy the entries of ``observed`` to the GPU."""
        rows = observed.rows
        check_memory(
            entry_bytes(observed.n_entries, observed.dtype.itemsize),
            device,
            f"X with {observed.n_entries} entries",
        )
        moved = (_to_gpu(array, device) for array in (rows.pointers, rows.indices, rows.values))
        made = cls(
            _compressed(*moved),
            observed.shape,
            observed.row_ids,
            observed.column_ids,
            observed.form,
        )
        made._host = observed
        return made

    @classmethod
    def from_indices(
        cls,
        rows: Any,
        columns: Any,
        values: Any,
        shape: tuple[int, int] | None = None,
        duplicates: Duplicates = "error",
        device: torch.device | str = "cuda",
    ) -> DeviceObserved:
        """Entries from row indices, column indices and values.

        Parameters
        ----------
        rows, columns, values : array-like
            NumPy arrays, torch tensors, or any arrays that support DLPack.
        shape : pair of int, optional
            By default the smallest shape that contains the entries.
        duplicates : {"error", "last", "mean"}, default="error"
            What to do with several entries at one position.
        device : torch.device or str, default="cuda"
            The GPU.
        """
        device = torch.device(device)
        check_memory(entry_bytes(len(values), 4), device, f"X with {len(values)} entries")
        i, j, v = (_to_gpu(array, device) for array in (rows, columns, values))
        if not i.shape == j.shape == v.shape or i.ndim != 1:
            raise ValueError(
                "rows, columns and values must be 1-dimensional of equal length, "
                f"got shapes {i.shape}, {j.shape}, {v.shape}"
            )
        for name, index in (("rows", i), ("columns", j)):
            if index.is_floating_point() or index.dtype == torch.bool:
                raise TypeError(f"{name} must be an array of integers, got dtype {index.dtype}")
        narrow = v.dtype in (torch.float16, torch.bfloat16, torch.float32)
        v = v.to(torch.float32 if narrow else torch.float64)
        if not len(v):
            raise ValueError(f"X must have at least one observed entry, got none for shape {shape}")
        bounds = torch.stack(
            [i.min(), i.max(), j.min(), j.max(), torch.isfinite(v).all().to(i.dtype)]
        ).tolist()
        shape = shape or (bounds[1] + 1, bounds[3] + 1)
        for name, low, high, bound in (
            ("rows", *bounds[:2], shape[0]),
            ("columns", *bounds[2:4], shape[1]),
        ):
            if low < 0 or high >= bound:
                outside = low if low < 0 else high
                raise ValueError(
                    f"{name} must lie in 0 … {bound - 1} for shape {shape}, got {outside}"
                )
        if not bounds[4]:
            raise ValueError(
                "values must be finite, got NaN or infinity; leave missing entries out"
            )
        return cls(_by_rows(i, j, v, shape, duplicates), shape)


def as_device_observed(X: Any, device: torch.device) -> DeviceObserved:
    """The entries of what ``fit`` accepts, in GPU memory.

    X may be anything that :func:`as_observed` accepts, or an array of torch, CuPy and other
    libraries, sparse or dense with NaN.
    """
    if isinstance(X, DeviceObserved):
        return X
    if isinstance(X, torch.Tensor):
        shape = cast("tuple[int, int]", tuple(X.shape))
        if X.layout == torch.strided:
            i, j = torch.nonzero(~torch.isnan(X), as_tuple=True)
            return DeviceObserved.from_indices(i, j, X[i, j], shape, device=device)
        X = X.to_sparse_coo()
        i, j = X._indices()
        return DeviceObserved.from_indices(i, j, X._values(), shape, device=device)
    if hasattr(X, "tocoo") and len(X.shape) == 2 and X.format not in ("bsr", "dia"):
        # SciPy's or CuPy's; sorted on the GPU
        X = X.tocoo()
        return DeviceObserved.from_indices(X.row, X.col, X.data, X.shape, device=device)
    if hasattr(X, "__dlpack__") and not isinstance(X, np.ndarray):
        return as_device_observed(torch.from_dlpack(X), device)
    return DeviceObserved.from_host(as_observed(X), device)


def _to_gpu(array: Any, device: torch.device) -> Tensor:
    """The array as a tensor on ``device``, without a copy if it is there already."""
    if isinstance(array, torch.Tensor):
        return array.to(device)
    if isinstance(array, np.ndarray):
        if array.dtype.kind == "u":
            array = array.astype(np.int64)
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
    if hasattr(array, "__dlpack__"):
        return torch.from_dlpack(array).to(device)
    return torch.as_tensor(np.asarray(array)).to(device)


def _tensor(array: Any) -> Tensor:
    return cast("DeviceArray", array).tensor


def _compressed(pointers: Tensor, indices: Tensor, values: Tensor) -> Compressed:
    return Compressed(*(cast("Any", DeviceArray(array)) for array in (pointers, indices, values)))


def _pointers(groups: Tensor, n_groups: int) -> Tensor:
    """Pointers of the compressed groups from the group of each entry."""
    counts = torch.bincount(groups, minlength=n_groups)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _by_rows(
    i: Tensor, j: Tensor, v: Tensor, shape: tuple[int, int], duplicates: Duplicates
) -> Compressed:
    """Compressed rows with ascending columns, by one stable sort of row·n + column."""
    keys, order = (i.long() * shape[1] + j).sort(stable=True)
    v = v[order]
    repeated = keys[1:] == keys[:-1]
    if bool(repeated.any()):
        keys, v = _merged(keys, v, repeated, shape, duplicates)
    rows = torch.div(keys, shape[1], rounding_mode="floor")
    return _compressed(_pointers(rows, shape[0]), (keys - rows * shape[1]).int(), v)


def _merged(
    keys: Tensor, v: Tensor, repeated: Tensor, shape: tuple[int, int], duplicates: Duplicates
) -> tuple[Tensor, Tensor]:
    """Sorted keys and values without duplicates."""
    if duplicates == "error":
        at = int(repeated.nonzero()[0, 0])
        raise DuplicateEntryError(
            *divmod(int(keys[at]), shape[1]), (float(v[at]), float(v[at + 1]))
        )
    ones = repeated.new_ones(1)
    if duplicates == "last":
        kept = torch.cat([~repeated, ones])
        return keys[kept], v[kept]
    kept = torch.cat([ones, ~repeated])
    starts = torch.cat([kept.nonzero()[:, 0], kept.new_full((1,), len(kept), dtype=torch.int64)])
    totals = torch.cat([v.new_zeros(1, dtype=torch.float64), v.double().cumsum(0)])
    return keys[kept], (totals[starts].diff() / starts.diff()).to(v.dtype)
