"""Random matrices: kinds of values, missing patterns, memory layouts and containers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from robustmf import Observed

#: Values of a matrix from a generator and a shape.
VALUES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "low rank": lambda rng, shape: np.outer(
        rng.standard_normal(shape[0]), rng.standard_normal(shape[1])
    ),
    "all equal": lambda rng, shape: np.full(shape, float(rng.integers(-3, 4))),
    "zeros": lambda rng, shape: np.zeros(shape),
    "ratings": lambda rng, shape: rng.integers(1, 6, shape).astype(float),
    "huge": lambda rng, shape: rng.standard_normal(shape) * 1e300,
    "largest": lambda rng, shape: rng.choice([-1.0, 1.0], shape) * np.finfo(float).max,
    "tiny": lambda rng, shape: rng.standard_normal(shape) * 1e-300,
    "subnormal": lambda rng, shape: rng.integers(-9, 10, shape) * 5e-324,
    "1e30": lambda rng, shape: rng.standard_normal(shape) * 1e30,
    "1e-30": lambda rng, shape: rng.standard_normal(shape) * 1e-30,
    "1e12": lambda rng, shape: rng.uniform(-1, 1, shape) * 1e12,
    "1e-9": lambda rng, shape: rng.uniform(1, 2, shape) * rng.choice([-1e-9, 1e-9], shape),
    "1e75": lambda rng, shape: rng.uniform(-1, 1, shape) * 1e75,
    "1e-75": lambda rng, shape: rng.uniform(1, 2, shape) * rng.choice([-1e-75, 1e-75], shape),
    "two scales": lambda rng, shape: rng.standard_normal(shape) * rng.choice([1e-8, 1e8], shape),
    "all scales": lambda rng, shape: (
        rng.standard_normal(shape) * 10.0 ** rng.integers(-300, 75, shape)
    ),
    "one outlier": lambda rng, shape: np.where(
        rng.random(shape) < 0.1, 1e12, rng.standard_normal(shape)
    ),
    "int64 extremes": lambda rng, shape: rng.choice(
        [np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0], shape
    ),
    "uint64 extremes": lambda rng, shape: rng.choice(
        np.array([2**64 - 1, 2**63, 0], np.uint64), shape
    ),
}

DTYPES = (
    "float64",
    "float32",
    "float16",
    "longdouble",
    ">f8",
    ">f4",
    "int8",
    "int64",
    ">i4",
    "uint64",
    "bool",
    "object",
    "complex",
    "str",
)

#: Memory layouts and containers.
LAYOUTS = (
    "plain",
    "fortran",
    "every second",
    "reversed",
    "read-only",
    "memory-mapped",
    "list",
    "masked",
    "observed",
    "ids",
    "unicode ids",
    "coo",
    "csr",
    "csc",
    "lil",
    "dok",
    "bsr",
    "dia",
    "coo matrix",
    "coo with duplicates",
    "csr unsorted",
    "csr with int64 indices",
)

#: Entries replaced by values that cannot be factorized.
SPOILS = ("none", "NaN", "infinity", "all NaN", "a row", "a column", "all but one")


@dataclass(frozen=True)
class Plan:
    """The description of a matrix; :meth:`make` creates it."""

    m: int
    n: int
    values: str
    dtype: str
    layout: str
    spoil: str
    missing: float
    seed: int

    def make(self) -> Any:
        """The matrix, in its container."""
        rng = np.random.default_rng(self.seed)
        with np.errstate(all="ignore"):
            array = _cast(VALUES[self.values](rng, (self.m, self.n)), self.dtype)
        if array.dtype.kind == "f":
            array[rng.random(array.shape) < self.missing] = np.nan
            _spoil(array, self.spoil, rng)
        return _held(array, self.layout, rng)


def plans(usual: bool = False) -> st.SearchStrategy[Plan]:
    """All plans; with ``usual``, mostly those of matrices that can be fitted."""
    small = st.integers(1, 7)
    dtypes = ("float64", "float64", "float32")
    layouts = ("plain", "csr", "observed", "ids")
    return st.builds(
        Plan,
        m=small if usual else st.integers(0, 7),
        n=small if usual else st.integers(0, 7),
        values=st.sampled_from(list(VALUES)),
        dtype=st.sampled_from(dtypes) | st.sampled_from(DTYPES)
        if usual
        else st.sampled_from(DTYPES),
        layout=st.sampled_from(layouts) | st.sampled_from(LAYOUTS)
        if usual
        else st.sampled_from(LAYOUTS),
        spoil=st.sampled_from(("none",) * 6 + SPOILS) if usual else st.sampled_from(SPOILS),
        missing=st.sampled_from((0.0, 0.3, 0.7)),
        seed=st.integers(0, 2**32 - 1),
    )


def fingerprint(X: Any) -> list[bytes]:
    """The bytes of all parts of an input, to detect whether it was modified."""
    if isinstance(X, Observed):
        return [a.tobytes() for a in (X.rows.pointers, X.rows.indices, X.rows.values)] + [
            repr((X.row_ids, X.column_ids)).encode()
        ]
    if sp.issparse(X):
        names = ("data", "indices", "indptr", "offsets", "row", "col", "rows")
        held = (
            [getattr(X, name) for name in names if hasattr(X, name)]
            if X.format != "dok"
            else [list(X.items())]
        )
        return [
            one.tobytes()
            if isinstance(one, np.ndarray) and one.dtype != object
            else repr(one).encode()
            for one in held
        ]
    if isinstance(X, np.ma.MaskedArray):
        return [X.data.tobytes(), np.ma.getmaskarray(X).tobytes()]
    return [X.tobytes() if isinstance(X, np.ndarray) and X.dtype != object else repr(X).encode()]


def _cast(array: Any, dtype: str) -> Any:
    if dtype == "str":
        return array.astype(str)
    return array.astype(dtype)


def _spoil(array: Any, spoil: str, rng: np.random.Generator) -> None:
    if not array.size:
        return
    i = rng.integers(array.shape[0])
    j = rng.integers(array.shape[1])
    if spoil == "NaN":
        array[i, j] = np.nan
    elif spoil == "infinity":
        array[i, j] = rng.choice([-np.inf, np.inf])
    elif spoil == "all NaN":
        array[:] = np.nan
    elif spoil == "a row":
        array[i] = np.nan
    elif spoil == "a column":
        array[:, j] = np.nan
    elif spoil == "all but one":
        kept = array[i, j]
        array[:] = np.nan
        array[i, j] = 1 if np.isnan(kept) else kept


def _held(  # noqa: PLR0911 - one line per layout
    array: Any, layout: str, rng: np.random.Generator
) -> Any:
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "every second":
        return np.repeat(np.repeat(array, 2, 0), 2, 1)[::2, ::2]
    if layout == "reversed":
        return array[::-1, ::-1].copy()[::-1, ::-1]
    if layout == "read-only":
        array.flags.writeable = False
        return array
    if layout == "memory-mapped":
        return _mapped(array)
    if layout == "list":
        return array.tolist()
    if layout == "masked":
        return np.ma.MaskedArray(array, rng.random(array.shape) < 0.3)
    if layout in ("observed", "ids", "unicode ids"):
        return _observed(array, layout)
    if layout == "plain" or array.dtype.kind not in "biufc" or not array.size:
        return array
    return _sparse(array, layout, rng)


def _mapped(array: Any) -> Any:
    if array.dtype == object or not array.size:
        return array
    with tempfile.TemporaryFile() as file:
        file.write(array.tobytes())
        file.flush()
        return np.memmap(file, array.dtype, "r", shape=array.shape)


def _observed(array: Any, layout: str) -> Any:
    """Entries as Observed if possible, otherwise unchanged."""
    try:
        made = Observed.from_dense(array)
    except (ValueError, TypeError):
        return array
    if layout == "observed":
        return made
    names = (
        ("é", "e\u0301", "漢", "\U0001f600", "", " ", "\u202e", "\x00", "<b>", "a" * 300)
        if layout == "unicode ids"
        else None
    )
    rows, columns = (
        [names[k % 10] + "·" * (k // 10) if names else (k, str(k)) for k in range(size)]
        for size in made.shape
    )
    return Observed(made.rows, made.shape, rows, columns)


def _sparse(array: Any, layout: str, rng: np.random.Generator) -> Any:
    """A sparse array of the entries that are not missing, with some explicit zeros."""
    kind = layout.split(maxsplit=1)[0]
    if array.dtype.char in "eg" or not array.dtype.isnative:
        array = array.astype(np.float64)  # SciPy has no sparse arrays of these
    stored = ~np.isnan(array) if array.dtype.kind == "f" else rng.random(array.shape) < 0.7
    i, j = np.nonzero(stored)
    made = sp.coo_array((array[stored], (i, j)), array.shape)
    if layout == "coo with duplicates" and len(i):
        made = sp.coo_array(
            (np.append(made.data, made.data[0]), (np.append(i, i[0]), np.append(j, j[0]))),
            array.shape,
        )
    if layout == "coo matrix":
        return sp.coo_matrix(made)
    made = made if kind == "coo" else made.asformat(kind)
    if layout == "csr unsorted" and made.nnz:
        made.indices = made.indices.copy()
        for k in range(made.shape[0]):
            part = slice(made.indptr[k], made.indptr[k + 1])
            made.indices[part] = made.indices[part][::-1].copy()
            made.data[part] = made.data[part][::-1].copy()
    if layout == "csr with int64 indices":
        made.indices = made.indices.astype(np.int64)
        made.indptr = made.indptr.astype(np.int64)
    return made
