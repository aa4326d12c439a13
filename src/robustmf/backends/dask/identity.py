"""Memory that arrays and lists of ids take."""

from __future__ import annotations

from typing import Any

import numpy as np

_ID_BYTES = 80  # of an id as an object, and its place in a list


def bytes_of(*parts: Any) -> int:
    """Bytes of arrays and of lists of ids, about."""
    return sum(
        part.nbytes if isinstance(part, np.ndarray) else _ID_BYTES * len(part)
        for part in parts
        if part is not None
    )
