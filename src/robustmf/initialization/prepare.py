"""Before the iterations: a start, the noise seen there, λ and biases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.factorization import Factorization
from robustmf.initialization.graduated import Found, better_of, graduated_start
from robustmf.initialization.initial_point import (
    Start,
    bias_start,
    given_factors,
    make_start,
    without_biases,
)
from robustmf.initialization.problem import Problem, interpolated_sigma, sampled_entries
from robustmf.initialization.regularization import Choice, choose
from robustmf.initialization.scales import Held, Scales, least_sigma, power
from robustmf.losses import L1, smoothed
from robustmf.solvers.objective import Objective
from robustmf.solvers.registry import choose_solver
from robustmf.solvers.settings import Init, Settings
from robustmf.solvers.varpro import oriented, varpro_start

Array = NDArray[np.floating[Any]]

#: Half-width of the tip of a start by ``varpro``, in units of the values' standard deviation; its noise is not taken to be less.
_START_TIP = 1e-4

#: ``varpro`` takes noise to be so many times what the residuals show, of its l1 fit on the way and of the start that is kept at the end: a
#: long side has few entries a column, and one that θ rejects leaves its column all but undetermined. (Of a smooth loss's residuals the
#: smallest are left out too, as if they were zero for the parameters spent: that is wider still.)
_WIDER = 2.0

#: Share of the paper's λ that stays where there is no noise: the factors of rows with few entries are then still determined.
_TRACE = 1e-6

#: Noise, in units of the spread, that the search for λ begins with.
_LITTLE = 0.1


@dataclass(frozen=True)
class Prepared:
    """What the iterations begin with: the start, σ̂ there, biases (``center`` is None where there are none), λ, and the solver."""

    U: Array
    V: Array
    sigma: float
    center: float | None
    row_bias: Array
    column_bias: Array
    reg: float
    bias_unit: float
    solver: str
    reason: str

    def parts(self) -> dict[str, Any]:
        """The fields by name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def turned(self) -> Prepared:
        """The same for the transposed matrix."""
        return replace(
            self, U=self.V, V=self.U, row_bias=self.column_bias, column_bias=self.row_bias
        )


def prepare(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    solver: str,
    reason: str,
) -> Prepared:
    """Start, λ and biases; the solver may be another than the one asked for where biases were chosen.

    A matrix and its transpose have the same start, to the bit: which side is taken for the rows depends on the entries alone.
    """
    asked = partial(
        choose_solver,
        settings.solver,
        operations.observed,
        settings.rank,
        settings.loss,
        False,
        operations.capabilities.host_arrays,
    )
    if _is_upright(operations, sample_weights):
        return _prepared(settings, operations, sample_weights, rng, solver, reason, asked)
    weights = None if sample_weights is None else sample_weights[operations.observed.column_order]
    observed = operations.observed
    if not isinstance(settings.init, (str, Factorization)):
        # before it is turned: what is wrong is said of the matrix as it was given
        settings = replace(
            settings,
            init=given_factors(settings.init, observed.shape, settings.rank, observed.dtype),
        )
    turned = replace(settings, init=_turned(settings.init))
    return _prepared(turned, operations.transposed, weights, rng, solver, reason, asked).turned()


def _is_upright(operations: EntryOperations, sample_weights: Array | None) -> bool:
    """Whether the rows are the longer side; of a square matrix, the side whose sums are the larger, or else the first difference."""
    m, n = operations.observed.shape
    if m != n:
        return m > n
    rows, columns = operations.observed.rows, operations.observed.columns
    values = weighted = (rows.values, columns.values)
    told: list[tuple[Any, Any]] = [
        (rows.counts, columns.counts),
        (rows.indices, columns.indices),
        values,
    ]
    if sample_weights is not None:
        turned = sample_weights[operations.observed.column_order]
        weighted = (rows.values * sample_weights, columns.values * turned)
        told.append((sample_weights, turned))
    # each as sums of its own rows: column sums are added up in another order
    by_row, by_column = (
        float(np.square(side.sums(x)[0]).sum())
        for side, x in zip((operations, operations.transposed), weighted, strict=True)
    )
    if by_row != by_column:
        return by_row > by_column
    for pair in told:
        one, other = map(np.asarray, pair)
        differ = np.flatnonzero(one != other)
        if len(differ):
            return bool(one[differ[0]] > other[differ[0]])
    return True


