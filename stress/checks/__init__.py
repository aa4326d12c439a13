"""One module a check; see :mod:`stress`."""

from __future__ import annotations

import pkgutil


def names() -> list[str]:
    """The checks there are, in the order of their names."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))
