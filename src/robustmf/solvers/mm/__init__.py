"""Majorization–minimization with a convex surrogate, and the inner solvers that minimize it."""

from __future__ import annotations

from collections.abc import Callable

from robustmf.solvers.mm.apg import SparseAPG
from robustmf.solvers.mm.apg_dense import DenseAPG
from robustmf.solvers.mm.inner import Increment, InnerSolver
from robustmf.solvers.mm.ladmpsap import LADMPSAP
from robustmf.solvers.mm.options import INNER_SOLVERS, MM

__all__ = [
    "INNER_SOLVERS",
    "LADMPSAP",
    "MM",
    "DenseAPG",
    "Increment",
    "InnerSolver",
    "SparseAPG",
    "make_inner",
]

_INNER: dict[str, Callable[[], InnerSolver]] = {
    "apg": SparseAPG,
    "apg-dense": DenseAPG,
    "ladmpsap": LADMPSAP,
}


def make_inner(options: MM) -> InnerSolver:
    """A new inner solver of the kind that the options name."""
    return _INNER[options.inner]()
