"""A whole fit: choose the solver, start, set θ, iterate, certify; once or from several starts."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.data.holdout import Holdout, hold_out, holdout_seed, select_by_hash
from robustmf.exceptions import InterruptedFitWarning, warn_user
from robustmf.initialization.initial_point import check_init
from robustmf.initialization.prepare import Prepared, prepare
from robustmf.io.checkpoint import Checkpoint, Progress
from robustmf.losses import Loss, smoothed
from robustmf.solvers.base import Outcome, require_same_layout, run, warn_of_limit
from robustmf.solvers.irls import IRLS
from robustmf.solvers.mm.solver import MMSolver, require_concave
from robustmf.solvers.objective import Objective
from robustmf.solvers.record import file_record
from robustmf.solvers.registry import choose_solver
from robustmf.solvers.settings import Settings
from robustmf.solvers.varpro import VarPro

Array = NDArray[np.floating[Any]]
_Kept = TypeVar("_Kept", "Fit", Prepared)

_log = logging.getLogger(__name__)

#: Half-width of a kinked loss's rounded tip in ``varpro``, in units of σ̂.
_TIP = 0.01

#: Certifying runs: tolerance of the MM iterations that follow.
_CERTIFY_TOL = 1e-7


@dataclass(frozen=True)
class Fit:
    """The result: factors, biases (zero where the model has none), and how it came about."""

    U: Array
    V: Array
    bias: bool
    center: float
    row_bias: Array
    column_bias: Array
    bias_unit: float
    loss: Loss
    reg: float
    outcome: Outcome
    criticality: float
    solver: str
    reason: str

    def parts(self) -> dict[str, Any]:
        """The fields as plain values, the loss by its θ."""
        plain = {part.name: getattr(self, part.name) for part in fields(self)}
        return plain | {"loss": self.loss.theta, "outcome": self.outcome.parts()}

    @classmethod
    def of(cls, parts: dict[str, Any], loss: Loss) -> Fit:
        """What :meth:`parts` gave, for a fit with this loss at whatever θ."""
        theta = parts["loss"]
        loss = loss if theta == loss.theta else loss.at_scale(theta)
        return cls(**parts | {"loss": loss, "outcome": Outcome(**parts["outcome"])})

    def predictors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        ones = [np.ones_like(A[:, :1]) for A in (self.U, self.V)]
        left = np.hstack([self.U, self.row_bias[:, None], ones[0]])
        return left, np.hstack(
            [self.V, ones[1], self.column_bias[:, None] + self.V.dtype.type(self.center)]
        )


def fit(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """The best of ``n_init`` fits: by the validation error each ends with, or else by the objective."""
    check_init(settings.init)
    plain = settings.bias is not True and sample_weights is None and not settings.reg_by_count
    solver, reason = choose_solver(
        settings.solver,
        operations.observed,
        settings.rank,
        settings.loss,
        plain,
        operations.capabilities.host_arrays,
    )
    if solver == "mm" or settings.certify:
        require_concave(settings.loss)
        options = settings.mm if settings.certify is None else settings.certify
        if options.needs_host_arrays and not operations.capabilities.host_arrays:
            raise ValueError(
                f"inner={options.inner!r} needs device='cpu'; on a GPU use inner='apg'"
            )
    if settings.certify and not plain:
        raise ValueError("certify=True goes with the plain model: no bias, weights or reg_by_count")
    if settings.certify and settings.validation_fraction is not None:
        raise ValueError(
            "certify=True goes on to a critical point, validation_fraction stops before one; choose one of them"
        )
    _log.info("%d × %d with %d entries, rank %d, loss %s", *operations.observed.shape, operations.observed.n_entries, settings.rank,
              settings.loss.name)  # fmt: skip
    _log.info("solver %s: %s", solver, reason)
    progress = Progress()
    if checkpoint is not None:
        progress, rng = checkpoint.open(
            settings.deciding(), operations.observed, sample_weights, rng, operations.array
        )
    streams, holdout = rng.spawn(settings.n_init), None
    if settings.validation_fraction is not None:
        host_weights = None if sample_weights is None else np.asarray(sample_weights)
        # selected on the host: equal seeds hold out the same entries on every device
        selected = select_by_hash(
            operations.observed.to_host(),
            host_weights,
            settings.validation_fraction,
            holdout_seed(streams[0]),
        )
        observed, sample_weights, holdout = hold_out(
            operations.observed, sample_weights, operations.array(selected)
        )
        operations = operations.on(observed)
    with progress.reading():
        fits = [
            _checked(Fit.of(ended, settings.loss), settings.rank, operations)
            for ended in progress.ended
        ]
    with nullcontext() if solver == "irls" else one_blas_thread():
        for stream in streams[len(fits) :]:
            if fits:
                # fits are compared with each other: one model for all
                settings, solver, reason = (
                    replace(settings, bias=fits[0].bias),
                    fits[0].solver,
                    fits[0].reason,
                )
            try:
                fits.append(
                    _fit_once(
                        settings,
                        operations,
                        sample_weights,
                        holdout,
                        stream,
                        solver,
                        reason,
                        progress,
                    )
                )
            except KeyboardInterrupt:
                if not fits:
                    raise KeyboardInterrupt(
                        "fit interrupted while it looked for a start: there is no result to keep yet"
                    ) from None
                warn_user(
                    f"fit interrupted in start {len(fits) + 1} of {settings.n_init}; the best so far is kept",
                    InterruptedFitWarning,
                )
                break
            if fits[-1].outcome.stopped:
                break
            progress.keep_ended(fits[-1].parts())
    best = _best(fits, settings, operations, sample_weights)
    warn_of_limit(
        best.outcome,
        settings.max_iter,
        _certifying_tol(settings) if settings.certify else settings.tol,
    )
    return best


def _checked(found: _Kept, rank: int, operations: EntryOperations) -> _Kept:
    """What a file holds, its arrays those of this fit."""
    sides = [
        np.broadcast_to(operations.observed.dtype.type(0), (size, rank))
        for size in operations.observed.shape
    ]
    require_same_layout((found.U, found.V), sides)
    require_same_layout(
        (found.row_bias, found.column_bias),
        [side[:, 0] if found.row_bias.ndim == 1 else side[:, :1] for side in sides],
    )
    return found


def _best(
    fits: list[Fit], settings: Settings, operations: EntryOperations, sample_weights: Array | None
) -> Fit:
    """The fit with the lowest validation error or objective; with several θ, all are measured at the smallest of them."""
    if len(fits) == 1:
        return fits[0]
    if settings.validation_fraction is not None:
        return min(fits, key=lambda found: found.outcome.best_error)
    loss = min((found.loss for found in fits), key=lambda loss: loss.theta)
    objective = Objective(loss, min(found.reg for found in fits))

    def merit(found: Fit) -> float:
        return operations.loss_sum(loss, *found.predictors(), sample_weights) + objective.penalty(
            found.U, found.V
        )

    return min(fits, key=merit)


def _fit_once(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    holdout: Holdout | None,
    rng: np.random.Generator,
    solver: str,
    reason: str,
    progress: Progress,
) -> Fit:
    known = progress.prepared
    if known is None:
        started = time.perf_counter()
        prepared = prepare(settings, operations, sample_weights, rng, solver, reason)
        _log.info(
            "start found in %.3g s: noise %.4g", time.perf_counter() - started, prepared.sigma
        )
        progress.keep_prepared(prepared.parts())
    else:
        with progress.reading():
            prepared = _checked(Prepared(**known), settings.rank, operations)
    return _iterated(settings, prepared, operations, sample_weights, holdout, progress)


def _iterated(
    settings: Settings,
    prepared: Prepared,
    operations: EntryOperations,
    sample_weights: Array | None,
    holdout: Holdout | None,
    progress: Progress,
) -> Fit:
    """From the start to the end."""
    settings = replace(settings, reg=prepared.reg, bias_unit=prepared.bias_unit)
    center, row_bias, column_bias = prepared.center, prepared.row_bias, prepared.column_bias
    sigma, solver, reason, bias = (
        prepared.sigma,
        prepared.solver,
        prepared.reason,
        prepared.center is not None,
    )
    loss = settings.loss_at(sigma)
    _log.info(
        "λ %.4g, θ %.4g, %s biases, solver %s",
        settings.reg,
        loss.theta,
        "with" if bias else "no",
        solver,
    )
    objective = Objective(loss, settings.reg)
    U, V = prepared.U, prepared.V
    watch: dict[str, Any] = {
        "validation": None if holdout is None else partial(holdout.error, bounds=settings.bounds),
        "patience": settings.patience,
    }
    watch["record"] = file_record(progress.loop("fit"))
    if solver == "mm":
        mm = MMSolver(operations, objective, settings.mm)
        outcome = run(mm, U, V, settings.max_iter, settings.tol, settings.callbacks, **watch)
        U, V = outcome.best or mm.factors
        # the certificate is of the last iterate, which validation may not have kept
        measured = (
            mm.criticality()
            if outcome.best is None or outcome.best_iteration == outcome.iterations
            else float("nan")
        )
        return Fit(
            U,
            V,
            bias,
            0.0,
            row_bias[:, 0],
            column_bias[:, 0],
            settings.bias_unit,
            loss,
            settings.reg,
            outcome,
            measured,
            solver,
            reason,
        )
    if solver == "varpro":
        varpro = VarPro(operations, Objective(smoothed(loss, _TIP * sigma), settings.reg))
        outcome = run(varpro, U, V, settings.max_iter, settings.tol, settings.callbacks, **watch)
        U, V = outcome.best or varpro.factors
    else:
        unit = operations.observed.dtype.type(settings.bias_unit)
        irls = IRLS.on_entries(
            operations,
            objective,
            sigma,
            center,
            sample_weights,
            settings.reg_by_count,
            settings.bias_unit,
        )
        if bias:
            U, V = np.hstack([U, row_bias / unit]), np.hstack([V, column_bias / unit])
        outcome = run(
            irls,
            U,
            V,
            settings.max_iter,
            settings.tol,
            settings.callbacks,
            keep=lambda: irls.augmented_factors,
            **watch,
        )
        U, V = outcome.best or irls.augmented_factors
        if bias:
            U, row_bias, V, column_bias = (
                U[:, :-1].copy(),
                U[:, -1:] * unit,
                V[:, :-1].copy(),
                V[:, -1:] * unit,
            )
    measured = float("nan")
    if settings.certify and not outcome.stopped:
        U, V, outcome, measured = _certify(settings, operations, objective, U, V, outcome, progress)
    return Fit(
        U,
        V,
        bias,
        center or 0.0,
        row_bias[:, 0],
        column_bias[:, 0],
        settings.bias_unit,
        loss,
        settings.reg,
        outcome,
        measured,
        solver,
        reason,
    )


def _certify(
    settings: Settings,
    operations: EntryOperations,
    objective: Objective,
    U: Array,
    V: Array,
    outcome: Outcome,
    progress: Progress,
) -> tuple[Array, Array, Outcome, float]:
    """MM from where the fast solver ended, until the objective itself (kinks and all) is critical."""
    assert settings.certify is not None
    mm = MMSolver(operations, objective, settings.certify)
    after = run(
        mm,
        U,
        V,
        settings.max_iter,
        _certifying_tol(settings),
        settings.callbacks,
        record=file_record(progress.loop("certify")),
    )
    after.reason = f"{after.reason}, by mm after {outcome.iterations} iterations of the fast solver"
    return *mm.factors, after, mm.criticality()


def _certifying_tol(settings: Settings) -> float:
    return min(settings.tol, _CERTIFY_TOL)
