"""Sparse matrices in SciPy's npz; what a header claims is checked before any of it is believed."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp

from robustmf.data.observed import Observed
from robustmf.exceptions import MalformedFileError
from robustmf.io.reading.plausible import require_plausible, require_plausible_shape
from robustmf.io.reading.source import Source

_DAMAGED = (zipfile.BadZipFile, zlib.error)


def read_npz(source: Source) -> Observed:
    """What :func:`scipy.sparse.save_npz` wrote: every stored entry is observed. Nothing is unpickled."""
    with _faults_named(source):
        with zipfile.ZipFile(source.path) as archive:
            require_plausible(
                source,
                sum(_array_bytes(source, archive, info) for info in archive.infolist()),
                "bytes of numbers",
            )
        matrix = sp.load_npz(source.path)
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)  # SciPy would follow wrong pointers out of bounds
        require_plausible_shape(source, matrix.shape, matrix.nnz)
        return Observed.from_sparse(matrix)


def _array_bytes(source: Source, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Bytes of the array in a member, by its header, which must agree with the archive."""
    with archive.open(info) as member:
        first = np.lib.format.read_magic(member) == (1, 0)
        shape, _, dtype = (
            np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        )(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size + member.tell() != info.file_size:
            raise source.fault(
                f"{info.filename} claims {math.prod(shape):.3g} numbers of {dtype}, not what its {info.file_size} bytes are"
            )
        return size


@contextmanager
def _faults_named(source: Source) -> Iterator[None]:
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        yield
    except MalformedFileError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        OSError,
        EOFError,
        NotImplementedError,
        *_DAMAGED,
    ) as error:
        raise source.fault(" ".join(str(error).split()) or type(error).__name__) from None
