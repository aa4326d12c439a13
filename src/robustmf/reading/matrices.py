"""Sparse matrices in SciPy's npz and in Matrix Market files; what a header claims is checked before any of it is believed."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from robustmf.exceptions import MalformedFileError
from robustmf.observed import Observed
from robustmf.reading.source import Source

#: No file of ratings is packed tighter than this; beyond it (and beyond a gigabyte) a claim is a trap or an accident.
_EXPANSION = 200
_GIGABYTE = 10**9
_DAMAGED = (zipfile.BadZipFile, zlib.error)


def read_npz(source: Source) -> Observed:
    """What :func:`scipy.sparse.save_npz` wrote: every stored entry is observed. Nothing is unpickled."""
    with _faults_named(source):
        with zipfile.ZipFile(source.path) as archive:
            _require_plausible(source, sum(_array_bytes(source, archive, info) for info in archive.infolist()), "bytes of numbers")
        matrix = sp.load_npz(source.path)
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)  # SciPy would follow wrong pointers out of bounds
        return _observed(source, matrix)


def _array_bytes(source: Source, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Bytes of the array in a member, by its header, which must agree with the archive."""
    with archive.open(info) as member:
        first = np.lib.format.read_magic(member) == (1, 0)
        shape, _, dtype = (np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0)(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size + member.tell() != info.file_size:
            raise source.fault(f"{info.filename} claims {math.prod(shape):.3g} numbers of {dtype}, not what its {info.file_size} bytes are")
        return size


def read_matrix_market(source: Source) -> Observed:
    """A Matrix Market file: the entries of a coordinate file, all entries of an array file."""
    with _faults_named(source):
        _, _, entries, form, _, _ = scipy.io.mminfo(source.path)
        # the shortest line of an entry is "1 1" with its newline, of an array "1"
        shortest, packed = 4 if form == "coordinate" else 2, source.path.suffix != ".mtx"
        _require_plausible(source, shortest * entries, "bytes of text", packed)
        return _observed(source, scipy.io.mmread(source.path))


@contextmanager
def _faults_named(source: Source) -> Iterator[None]:
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        yield
    except MalformedFileError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError, EOFError, NotImplementedError, *_DAMAGED) as error:
        raise source.fault(" ".join(str(error).split()) or type(error).__name__) from None


def _observed(source: Source, matrix: Any) -> Observed:
    m, n = matrix.shape
    stored = matrix.nnz if sp.issparse(matrix) else matrix.size
    if max(m, n) > max(10**8, 100 * stored):
        raise source.fault(
            f"a shape of {m} x {n} for {stored} entries; number rows and columns without gaps, or read them as ids from text"
        )
    return Observed.from_sparse(matrix) if sp.issparse(matrix) else Observed.from_dense(matrix)


def _require_plausible(source: Source, claimed: int, unit: str, packed: bool = True) -> None:
    there = source.path.stat().st_size
    if claimed > (max(_GIGABYTE, _EXPANSION * there) if packed else there):
        raise source.fault(f"claims at least {claimed:.3g} {unit}, but the file has {there}; it is damaged or a trap")