def _turned(init: Init | Factorization) -> Init | Factorization:
    """What starts the transposed matrix as ``init`` does the matrix."""
    if isinstance(init, str):
        return init
    if isinstance(init, Factorization):
        return init.transposed
    return init[1], init[0]


def _prepared(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    solver: str,
    reason: str,
    with_biases: Callable[[], tuple[str, str]],
) -> Prepared:
    """``with_biases`` says which solver there is, and why, where biases were chosen."""
    paper = settings.reg
    if settings.auto_reg:
        settings, paper = in_units(settings, Problem(operations, settings.rank, settings.reg))
    begun = _begin(settings, operations, sample_weights, rng, solver)
    if settings.auto_reg and begun.start.ridge is not None:
        if settings.loss.degree == 2:
            settings = replace(settings, reg=max(settings.reg, begun.start.ridge))
        chosen = _chosen(settings, operations, sample_weights, rng) if begun.start.weak else None
        if chosen is not None:
            anew = begun.start.lost or chosen.bias is not begun.bias
            init: Init = "ridge" if anew else (np.asarray(begun.start.U), np.asarray(begun.start.V))
            settings = replace(settings, reg=chosen.reg, bias=chosen.bias, init=init)
            if chosen.bias:
                solver, reason = with_biases()
            begun = _begin(settings, operations, sample_weights, rng, solver)
        elif begun.start.lost:
            settings = replace(settings, reg=max(settings.reg, paper))
            begun = _begin(settings, operations, sample_weights, rng, solver)
    start, typical = (
        begun.start,
        Held(sampled_entries(operations.observed)[2]).distances(0.0).median(),
    )
    sigma = max(start.sigma, least_sigma(typical, operations.observed.dtype))
    return Prepared(
        start.U, start.V, sigma, begun.center, begun.row_bias, begun.column_bias,
        settings.reg, settings.bias_unit, solver, reason,
    )  # fmt: skip


def in_units(settings: Settings, scales: Scales) -> tuple[Settings, float]:
    """Settings with a first λ and the unit of biases, in units of the data; and the paper's λ in these."""
    paper = _scaled_reg(settings, scales)
    trace = _TRACE if _follows_noise(settings, scales) else 1.0
    return replace(settings, reg=paper * trace, bias_unit=float(np.sqrt(scales.spread))), paper


@dataclass(frozen=True)
class _Begun:
    """A start, and the biases to start with; ``center`` is None where the model has none."""

    start: Start
    center: float | None
    row_bias: Array
    column_bias: Array

    @property
    def bias(self) -> bool:
        return self.center is not None


def _begin(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    solver: str,
) -> _Begun:
    m, n = operations.observed.shape
    dtype = operations.observed.dtype
    center: float | None = None
    row_bias, column_bias = (operations.array(np.zeros((k, 1), dtype)) for k in (m, n))
    if settings.bias is True:
        init = settings.init
        if isinstance(init, Factorization):
            center = init.center
            row_bias = init.row_bias[:, None]
            column_bias = init.column_bias[:, None]
        else:
            center, row_bias, column_bias = bias_start(
                operations, settings.reg / (settings.bias_unit * settings.bias_unit)
            )
    if sample_weights is not None and not sample_weights.all():
        # entries without weight do not shape the start either
        operations = operations.on(operations.observed.select(sample_weights > 0))
    return _Begun(
        _start(settings, operations, center, row_bias, column_bias, rng, solver),
        center,
        row_bias,
        column_bias,
    )


