"""Reader of sparse matrices in SciPy's npz format; headers are checked before arrays are read."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp

from robustmf.data.observed import Observed
from robustmf.exceptions import MalformedFileError
from robustmf.io.reading.size_checks import require_plausible_shape, require_plausible_size
from robustmf.io.reading.source import Source

#: What NumPy, SciPy and zipfile raise for damaged files.
_READ_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    OSError,
    EOFError,
    RuntimeError,  # a member is encrypted, or compressed by another method
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

#: Kinds of the dtypes of members other than indices, pointers and shapes, which are integers.
_KINDS = {"data": "biufc", "format": "SU", "_is_array": "b"}


def read_npz(source: Source) -> Observed:
    """Read a file of :func:`scipy.sparse.save_npz`; every stored entry is observed.

    Nothing is unpickled.
    """
    with _errors_attributed_to(source):
        with zipfile.ZipFile(source.path) as archive:
            size = sum(_array_bytes(source, archive, info) for info in archive.infolist())
            require_plausible_size(source, size, "bytes of numbers")
        matrix = sp.load_npz(source.path)
        if matrix.format in ("csr", "csc"):
            # without this check SciPy would follow invalid pointers out of bounds
            matrix.check_format(full_check=True)
        require_plausible_shape(source, matrix.shape, matrix.nnz)
        return Observed.from_sparse(matrix)


def _array_bytes(source: Source, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Bytes of the array in a member by its header, which must agree with the archive."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size + member.tell() != info.file_size:
            raise source.fault(
                f"{info.filename} claims {math.prod(shape):.3g} numbers of {dtype}, "
                f"which does not agree with its {info.file_size} bytes"
            )
        if dtype.kind not in _KINDS.get(info.filename.removesuffix(".npy"), "iu"):
            raise source.fault(f"{info.filename} has dtype {dtype}; expected integers")
        return size


@contextmanager
def _errors_attributed_to(source: Source) -> Iterator[None]:
    """Convert the errors of NumPy and SciPy to :class:`MalformedFileError`."""
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        yield
    except MalformedFileError:
        raise
    except _READ_ERRORS as error:
        raise source.fault(" ".join(str(error).split()) or type(error).__name__) from None
