"""An array in GPU memory that NumPy's functions accept, so that one solver serves both backends.

``DeviceArray`` wraps a torch tensor and implements NumPy's two protocols, ``__array_ufunc__`` and
``__array_function__``, by torch's functions. Copies to the host are explicit: ``np.asarray``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_TORCH_TYPES: dict[Any, torch.dtype] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.bool_): torch.bool,
}
_NUMPY_TYPES = {torch_type: numpy_type for numpy_type, torch_type in _TORCH_TYPES.items()}


def torch_type(dtype: Any) -> torch.dtype:
    """The torch dtype that corresponds to a NumPy dtype."""
    return _TORCH_TYPES[np.dtype(dtype)]


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A torch tensor with the interface of a NumPy array, as far as solvers and losses use it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return _NUMPY_TYPES[self.tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self.tensor.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.tensor.numel()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.tensor.ndim

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """The transposed array, a view."""
        return DeviceArray(self.tensor.T)

    def __repr__(self) -> str:
        return f"DeviceArray({np.asarray(self)!r}, device={str(self.tensor.device)!r})"

    def __len__(self) -> int:
        return len(self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        host = self.tensor.detach().cpu().numpy()
        return host if dtype is None else host.astype(dtype)

    def __getitem__(self, key: Any) -> DeviceArray:
        return DeviceArray(self.tensor[_index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tensor[_index(key)] = _operand(value, self.tensor)

    def __array_ufunc__(
        self,
        ufunc: Any,
        method: str,
        *inputs: Any,
        out: Any = None,
        where: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> Any:
        if method != "__call__" or options or ufunc not in _UFUNCS:
            return NotImplemented
        operands = [_operand(value, self.tensor) for value in inputs]
        if dtype is not None:
            operands = [
                value.to(torch_type(dtype)) if isinstance(value, torch.Tensor) else value
                for value in operands
            ]
        found = _UFUNCS[ufunc](*operands)
        if where is not None:
            found = torch.where(where.tensor, found, out[0].tensor)
        if out is None:
            return DeviceArray(found)
        out[0].tensor.copy_(found)
        return out[0]

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        if function not in _FUNCTIONS:
            return NotImplemented
        found = _FUNCTIONS[function](self.tensor, *args, **options)
        return DeviceArray(found) if isinstance(found, torch.Tensor) else found

    def astype(self, dtype: Any, copy: bool = True) -> DeviceArray:
        """A conversion to another dtype."""
        return DeviceArray(self.tensor.to(torch_type(dtype), copy=copy))

    def copy(self) -> DeviceArray:
        """A copy in C order."""
        return DeviceArray(self.tensor.clone(memory_format=torch.contiguous_format))

    def ravel(self) -> DeviceArray:
        """The elements in one dimension."""
        return DeviceArray(self.tensor.reshape(-1))

    def sum(self, axis: int | None = None, dtype: Any = None) -> DeviceArray:
        """The sum over an axis, or over all elements."""
        return DeviceArray(_sum(self.tensor, self, axis, dtype))

    def mean(self, axis: int | None = None, dtype: Any = None) -> DeviceArray:
        """The mean over an axis, or over all elements."""
        return DeviceArray(_mean(self.tensor, self, axis, dtype))

    def min(self) -> DeviceArray:
        """The smallest element."""
        return DeviceArray(self.tensor.min())

    def max(self) -> DeviceArray:
        """The largest element."""
        return DeviceArray(self.tensor.max())

    def all(self) -> bool:
        """Whether all elements are true."""
        return bool(self.tensor.bool().all())

    def any(self) -> bool:
        """Whether any element is true."""
        return bool(self.tensor.bool().any())


def as_tensor(value: Any, like: Tensor) -> Tensor:
    """``value`` as a tensor on the device of ``like``."""
    if isinstance(value, DeviceArray):
        return value.tensor
    return torch.as_tensor(np.ascontiguousarray(value)).to(like.device)


def _operand(value: Any, like: Tensor) -> Any:
    """An argument of a torch function: a tensor, or a Python number."""
    if isinstance(value, (DeviceArray, np.ndarray)):
        return as_tensor(value, like)
    return value.item() if isinstance(value, np.generic) else value


def _index(key: Any) -> Any:
    """An index that torch accepts."""
    if isinstance(key, tuple):
        return tuple(_index(part) for part in key)
    if isinstance(key, DeviceArray):
        return key.tensor if key.tensor.dtype == torch.bool else key.tensor.long()
    return torch.from_numpy(key) if isinstance(key, np.ndarray) else key


def _both(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of two tensors that also accepts one number, in the dtype of the other tensor."""

    def of(a: Any, b: Any) -> Tensor:
        if not isinstance(a, torch.Tensor):
            a = torch.as_tensor(a, dtype=b.dtype, device=b.device)
        elif not isinstance(b, torch.Tensor):
            b = torch.as_tensor(b, dtype=a.dtype, device=a.device)
        return function(a, b)

    return of


