"""Checks of the sizes in a header against the size of the file, before memory is allocated."""

from __future__ import annotations

from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.source import Source, largest_size


def require_plausible_size(source: Source, claimed: int, unit: str, packed: bool = True) -> None:
    """Refuse a claimed number of bytes that the file cannot contain, compressed if ``packed``."""
    size = source.path.stat().st_size
    if claimed > (largest_size(size) if packed else size):
        raise source.fault(
            f"claims at least {claimed:.3g} {unit}, but the file has {size}; "
            "it is damaged or malicious"
        )


def require_plausible_shape(source: Source, shape: tuple[int, int], stored: int) -> None:
    """Refuse a shape whose pointers alone would exhaust the memory."""
    if max(shape) > max(OPTIONS.small_shape, OPTIONS.max_shape_per_entry * stored):
        raise source.fault(
            f"a shape of {shape[0]} x {shape[1]} for {stored} entries; "
            "number rows and columns without gaps, or read them as ids from text"
        )
