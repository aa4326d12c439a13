"""Checks of the sizes in a header against the size of the file, before memory is allocated."""

from __future__ import annotations

from robustmf.io.reading.source import Source

#: Largest ratio of the size of the data to that of the compressed file which is accepted for data
#: of more than a gigabyte; ratings are not compressible to that extent.
_MAX_COMPRESSION = 200
_GIGABYTE = 10**9


def require_plausible_size(source: Source, claimed: int, unit: str, packed: bool = True) -> None:
    """Refuse a claimed number of bytes that the file cannot contain, compressed if ``packed``."""
    size = source.path.stat().st_size
    if claimed > (max(_GIGABYTE, _MAX_COMPRESSION * size) if packed else size):
        raise source.fault(
            f"claims at least {claimed:.3g} {unit}, but the file has {size}; "
            "it is damaged or malicious"
        )


def require_plausible_shape(source: Source, shape: tuple[int, int], stored: int) -> None:
    """Refuse a shape whose pointers alone would exhaust the memory."""
    if max(shape) > max(10**8, 100 * stored):
        raise source.fault(
            f"a shape of {shape[0]} x {shape[1]} for {stored} entries; "
            "number rows and columns without gaps, or read them as ids from text"
        )
