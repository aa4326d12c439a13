"""What a header claims is checked against the size of its file before any of it is believed."""

from __future__ import annotations

from robustmf.io.reading.source import Source

#: No file of ratings is packed tighter than this; beyond it (and beyond a gigabyte) a claim is a trap or an accident.
_EXPANSION = 200
_GIGABYTE = 10**9


def require_plausible(source: Source, claimed: int, unit: str, packed: bool = True) -> None:
    """Refuse claims that the bytes of the file cannot hold."""
    there = source.path.stat().st_size
    if claimed > (max(_GIGABYTE, _EXPANSION * there) if packed else there):
        raise source.fault(
            f"claims at least {claimed:.3g} {unit}, but the file has {there}; it is damaged or a trap"
        )


def require_plausible_shape(source: Source, shape: tuple[int, int], stored: int) -> None:
    """Refuse shapes whose pointers alone would fill the memory."""
    if max(shape) > max(10**8, 100 * stored):
        raise source.fault(
            f"a shape of {shape[0]} x {shape[1]} for {stored} entries; number rows and columns without gaps, or read them as ids from text"
        )
