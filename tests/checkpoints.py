"""Fits that are aborted, and their results."""

from __future__ import annotations

import numpy as np

from robustmf import Observed, RobustMF
from robustmf.datasets import make_synthetic


class Aborted(Exception):  # noqa: N818 - stands for the end of a process
    """Stands for the death of the process."""


def entries(dtype=np.float64, rows=50):
    data = make_synthetic(rows, rank=3, observed=0.5, random_state=0).train
    by_row = data.rows
    return Observed.from_indices(
        by_row.group_of_entry(), by_row.indices, by_row.values.astype(dtype), data.shape
    )


def model(**settings):
    return RobustMF(**{"rank": 3, "random_state": 1, "n_jobs": 1} | settings)


def abort_fit(estimator, data, path, after=3, **more):
    """Fit, and abort after this number of iterations; whether that number was exceeded."""
    iterations = []

    def abort(snapshot):
        iterations.append(snapshot.iteration)
        if len([k for k in iterations if k > 0]) > after:
            raise Aborted

    try:
        estimator.set_params(callbacks=[abort]).fit(
            data, checkpoint=path, checkpoint_every=0, **more
        )
    except Aborted:
        return True
    return False


def results(estimator):
    """The results of a fit, except the times."""
    arrays = [
        getattr(estimator, name).tobytes()
        for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_")
    ]
    history = {name: values for name, values in estimator.history_.items() if name != "seconds"}
    names = (
        "reg_",
        "theta_",
        "center_",
        "n_iter_",
        "best_iteration_",
        "converged_",
        "stop_reason_",
        "solver_",
        "criticality_",
    )
    return arrays, repr(history), repr([getattr(estimator, name) for name in names])
