"""The list of mutants, one module per area; see :mod:`mutants.mutant`."""

from __future__ import annotations

import importlib
import pkgutil

from mutants.mutant import Mutant


def areas() -> list[str]:
    """The names of the areas, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def mutants_of(area: str) -> list[Mutant]:
    """The mutants of an area."""
    return list(importlib.import_module(f"mutants.catalog.{area}").MUTANTS)
