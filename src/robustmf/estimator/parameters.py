"""The parameters of an estimator: checks, the settings of a fit, and the memory that it takes.

All functions read the parameters as attributes of an estimator, a :class:`robustmf.RobustMF`.
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
from robustmf.initialization.blocks import searched_size
from robustmf.initialization.initial_point import check_init
from robustmf.initialization.problem import OPTIONS as PROBLEM
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


def check(estimator: Any, shape: tuple[int, int] | None = None) -> None:
    """Raise for invalid parameters; without ``shape``, before the data are read."""
    require_rank(estimator.rank, shape)
    require_integer("max_iter", estimator.max_iter, 0)
    require_integer("n_init", estimator.n_init, 1)
    require_integer("patience", estimator.patience, 1)
    require_flag("reg_by_count", estimator.reg_by_count)
    if not isinstance(estimator.certify, MM):
        require_flag("certify", estimator.certify, also="MM(...)")
    if not isinstance(estimator.bias, str) or estimator.bias != "auto":
        require_flag("bias", estimator.bias, also="'auto'")
    require_flag("nonnegative", estimator.nonnegative)
    if estimator.nonnegative and _bias(estimator) is True:
        raise ValueError(
            "nonnegative=True is for a model without biases: use bias='auto' or False, "
            "got bias=True"
        )
    require_callables("callbacks", estimator.callbacks)
    require_fraction("validation_fraction", estimator.validation_fraction)
    if not finds_bounds(estimator):
        require_bounds(estimator.bounds)
    if estimator.theta is not None and not _is_one_of(estimator.theta, "auto"):
        require_positive("theta", estimator.theta, also="'auto' or None")
    if not _is_one_of(estimator.reg, "auto", "paper"):
        require_positive("reg", estimator.reg, also="'auto' or 'paper'")
    require_positive("tol", estimator.tol, zero=True)


def _is_one_of(value: Any, *names: str) -> bool:
    return isinstance(value, str) and value in names


# --- Settings of a fit ---


def settings_of(
    estimator: Any, shape: tuple[int, int], values: Array, shown: Sequence[Callback] = ()
) -> Settings:
    """What to fit and how.

    Parameters
    ----------
    estimator : RobustMF
    shape : (int, int)
        Shape of the matrix.
    values : array
        Those of the entries, or of a sample, in which a rating scale is looked for.
    shown : sequence of callables, default=()
        Callbacks beside the user's own.
    """
    automatic_reg = isinstance(estimator.reg, str)
    solver, mm = name_and_options(estimator.solver)
    found = rating_scale(values) if finds_bounds(estimator) else UNBOUNDED
    return Settings(
        rank=_rank_before_fit(estimator, shape),
        auto_rank=finds_rank(estimator),
        loss=_loss(estimator),
        auto_theta=estimator.theta == "auto" and isinstance(estimator.loss, str),
        reg=paper_reg(shape) if automatic_reg else float(estimator.reg),
        auto_reg=estimator.reg == "auto",
        reg_by_count=estimator.reg_by_count,
        bias=False if estimator.nonnegative else _bias(estimator),
        bias_unit=1.0,
        nonnegative=bool(estimator.nonnegative),
        solver=solver,
        mm=mm,
        init=estimator.init,
        n_init=int(estimator.n_init),
        certify=_certifying_options(estimator),
        max_iter=int(estimator.max_iter),
        tol=float(estimator.tol),
        callbacks=[*(estimator.callbacks or ()), *shown],
        validation_fraction=estimator.validation_fraction,
        patience=int(estimator.patience),
        bounds=bounds_of(estimator, found),
    )


def finds_rank(estimator: Any) -> bool:
    """Whether a fit finds the rank: ``rank="auto"``, and no initial factors are given."""
    return bool(estimator.rank == "auto") and isinstance(estimator.init, str)


def rank_text(estimator: Any) -> str:
    """The rank of a fitted estimator, and whether it was found or given."""
    return f"rank {estimator.rank_}, {'found' if finds_rank(estimator) else 'given'}"


def finds_bounds(estimator: Any) -> bool:
    """Whether a fit looks for a rating scale: ``bounds="auto"``."""
    return isinstance(estimator.bounds, str) and estimator.bounds == "auto"


def bounds_of(estimator: Any, found: tuple[float, float]) -> tuple[float, float]:
    """The given bounds, or those that were ``found`` with "auto"."""
    return found if finds_bounds(estimator) else require_bounds(estimator.bounds)


def _loss(estimator: Any) -> Loss:
    return make_loss(estimator.loss, None if estimator.theta == "auto" else estimator.theta)


def _bias(estimator: Any) -> bool | Literal["auto"]:
    return "auto" if estimator.bias == "auto" else bool(estimator.bias)


def _certifying_options(estimator: Any) -> MM | None:
    """The options of the "mm" iterations that certify a critical point, if any."""
    if not estimator.certify:
        return None
    options = [option for option in (estimator.certify, estimator.solver) if isinstance(option, MM)]
    return (options[0] if options else MM()).certifying()


def _rank_before_fit(estimator: Any, shape: tuple[int, int]) -> int:
    """The given rank, or that of initial factors (U, V); an assumed one if it will be found."""
    if estimator.rank != "auto":
        return int(estimator.rank)
    if isinstance(estimator.init, str):
        return min(OPTIONS.assumed_rank, *shape)
    check_init(estimator.init)
    try:
        first = np.asarray(estimator.init[0])
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
    estimator: Any, shape: tuple[int, int], n_entries: int, dtype: Any, source_bytes: int
) -> int:
    """Bytes that a fit takes; see :meth:`robustmf.RobustMF.memory_estimate`."""
    backend = get_backend(estimator.device)
    bias = estimator.bias is True
    rank = _rank_before_fit(estimator, shape)
    spec, _ = choose_solver(
        name_and_options(estimator.solver)[0],
        shape,
        n_entries,
        rank,
        _loss(estimator),
        plain_model=not bias and not estimator.reg_by_count,
        capabilities=backend.capabilities,
        nonnegative=bool(estimator.nonnegative),
    )
    size = ProblemSize(shape, n_entries, rank + int(bias), np.dtype(dtype).itemsize)
    automatic = isinstance(estimator.init, str) and estimator.init == "auto"
    plan = FitPlan(
        spec.memory,
        scale_sample=PROBLEM.sample,
        graduated=automatic,
        searched=searched_size(size) if automatic else None,
        held_out=estimator.validation_fraction is not None,
        bias=bias,
        source_bytes=int(source_bytes),
    )
    return backend.fit_bytes(size, plan)
