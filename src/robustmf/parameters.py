"""The parameters of an estimator: checks, the settings of a fit, and the memory that it takes.

All functions read the parameters as attributes of a :class:`robustmf.RobustMF`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import FitPlan, ProblemSize
from robustmf.backends.registry import get_backend
from robustmf.data.rating_scale import rating_scale
from robustmf.initialization.initial_point import check_init
from robustmf.initialization.problem import OPTIONS as PROBLEM
from robustmf.initialization.search import searched_size
from robustmf.losses import Loss, make_loss
from robustmf.solvers.base import Callback
from robustmf.solvers.mm.options import MM
from robustmf.solvers.objective import paper_reg
from robustmf.solvers.registry import choose_solver, name_and_options
from robustmf.solvers.settings import Settings
from robustmf.validation import (
    UNBOUNDED,
    require_bounds,
    require_callables,
    require_flag,
    require_fraction,
    require_integer,
    require_positive,
    require_rank,
)

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class MemoryOptions:
    """Constants of estimates of memory.

    Attributes
    ----------
    assumed_rank : int
        The rank that memory is estimated for where ``rank="auto"``; the search may end above it.
    """

    assumed_rank: int = 16


OPTIONS = MemoryOptions()


# --- Checks ---


def check(given: Any, shape: tuple[int, int] | None = None) -> None:
    """Raise for invalid parameters; without ``shape``, before the data are read."""
    require_rank(given.rank, shape)
    require_integer("max_iter", given.max_iter, 0)
    require_integer("n_init", given.n_init, 1)
    require_integer("patience", given.patience, 1)
    require_flag("reg_by_count", given.reg_by_count)
    if not isinstance(given.certify, MM):
        require_flag("certify", given.certify, also="MM(...)")
    if not isinstance(given.bias, str) or given.bias != "auto":
        require_flag("bias", given.bias, also="'auto'")
    require_flag("nonnegative", given.nonnegative)
    if given.nonnegative and _bias(given) is True:
        raise ValueError(
            "nonnegative=True is for a model without biases: use bias='auto' or False, "
            "got bias=True"
        )
    require_callables("callbacks", given.callbacks)
    require_fraction("validation_fraction", given.validation_fraction)
    if not finds_bounds(given):
        require_bounds(given.bounds)
    if given.theta is not None and given.theta != "auto":
        require_positive("theta", given.theta, also="'auto' or None")
    if given.reg not in ("auto", "paper"):
        require_positive("reg", given.reg, also="'auto' or 'paper'")
    require_positive("tol", given.tol, zero=True)


# --- Settings of a fit ---


def settings_of(
    given: Any, shape: tuple[int, int], values: Array, shown: Sequence[Callback] = ()
) -> Settings:
    """What to fit and how.

    Parameters
    ----------
    given : RobustMF
    shape : (int, int)
        Shape of the matrix.
    values : array
        Those of the entries, or of a sample, in which a rating scale is looked for.
    shown : sequence of callables, default=()
        Callbacks beside the user's own.
    """
    automatic_reg = isinstance(given.reg, str)
    solver, mm = name_and_options(given.solver)
    found = rating_scale(values) if finds_bounds(given) else None
    return Settings(
        rank=_rank_before_fit(given, shape),
        auto_rank=finds_rank(given),
        loss=_loss(given),
        auto_theta=given.theta == "auto" and isinstance(given.loss, str),
        reg=paper_reg(shape) if automatic_reg else float(given.reg),
        auto_reg=given.reg == "auto",
        reg_by_count=given.reg_by_count,
        bias=False if given.nonnegative else _bias(given),
        bias_unit=1.0,
        nonnegative=bool(given.nonnegative),
        solver=solver,
        mm=mm,
        init=given.init,
        n_init=int(given.n_init),
        certify=_certifying_options(given),
        max_iter=int(given.max_iter),
        tol=float(given.tol),
        callbacks=[*(given.callbacks or ()), *shown],
        validation_fraction=given.validation_fraction,
        patience=int(given.patience),
        bounds=bounds_of(given, found or UNBOUNDED),
    )


def finds_rank(given: Any) -> bool:
    """Whether a fit finds the rank: ``rank="auto"``, and no initial factors are given."""
    return bool(given.rank == "auto") and isinstance(given.init, str)


def rank_text(given: Any) -> str:
    """The rank of a fitted estimator, and whether it was found or given."""
    return f"rank {given.rank_}, {'found' if finds_rank(given) else 'given'}"


def finds_bounds(given: Any) -> bool:
    """Whether a fit looks for a rating scale: ``bounds="auto"``."""
    return isinstance(given.bounds, str) and given.bounds == "auto"


def bounds_of(given: Any, found: tuple[float, float]) -> tuple[float, float]:
    """The given bounds, or those that were ``found`` with "auto"."""
    return found if finds_bounds(given) else require_bounds(given.bounds)


def _loss(given: Any) -> Loss:
    return make_loss(given.loss, None if given.theta == "auto" else given.theta)


def _bias(given: Any) -> bool | Literal["auto"]:
    return "auto" if given.bias == "auto" else bool(given.bias)


def _certifying_options(given: Any) -> MM | None:
    """The options of the "mm" iterations that certify a critical point, if any."""
    if not given.certify:
        return None
    options = [option for option in (given.certify, given.solver) if isinstance(option, MM)]
    return (options[0] if options else MM()).certifying()


def _rank_before_fit(given: Any, shape: tuple[int, int]) -> int:
    """The given rank, or that of initial factors (U, V); an assumed one if it will be found."""
    if given.rank != "auto":
        return int(given.rank)
    if isinstance(given.init, str):
        return min(OPTIONS.assumed_rank, *shape)
    check_init(given.init)
    try:
        first = np.asarray(given.init[0])
    except ValueError as error:
        raise TypeError(f"init=(U, V) must be two arrays of real numbers: {error}") from None
    if first.ndim != 2 or not 1 <= first.shape[1] <= min(shape):
        raise ValueError(
            f"init=(U, V) must be matrices with 1 to {min(shape)} = min{shape} columns, "
            f"got U of shape {first.shape}"
        )
    return int(first.shape[1])


# --- Memory ---


def fit_bytes(
    given: Any, shape: tuple[int, int], n_entries: int, dtype: Any, source_bytes: int
) -> int:
    """Bytes that a fit takes; see :meth:`robustmf.RobustMF.memory_estimate`."""
    backend = get_backend(given.device)
    bias = given.bias is True
    rank = _rank_before_fit(given, shape)
    spec, _ = choose_solver(
        name_and_options(given.solver)[0],
        shape,
        n_entries,
        rank,
        _loss(given),
        plain_model=not bias and not given.reg_by_count,
        capabilities=backend.capabilities,
        nonnegative=bool(given.nonnegative),
    )
    size = ProblemSize(shape, n_entries, rank + int(bias), np.dtype(dtype).itemsize)
    automatic = isinstance(given.init, str) and given.init == "auto"
    plan = FitPlan(
        spec.memory,
        scale_sample=PROBLEM.sample,
        graduated=automatic,
        searched=searched_size(size) if automatic else None,
        held_out=given.validation_fraction is not None,
        bias=bias,
        source_bytes=int(source_bytes),
    )
    return backend.fit_bytes(size, plan)
