"""From the parameters of an estimator and data to a fitted model.

On one machine the pipeline of :mod:`robustmf.fitting` runs over the entries, from a new initial
point or from an earlier model; on a cluster :mod:`robustmf.distributed` runs it. The result is
checked in both cases.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.registry import get_backend, get_cluster_backend
from robustmf.data.accumulate import accumulate
from robustmf.data.checks import require_magnitude, warn_of_codes, warn_of_empty
from robustmf.data.observed import Observed
from robustmf.data.table_form import ColumnNames
from robustmf.estimator import parameters
from robustmf.fit_result import FitResult
from robustmf.fitting import equilibrated, fit
from robustmf.io.checkpoint import Checkpoint
from robustmf.kernels.team import Team
from robustmf.model import FitSummary, FittedModel, value_statistics
from robustmf.outliers.fit_checks import OPTIONS as CHECKS
from robustmf.outliers.fit_checks import failed_checks, warn_of_failed_checks
from robustmf.outliers.scores import noise_model
from robustmf.solvers.base import Callback
from robustmf.solvers.fold_in import extend
from robustmf.solvers.registry import name_and_options, require_possible, solver_memory
from robustmf.solvers.settings import Settings
from robustmf.validation import as_generator

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ContinuationOptions:
    """Constants of fits that continue with more entries.

    Attributes
    ----------
    growth : int
        The factors are initialized again when the entries have grown by this factor since they
        were last initialized, so that all initializations together cost at most twice the last.
    """

    growth: int = 2


OPTIONS = ContinuationOptions()


def fit_entries(
    estimator: Any,
    observed: Observed,
    weights: Array | None,
    callbacks: Sequence[Callback] = (),
    *,
    previous: FittedModel | None = None,
    ignore_given_init: bool = False,
    checkpoint: Checkpoint | None = None,
) -> FittedModel:
    """Fit these entries, from the factors of a ``previous`` model where there is one.

    Parameters
    ----------
    estimator : RobustMF
        The parameters.
    observed : Observed
        The entries, on the backend.
    weights : array over the entries, or None
        The factor of each entry's loss.
    callbacks : sequence of callable, default=()
        Called after each iteration, besides those of the parameters: a progress bar.
    previous : FittedModel or None, default=None
        A model of the first rows and columns of the matrix.
    ignore_given_init : bool, default=False
        Whether a pair (U, V) in the parameter ``init`` is not used, because its shapes are those
        of the first fit.
    checkpoint : Checkpoint or None, default=None
    """
    parameters.check(estimator, observed.shape)
    require_magnitude(observed)
    rng = _random_numbers(estimator)
    with Team(estimator.n_jobs) as team:
        settings = parameters.settings_of(
            estimator, observed.shape, observed.rows.values, callbacks
        )
        operations = get_backend(estimator.device).operations(
            observed,
            team,
            settings.rank + int(settings.bias is True),
            solver_memory(settings.solver),
        )
        on_entries = None if weights is None else operations.array(weights)
        scales = None if previous is None else previous.scales_for(observed.shape)
        if scales is not None:
            operations, placed = equilibrated(operations, scales)
        if previous is not None:
            previous = previous.equilibrated
            known = extend(operations, on_entries, previous.columns, previous.factors)
            settings = _continued(settings, previous, known)
        elif ignore_given_init and not isinstance(estimator.init, str):
            settings = replace(settings, auto_rank=estimator.rank == "auto", init="auto")
        result = fit(settings, operations, on_entries, rng, checkpoint)
        if scales is not None:
            factors = result.factorization.scaled(*placed)
            result = replace(result, factorization=factors, scales=scales)
    n_initialized = observed.n_entries if previous is None else previous.n_entries_initialized
    model = fitted_model(settings, result, observed, weights, n_initialized)
    return checked(model, observed, weights)


def with_weight(observed: Observed, weights: Array | None) -> tuple[Observed, Array | None]:
    """The entries in host memory whose weight is not zero, and their weights.

    An entry of weight 0 is not observed: it is in no count, scale, score or warning. The shape is
    not changed.
    """
    if weights is None or (weights > 0).all():
        return observed, weights
    used = weights > 0
    found = observed.select(used)
    found.form = None if observed.form is None else observed.form.selected(used)
    return found, weights[used]


def fit_more_entries(
    estimator: Any,
    model: FittedModel,
    new: Observed,
    new_weights: Array | None,
    callbacks: Sequence[Callback] = (),
) -> tuple[FittedModel, Observed]:
    """Fit the entries of a model and new ones, which replace old ones at the same position."""
    observed, weights = accumulate(
        model.fitted_entries(), model.entries["weights"], new, new_weights
    )
    observed, weights = with_weight(observed, weights)
    grown = observed.n_entries >= OPTIONS.growth * model.n_entries_initialized
    same_model = (
        not (model.factors.has_bias and model.scales is not None)  # λ is not that of its centers
        and estimator.rank in ("auto", model.factors.rank)
        and estimator.bias in ("auto", model.factors.has_bias)
        and bool(estimator.nonnegative) == model.nonnegative
    )
    placed = get_backend(estimator.device).observe(observed)
    previous = model if same_model and not grown else None
    fitted = fit_entries(
        estimator, placed, weights, callbacks, previous=previous, ignore_given_init=True
    )
    return fitted, placed


def require_entries(model: FittedModel) -> None:
    """Raise unless the model has the entries of the fit, which a fit that continues needs."""
    if not model.has_all_entries:
        raise ValueError(
            "partial_fit needs the entries of the fit, and they stayed on the cluster; "
            "fit old and new ones together with client=, or fold new rows in with transform"
        )


def fit_on_cluster(
    estimator: Any,
    X: Any,
    weights: Any,
    client: Any,
    checkpoint: Checkpoint | None,
    names: ColumnNames,
) -> tuple[FittedModel, Any]:
    """Fit data on a Dask cluster, and return the model and what is kept of the entries."""
    backend = get_cluster_backend(estimator.device)
    backend.check_available()
    from robustmf.backends.dask.source import as_triplets  # noqa: PLC0415 - Dask is an extra
    from robustmf.distributed.fitting import ClusterFit  # noqa: PLC0415

    if weights is not None:
        raise ValueError(
            "weights must be a column of the data with client=: "
            "give X as robustmf.backends.dask.Triplets(data, weight=name)"
        )
    solver, _ = name_and_options(estimator.solver)
    parameters.check(estimator)  # before the data are read
    require_possible(
        solver,
        plain_model=True,
        capabilities=backend.capabilities,
        nonnegative=bool(estimator.nonnegative),
        has_rank=not parameters.finds_rank(estimator),
        certify=bool(estimator.certify),
        n_init=estimator.n_init,
    )
    triplets = as_triplets(X, names)
    rng = _random_numbers(estimator)
    with fit_progress(estimator) as shown:
        job = ClusterFit(client, triplets, checkpoint, estimator.validation_fraction, rng)
        shape = job.matrix.shape
        parameters.check(estimator, shape)
        values = job.sample.values if parameters.finds_bounds(estimator) else np.empty(0)
        settings = parameters.settings_of(estimator, shape, values, shown)
        result, entries = job.fit(settings)
    model = fitted_model(settings, result, entries, None, entries.n_entries)
    job.write_shards(model)
    return checked(model, entries, None), entries


def warn_of_result(estimator: Any, observed: Any) -> None:
    """Warn of failed checks, and of rows and columns without an entry; print the solver."""
    model: FittedModel = estimator.model_
    warn_of_failed_checks(model.summary.failed_checks)
    if not model.has_all_entries:
        return
    warn_of_codes(observed)
    warn_of_empty(observed, model.factors.has_bias)
    if estimator.verbose:
        summary = model.summary
        print(
            f"{type(estimator).__name__}: {parameters.rank_text(estimator)}; "
            f"solver {summary.solver} ({summary.solver_reason}); {summary.stop_reason}",
            file=sys.stderr,
        )


def fitted_model(
    settings: Settings,
    result: FitResult,
    observed: Any,
    weights: Array | None,
    n_initialized: int,
) -> FittedModel:
    """The model with the result of a fit to these entries."""
    outcome = result.outcome
    kept_last = outcome.best is None
    median, scale = value_statistics(observed)
    scales = None
    if result.scales is not None:
        scales = (np.asarray(result.scales[0]), np.asarray(result.scales[1]))
    reliability = result.reliability
    if reliability is not None:
        with np.errstate(under="ignore"):  # that of a gross outlier is nearly 0
            reliability = reliability.astype(np.float32)
    return FittedModel(
        factors=result.factorization.to_host(),
        loss=result.loss,
        reg=result.reg,
        reg_by_count=bool(settings.reg_by_count),
        bias_unit=result.bias_unit,
        median=median,
        scale=scale,
        row_ids=observed.row_ids,
        column_ids=observed.column_ids,
        entries=observed.to_keep(weights),
        n_entries_initialized=n_initialized,
        bounds=settings.bounds,
        form=observed.form,
        scales=scales,
        reliability=reliability,
        row_ridge=result.row_ridge,
        nonnegative=settings.nonnegative,
        summary=FitSummary(
            solver=result.solver,
            solver_reason=result.reason,
            history=outcome.history,
            n_iter=outcome.iterations,
            converged=outcome.converged,
            stop_reason=outcome.reason,
            best_iteration=outcome.iterations if kept_last else outcome.best_iteration,
            criticality=result.criticality,
            candidates=result.candidates,
        ),
    )


def checked(model: FittedModel, observed: Any, weights: Array | None) -> FittedModel:
    """The model with the checks that it fails on a sample of the entries, where there is one."""
    sample = observed.sampled(CHECKS.most_entries, weights, model.reliability)
    if sample is None:
        return model
    noise = noise_model(model, sample)
    failed = failed_checks(model, sample, noise)
    sigma = model.sigma if model.scales is None else noise.distribution.scale
    return replace(model, summary=replace(model.summary, failed_checks=failed), sigma=sigma)


def _continued(settings: Settings, previous: FittedModel, known: Any) -> Settings:
    """The settings of a fit that continues from ``known`` factors of a ``previous`` model."""
    settings = replace(
        settings,
        rank=known.rank,
        auto_rank=False,
        init=known,
        bias=known.has_bias,
        n_init=1,
        validation_fraction=None,
    )
    if not settings.auto_reg:
        return settings
    return replace(settings, reg=previous.reg, auto_reg=False, bias_unit=previous.bias_unit)


def _random_numbers(estimator: Any) -> np.random.Generator:
    """A separate stream: with the one that drew the data, random factors would be the truth."""
    return as_generator(estimator.random_state).spawn(1)[0]


@contextmanager
def fit_progress(estimator: Any) -> Iterator[Sequence[Callback]]:
    """Show the progress of a fit where that is requested; the callbacks that follow it."""
    if not estimator.verbose:
        yield ()
        return
    from robustmf.solvers.progress import ProgressBar  # noqa: PLC0415 - imports rich

    name = type(estimator).__name__
    title = name if estimator.rank == "auto" else f"{name} rank {estimator.rank}"
    with ProgressBar(title, estimator.max_iter, estimator.tol) as bar:
        yield (bar,)


def audit_progress(estimator: Any) -> AbstractContextManager[Any]:
    """Show the phases of an audit where that is requested."""
    if not estimator.verbose:
        return nullcontext()
    from robustmf.solvers.progress import PhaseBar  # noqa: PLC0415 - imports rich

    return PhaseBar(type(estimator).__name__, "audit", transient=False)
