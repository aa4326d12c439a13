"""One module per check; see :mod:`stress`."""

from __future__ import annotations

import pkgutil


def names() -> list[str]:
    """The names of the checks, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))
