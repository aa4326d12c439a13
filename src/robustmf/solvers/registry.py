"""The solvers by name: the only place that knows the values of the parameter ``solver``.

An entry declares what a solver requires and supports, how it is initialized, the memory it takes
and how it is built. To add a solver, write its class (see
:class:`~robustmf.solvers.base.Resumable`) in a module of this package, and a :class:`SolverSpec`
here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import Capabilities, EntryOperations, SolverMemory
from robustmf.backends.ridge import Ridges
from robustmf.losses import Loss, smoothed
from robustmf.solvers.base import Resumable
from robustmf.solvers.irls import IRLS
from robustmf.solvers.mm.options import MM
from robustmf.solvers.mm.solver import MM_MEMORY, MMSolver, require_concave
from robustmf.solvers.objective import Objective
from robustmf.solvers.settings import Settings
from robustmf.solvers.varpro import OPTIONS as VARPRO
from robustmf.solvers.varpro import VARPRO_MEMORY, VarPro

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SolverProblem:
    """What a solver is built for.

    Attributes
    ----------
    operations : EntryOperations
    loss : Loss
    reg : float
        λ.
    sigma : float
        The noise level at the initial point.
    center : float or None, default=None
        None for a model without biases.
    bias_unit : float, default=1.0
        The unit of biases in augmented factors.
    sample_weights : array over the entries, optional
    reg_by_count : bool, default=False
    ridges : (FactorRidge, FactorRidge), optional
        The ridge of each factor of rows and columns, instead of λ.
    nonnegative : bool, default=False
        Constrain the factors to be non-negative.
    mm : MM, default=MM()
        The options of ``mm``.
    """

    operations: EntryOperations
    loss: Loss
    reg: float
    sigma: float
    center: float | None = None
    bias_unit: float = 1.0
    sample_weights: Array | None = None
    reg_by_count: bool = False
    ridges: Ridges | None = None
    nonnegative: bool = False
    mm: MM = field(default_factory=MM)


class ModelSolver(Resumable, Protocol):
    """A solver of the registry."""

    @property
    def augmented_factors(self) -> tuple[Any, Any]:
        """(U, V) as solved for; with biases, each with its own bias in its unit as last column."""
        ...


class ProblemShape(NamedTuple):
    """What the choice between solvers depends on."""

    shape: tuple[int, int]
    n_entries: int
    rank: int
    loss: Loss


@dataclass(frozen=True)
class SolverSpec:
    """One solver.

    Attributes
    ----------
    name : str
        The value of the parameter ``solver``.
    summary : str
        One line about it.
    build : callable of a SolverProblem
        Makes a :class:`ModelSolver`.
    memory : SolverMemory, default=SolverMemory()
        Its arrays besides the entries and the factors.
    initialized_by_projection : bool, default=False
        Whether ``init="auto"`` is variable projection instead of the search by variational
        inference; see :mod:`robustmf.initialization`.
    supports_biases_and_weights : bool, default=False
        Whether the model may have biases, entry weights and ``reg_by_count``.
    supports_nonnegative : bool, default=False
        Whether factors can be constrained to be non-negative.
    requires_entry_operations : bool, default=True
        Whether the backend must have the capability ``entry_operations``; otherwise its
        :class:`~robustmf.backends.base.Sweeps` suffice.
    requires_host_arrays : bool, default=False
        Whether the backend must have the capability ``host_arrays``.
    check : callable (Loss, MM, Capabilities), optional
        Raises an error, by name, for a loss or options that the solver cannot use.
    suits : callable of a ProblemShape, optional
        The reason to choose it for ``solver="auto"``, or None. Without it the solver must be
        requested.
    criticality : callable of the solver, optional
        Measures the criticality of the last iterate. Other solvers can be followed by a certifying
        run.
    """

    name: str
    summary: str
    build: Callable[[SolverProblem], ModelSolver]
    memory: SolverMemory = field(default_factory=SolverMemory)
    initialized_by_projection: bool = False
    supports_biases_and_weights: bool = False
    supports_nonnegative: bool = False
    requires_entry_operations: bool = True
    requires_host_arrays: bool = False
    check: Callable[[Loss, MM, Capabilities], None] | None = None
    suits: Callable[[ProblemShape], str | None] | None = None
    criticality: Callable[[Any], float] | None = None

    def is_possible(
        self, plain_model: bool, capabilities: Capabilities, nonnegative: bool = False
    ) -> bool:
        """Whether the solver can be used for this model on a backend with these capabilities."""
        conditions = _conditions(self, plain_model, capabilities, nonnegative)
        return all(met for met, _ in conditions)


class SolverChoice(NamedTuple):
    """A solver, and why it is used."""

    spec: SolverSpec
    reason: str


@dataclass(frozen=True)
class EliminationOptions:
    """When eliminating the long side of the matrix is worth its cost.

    Attributes
    ----------
    max_unknowns : int
        The largest number of unknowns of the short side.
    min_ratio : float
        The smallest ratio of the long side to the short one.
    well_filled : float
        From this share of observed entries, sweeps with a smooth loss end equally low in a tenth of
        the time.
    entries_per_parameter : float
        With fewer entries per free parameter neither solver finds the right minimum of a smooth
        loss, and elimination takes up to forty times as long.
    """

    max_unknowns: int = 600
    min_ratio: float = 2.0
    well_filled: float = 0.5
    entries_per_parameter: float = 1.25


OPTIONS = EliminationOptions()


def is_worth_eliminating(
    shape: tuple[int, int], n_entries: int, rank: int, nonsmooth: bool
) -> bool:
    """Whether one side is so short that the other is best eliminated, and sweeps would do worse."""
    short = min(shape)
    long = max(shape)
    least = OPTIONS.entries_per_parameter * rank * (short + long - rank)
    hard = nonsmooth or least <= n_entries < OPTIONS.well_filled * short * long
    return hard and short * rank <= OPTIONS.max_unknowns and long >= OPTIONS.min_ratio * short


def _suits_irls(problem: ProblemShape) -> str:
    m, n = problem.shape
    return f"{m} × {n} with {problem.n_entries} entries: sweeps of small regressions"


def _suits_varpro(problem: ProblemShape) -> str | None:
    m, n = problem.shape
    if not is_worth_eliminating(
        problem.shape, problem.n_entries, problem.rank, problem.loss.concave
    ):
        return None
    return (
        f"{min(m, n)} × {problem.rank} unknowns on the short side of a {m} × {n} matrix: "
        "the long side can be eliminated"
    )


def _build_irls(problem: SolverProblem) -> IRLS:
    return IRLS.on_entries(
        problem.operations,
        Objective(problem.loss, problem.reg),
        problem.sigma,
        problem.center,
        problem.sample_weights,
        problem.reg_by_count,
        problem.bias_unit,
        problem.ridges,
        problem.nonnegative,
    )


def _build_varpro(problem: SolverProblem) -> VarPro:
    loss = smoothed(problem.loss, VARPRO.smoothing * problem.sigma)
    return VarPro(problem.operations, Objective(loss, problem.reg))


def _build_mm(problem: SolverProblem) -> MMSolver:
    return MMSolver(problem.operations, Objective(problem.loss, problem.reg), problem.mm)


def _check_mm(
    loss: Loss, options: MM, capabilities: Capabilities, parameter: str = "solver='mm'"
) -> None:
    require_concave(loss, parameter)
    if options.needs_host_arrays and not capabilities.host_arrays:
        raise ValueError(f"{_needs_host_arrays(f'inner={options.inner!r}')}, or inner='apg'")


_SPECS = (
    SolverSpec(
        name="irls",
        summary="iteratively reweighted least squares by sweeps, for large sparse data",
        build=_build_irls,
        supports_biases_and_weights=True,
        supports_nonnegative=True,
        requires_entry_operations=False,
        suits=_suits_irls,
    ),
    SolverSpec(
        name="varpro",
        summary="variable projection, for few rows or columns and any pattern of entries",
        build=_build_varpro,
        memory=VARPRO_MEMORY,
        initialized_by_projection=True,
        requires_host_arrays=True,
        suits=_suits_varpro,
    ),
    SolverSpec(
        name="mm",
        summary="majorization–minimization, the paper's algorithm, for concave losses",
        build=_build_mm,
        memory=MM_MEMORY,
        check=_check_mm,
        criticality=MMSolver.criticality,
    ),
)

_BY_NAME = {spec.name: spec for spec in _SPECS}

#: The solvers that ``solver="auto"`` considers, in this order.
_AUTOMATIC = (_BY_NAME["varpro"], _BY_NAME["irls"])

#: The solver that certifies a critical point after another one.
CERTIFIER = replace(_BY_NAME["mm"], check=partial(_check_mm, parameter="certify=True"))


def solver_names() -> list[str]:
    """The names of the solvers."""
    return list(_BY_NAME)


def get_solver(name: str) -> SolverSpec:
    """The solver of this name."""
    if not isinstance(name, str) or name not in _BY_NAME:
        names = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"solver must be 'auto', {names} or MM(...), got solver={name!r}")
    return _BY_NAME[name]


def name_and_options(solver: str | MM) -> tuple[str, MM]:
    """The name of the solver in the parameter ``solver``, and the options of ``mm``."""
    return ("mm", solver) if isinstance(solver, MM) else (solver, MM())


def is_automatic(solver: str) -> bool:
    """Whether the parameter ``solver`` leaves the choice to :func:`choose_solver`."""
    return solver == "auto"


def may_have_biases(solver: str) -> bool:
    """Whether a model with biases can be fitted with this value of the parameter ``solver``."""
    return is_automatic(solver) or get_solver(solver).supports_biases_and_weights


def solver_memory(solver: str) -> SolverMemory:
    """The memory of the named solver; that of ``irls`` while the choice is open."""
    return get_solver("irls" if is_automatic(solver) else solver).memory


def choose_solver(
    solver: str,
    shape: tuple[int, int],
    n_entries: int,
    rank: int,
    loss: Loss,
    *,
    plain_model: bool,
    capabilities: Capabilities,
    nonnegative: bool = False,
) -> SolverChoice:
    """The solver for the parameter ``solver``, and the reason.

    Parameters
    ----------
    solver : str
        "auto", or a name.
    plain_model : bool
        Whether the model has no biases, no weights and no ``reg_by_count``.
    capabilities : Capabilities
        Those of the backend.
    nonnegative : bool, default=False
        Whether factors are constrained to be non-negative.
    """
    require_possible(solver, plain_model, capabilities, nonnegative)
    if not is_automatic(solver):
        return SolverChoice(get_solver(solver), "requested")
    problem = ProblemShape(shape, n_entries, rank, loss)
    for spec in _AUTOMATIC:
        if spec.suits is not None and spec.is_possible(plain_model, capabilities, nonnegative):
            reason = spec.suits(problem)
            if reason is not None:
                return SolverChoice(spec, reason)
    raise AssertionError("the last automatic solver suits every problem")


def solver_for(settings: Settings, operations: EntryOperations, plain_model: bool) -> SolverChoice:
    """The solver of these settings for these entries, and the reason; see :func:`choose_solver`."""
    observed = operations.observed
    return choose_solver(
        settings.solver,
        observed.shape,
        observed.n_entries,
        settings.rank,
        settings.loss,
        plain_model=plain_model,
        capabilities=operations.capabilities,
        nonnegative=settings.nonnegative,
    )


def require_possible(
    solver: str,
    plain_model: bool,
    capabilities: Capabilities,
    nonnegative: bool = False,
    *,
    has_rank: bool = True,
    certify: bool = False,
    n_init: int = 1,
) -> None:
    """Refuse parameters that a backend with these capabilities does not support for this model."""
    if not has_rank and not capabilities.entry_operations:
        raise ValueError(
            "rank must be an integer with client=, got rank='auto': the search for the rank needs "
            "all entries in one process; give a number, for example rank=10"
        )
    if nonnegative and not capabilities.nonnegative:
        raise ValueError(
            "nonnegative=True needs all entries in the memory of one machine: fit without client="
        )
    if not is_automatic(solver):
        for met, message in _conditions(get_solver(solver), plain_model, capabilities, nonnegative):
            if not met:
                raise ValueError(message)
    if certify and not CERTIFIER.is_possible(plain_model, capabilities):
        raise ValueError("certify must be False with client=, got certify=True")
    if n_init != 1 and not capabilities.several_initializations:
        raise ValueError(f"n_init must be 1 with client=, got n_init={n_init!r}")


def _conditions(
    spec: SolverSpec, plain_model: bool, capabilities: Capabilities, nonnegative: bool
) -> list[tuple[bool, str]]:
    """Each condition for the use of a solver: whether it is met, and the message if it is not."""
    with_biases = [repr(one.name) for one in _SPECS if one.supports_biases_and_weights]
    constrained = [repr(one.name) for one in _SPECS if one.supports_nonnegative]
    on_any_device = [repr(one.name) for one in _SPECS if not one.requires_host_arrays]
    return [
        (
            plain_model or spec.supports_biases_and_weights,
            f"bias, weights and reg_by_count need solver={' or '.join(with_biases)} (or 'auto'), "
            f"got solver={spec.name!r}",
        ),
        (
            spec.supports_nonnegative or not nonnegative,
            f"nonnegative=True needs solver={' or '.join(constrained)} (or 'auto'), "
            f"got solver={spec.name!r}",
        ),
        (
            capabilities.entry_operations or not spec.requires_entry_operations,
            f"solver={spec.name!r} needs all entries in the memory of one machine: "
            "fit without client=",
        ),
        (
            capabilities.host_arrays or not spec.requires_host_arrays,
            f"{_needs_host_arrays(f'solver={spec.name!r}')}, "
            f"or solver={' or '.join(on_any_device)}",
        ),
    ]


def _needs_host_arrays(parameter: str) -> str:
    return f"{parameter} needs entries in host memory: use device='cpu'"