def _chosen(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
) -> Choice | None:
    """λ, and biases where they are open, by what predicts entries set aside."""
    roomy = operations.capabilities.allows_rank(settings.rank + 1)  # a bias counts as one
    free = (
        settings.bias == "auto"
        and settings.solver in ("auto", "irls")
        and not settings.certify
        and roomy
    )
    biases = (False, True) if free else (settings.bias is True,)
    return choose(
        settings.rank, settings.loss_at, partial(_least_reg, settings), settings.reg_by_count, settings.bias_unit,
        operations, sample_weights, settings.bounds, biases, rng,
    )  # fmt: skip


def _start(
    settings: Settings,
    operations: EntryOperations,
    center: float | None,
    row_bias: Array,
    column_bias: Array,
    rng: np.random.Generator,
    solver: str,
) -> Start:
    if solver == "varpro" and settings.init == "auto":
        return _varpro_start(settings, operations, rng)
    if center is not None:
        operations = without_biases(operations, center, row_bias, column_bias)
    reg = average_reg(settings, operations.observed.n_entries, operations.observed.shape)
    return make_start(
        settings.init,
        Problem(operations, settings.rank, reg, settings.loss.degree),
        settings.loss,
        rng,
    )


def average_reg(settings: Settings, n_entries: int, shape: tuple[int, int]) -> float:
    """λ of an average row or column, of the side that has fewer entries in one."""
    return settings.reg * (n_entries / max(shape)) if settings.reg_by_count else settings.reg


def _varpro_start(
    settings: Settings, operations: EntryOperations, rng: np.random.Generator
) -> Start:
    """The better of two starts.

    Variable projection from the l1 loss, which needs no θ and gives one; and the graduated start, which is not fooled by outliers
    that form a pattern of their own.
    """
    operations, swapped = oriented(operations)
    problem = Problem(operations, settings.rank, settings.reg, settings.loss.degree)
    size = float(np.std(operations.observed.rows.values)) or 1.0
    tip = _START_TIP * size
    follows_noise = settings.auto_theta and settings.loss.degree == 2 and problem.has_enough_entries

    def width(residual: Array) -> float:
        return max(
            _WIDER
            * interpolated_sigma(residual, problem.free_parameters / operations.observed.n_entries),
            tip,
        )

    def objective_at(residual: Array) -> Objective:
        if not settings.auto_theta:
            return Objective(smoothed(settings.loss, tip), settings.reg)
        if not follows_noise:
            return Objective(
                smoothed(L1(), tip), problem.reg_for(L1.degree, settings.reg, settings.loss.degree)
            )
        sigma = width(residual)
        return Objective(
            settings.loss_at(sigma), problem.ridge(sigma) if settings.auto_reg else settings.reg
        )

    U, V = varpro_start(operations, settings.rank, objective_at, rng)
    dtype = operations.observed.dtype
    U, V = np.ascontiguousarray(U, dtype), np.ascontiguousarray(V, dtype)
    best = Found(U, V, problem.sigma(problem.residuals(U, V)), sure=False)
    if settings.loss.robust:
        best = better_of(problem, best, graduated_start(problem, rng))
    start = Start.of(best, problem)
    if follows_noise:
        # that of the start which is kept: the other may have ended in a poor valley
        start = replace(start, sigma=max(start.sigma, width(problem.residuals(best.U, best.V))))
    return replace(start, U=best.V, V=best.U) if swapped else start


def _scaled_reg(settings: Settings, scales: Scales) -> float:
    """The paper's λ in units of the data."""
    degree = 1 if settings.loss.degree is None else settings.loss.degree
    return float(settings.reg * power(scales.paper_unit, degree - 1))


def _follows_noise(settings: Settings, scales: Scales) -> bool:
    """Whether λ will be that of the noise which the start finds: the losses with a noise to speak of, and entries enough to see it."""
    graduated = settings.loss.robust and isinstance(settings.init, str) and settings.init == "auto"
    return graduated and settings.loss.degree == 2 and scales.has_enough_entries


def _least_reg(settings: Settings, problem: Problem) -> float:
    """Where to begin with λ when the noise is not known: where it would be right for noise far below the spread."""
    return (
        float(problem.ridge(_LITTLE * problem.spread))
        if settings.loss.degree == 2
        else settings.reg
    )