_UFUNCS: dict[Any, Callable[..., Tensor]] = {
    np.add: torch.add,
    np.subtract: _both(torch.subtract),
    np.multiply: torch.mul,
    np.divide: _both(torch.divide),
    np.power: torch.pow,
    np.remainder: _both(torch.remainder),
    np.maximum: _both(torch.maximum),
    np.minimum: _both(torch.minimum),
    np.hypot: _both(torch.hypot),
    np.less: _both(torch.lt),
    np.less_equal: _both(torch.le),
    np.greater: _both(torch.gt),
    np.greater_equal: _both(torch.ge),
    np.equal: _both(torch.eq),
    np.not_equal: _both(torch.ne),
    np.bitwise_and: _both(torch.bitwise_and),
    np.bitwise_or: _both(torch.bitwise_or),
    np.invert: torch.bitwise_not,
    np.negative: torch.neg,
    np.absolute: torch.abs,
    np.square: torch.square,
    np.sqrt: torch.sqrt,
    np.exp: torch.exp,
    np.expm1: torch.expm1,
    np.log: torch.log,
    np.log1p: torch.log1p,
    np.sign: torch.sign,
    np.ceil: torch.ceil,
    np.isfinite: torch.isfinite,
    np.reciprocal: torch.reciprocal,
    np.matmul: torch.matmul,
}


def _sum(like: Tensor, a: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    tensor = as_tensor(a, like)
    kind = None if dtype is None else torch_type(dtype)
    return tensor.sum(dtype=kind) if axis is None else tensor.sum(axis, dtype=kind)


def _mean(like: Tensor, a: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    tensor = as_tensor(a, like)
    return _sum(like, a, axis, dtype) / (tensor.numel() if axis is None else tensor.shape[axis])


def _median(like: Tensor, a: Any) -> Tensor:
    """NumPy's median: the mean of the two elements in the middle."""
    ordered = as_tensor(a, like).reshape(-1).sort().values
    n = len(ordered)
    return 0.5 * (ordered[(n - 1) // 2] + ordered[n // 2])


def _einsum(like: Tensor, subscripts: str, *operands: Any, dtype: Any = None) -> Tensor:
    tensors = [as_tensor(a, like) for a in operands]
    if dtype is not None:
        tensors = [a.to(torch_type(dtype)) for a in tensors]
    sources, _, target = subscripts.partition("->")
    one, *others = sources.split(",")
    if all(other == one for other in others) and one.startswith(target):
        # a row-wise product, for which a batched matrix product is not needed
        product = tensors[0] * tensors[1]
        return product.sum(tuple(range(len(target), len(one))))
    return torch.einsum(subscripts, *tensors)


def _filled(number: float) -> Callable[..., Tensor]:
    def of(like: Tensor, a: DeviceArray, dtype: Any = None, shape: Any = None) -> Tensor:
        return torch.full(
            a.shape if shape is None else shape,
            number,
            dtype=a.tensor.dtype if dtype is None else torch_type(dtype),
            device=like.device,
        )

    return of


def _joined(axis: int) -> Callable[..., Tensor]:
    def of(like: Tensor, arrays: Any, axis: int = axis) -> Tensor:
        tensors = [as_tensor(a, like) for a in arrays]
        kind = tensors[0].dtype
        for other in tensors[1:]:
            kind = torch.promote_types(kind, other.dtype)
        return torch.cat([a.to(kind) for a in tensors], axis)

    return of


def _where(like: Tensor, condition: Any, a: Any, b: Any) -> Tensor:
    return torch.where(as_tensor(condition, like), _operand(a, like), _operand(b, like))


def _clip(like: Tensor, a: DeviceArray, low: Any, high: Any) -> Tensor:
    return torch.clamp(a.tensor, _operand(low, like), _operand(high, like))


def _searchsorted(like: Tensor, a: Any, v: Any, side: str = "left") -> Tensor:
    ordered = as_tensor(a, like)
    wanted = as_tensor(v, like)
    kind = torch.promote_types(ordered.dtype, wanted.dtype)
    return torch.searchsorted(ordered.to(kind), wanted.to(kind), right=side == "right")


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.mean: _mean,
    np.median: _median,
    np.einsum: _einsum,
    np.zeros_like: _filled(0),
    np.ones_like: _filled(1),
    np.empty_like: lambda like, a: torch.empty_like(
        a.tensor, memory_format=torch.contiguous_format
    ),
    np.hstack: _joined(1),
    np.concatenate: _joined(0),
    np.where: _where,
    np.clip: _clip,
    np.sort: lambda like, a: a.tensor.sort().values,
    np.argsort: lambda like, a, kind=None: a.tensor.argsort(stable=True),
    np.cumsum: lambda like, a: a.tensor.cumsum(0),
    np.diff: lambda like, a: a.tensor.diff(),
    np.flatnonzero: lambda like, a: a.tensor.nonzero()[:, 0],
    np.repeat: lambda like, a, repeats: torch.repeat_interleave(
        as_tensor(a, like), as_tensor(repeats, like)
    ),
    np.searchsorted: _searchsorted,
    np.linalg.norm: lambda like, a: torch.linalg.vector_norm(a.tensor),
    np.bincount: lambda like, a, weights=None, minlength=0: torch.bincount(
        a.tensor, None if weights is None else weights.tensor, minlength
    ),
}
