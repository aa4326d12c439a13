"""Solvers for the surrogate: each takes a :class:`Surrogate` and returns increments with a certificate."""

from __future__ import annotations

from collections.abc import Callable

from robustmf.solvers.mm.apg import SparseAPG
from robustmf.solvers.mm.apg_dense import DenseAPG
from robustmf.solvers.mm.inner import Increment, InnerRule, InnerSolver
from robustmf.solvers.mm.ladmpsap import LADMPSAP

__all__ = [
    "LADMPSAP",
    "DenseAPG",
    "Increment",
    "InnerRule",
    "InnerSolver",
    "SparseAPG",
    "inner_names",
    "make_inner",
]

_REGISTRY: dict[str, Callable[[], InnerSolver]] = {
    "apg": SparseAPG,
    "apg-dense": DenseAPG,
    "ladmpsap": LADMPSAP,
}


def inner_names() -> list[str]:
    """The names that :func:`make_inner` knows."""
    return list(_REGISTRY)


def make_inner(name: str) -> InnerSolver:
    """An inner solver by its name, fresh."""
    if name not in _REGISTRY:
        raise ValueError(f"inner must be one of {', '.join(_REGISTRY)}, got inner={name!r}")
    return _REGISTRY[name]()
