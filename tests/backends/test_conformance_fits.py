"""Conformance of the backends in fits: each backend fits the model that the CPU fits.

The backends are those of ``test_conformance.py``; all fits are made through the estimator.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from clusters import Own as UserDefined

from conftest import BACKENDS, random_problem
from robustmf import Observed, RobustMF
from robustmf.backends.registry import get_cluster_backend

NAMES = {"row": "row", "col": "col", "value": "x"}

#: A few sweeps from given factors: points that differ do not become similar.
FEW = {"max_iter": 3, "tol": 1e-12, "solver": "irls", "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")


@pytest.fixture(params=BACKENDS)
def fit_on(request):
    """Fits an estimator to a table of weighted entries on every backend."""

    def fit(model, frame, **options):
        if request.param != "dask":
            model.set_params(device=request.param)
            return model.fit(frame, weights=frame["trust"], **NAMES, **options)
        get_cluster_backend().check_available()
        from robustmf.backends.dask import Triplets  # noqa: PLC0415 - an extra

        pieces = [frame.iloc[k::3] for k in range(3)]
        data = Triplets(pieces, weight="trust", blocks=2, **NAMES)
        return model.fit(data, client=request.getfixturevalue("client"), **options)

    return fit


@pytest.fixture
def problem():
    """A table of entries in random order, with ids and weights, and factors."""
    observed, U, V = random_problem()
    rows = observed.rows
    rng = np.random.default_rng(1)
    columns = {"row": rows.group_of_entry(), "col": 7 * rows.indices, "x": rows.values}
    frame = pd.DataFrame(columns | {"trust": rng.integers(0, 3, len(rows.values)).astype(float)})
    return frame.sample(frac=1, random_state=0, ignore_index=True), U, V


def reference(model, frame):
    """The fit on the CPU."""
    return model.fit(frame, weights=frame["trust"], **NAMES)


def assert_same(one, other, rtol=1e-6):
    for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_"):
        mine, theirs = (np.asarray(getattr(model, name)) for model in (one, other))
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())
    for name in ("theta_", "reg_", "center_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol)
    for name, values in other.history_.items():
        if name != "seconds":
            np.testing.assert_allclose(one.history_[name], values, rtol=rtol, err_msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "lsp"},
        {"loss": "huber", "bias": True, "reg_by_count": True},
        {"loss": UserDefined(0.4), "reg": 0.5, "bounds": (-1.0, 1.0)},
    ],
    ids=["lsp", "huber", "user-defined"],
)
def test_fits_and_answers_are_those_of_the_cpu(fit_on, problem, settings):
    """θ, λ and biases are estimated at given factors; then predictions, rankings and fold-in."""
    frame, U, V = problem
    settings = settings | FEW | {"init": (U, V)}
    found = fit_on(RobustMF(3, **settings), frame)
    wanted = reference(RobustMF(3, **settings), frame)
    assert_same(found, wanted)
    pairs = (frame["row"].tolist(), frame["col"].tolist())
    np.testing.assert_allclose(found.predict(*pairs), wanted.predict(*pairs), rtol=1e-5, atol=1e-6)
    users = [3, 11]
    mine, theirs = (model.recommend(users, 4, exclude_seen=False) for model in (found, wanted))
    np.testing.assert_array_equal(mine[0], theirs[0])
    new = Observed.from_triplets(frame[frame["row"] < 5], **NAMES)
    folded, wanted_folded = (np.asarray(model.transform(new)) for model in (found, wanted))
    np.testing.assert_allclose(folded, wanted_folded, rtol=1e-4, atol=1e-5)


def test_the_same_entries_are_held_out(fit_on, problem):
    """The error on held-out entries, for clipped predictions, and the iterate that it selects."""
    frame, U, V = problem
    settings = FEW | {"init": (U, V), "loss": "lsp", "reg": 0.05, "bounds": (-2.0, 2.0)}
    settings |= {"validation_fraction": 0.2, "patience": 2, "max_iter": 5}
    found = fit_on(RobustMF(3, **settings), frame)
    wanted = reference(RobustMF(3, **settings), frame)
    assert_same(found, wanted, 1e-5)
    assert found.best_iteration_ == wanted.best_iteration_
    assert len(found.history_["validation"]) == found.n_iter_ + 1


class InterruptError(Exception):
    """Raised by a callback."""


def test_resumed_fits_have_the_same_bits(fit_on, problem, tmp_path):
    frame, U, V = problem
    settings = FEW | {"init": (U, V), "loss": "lsp", "bias": True, "max_iter": 4}
    whole = fit_on(RobustMF(3, **settings), frame)

    def interrupt(snapshot):
        if snapshot.iteration == 3:
            raise InterruptError

    path = tmp_path / "checkpoint"
    stopped = RobustMF(3, callbacks=[interrupt], **settings)
    with pytest.raises(InterruptError):
        fit_on(stopped, frame, checkpoint=path, checkpoint_every=0)
    iterations = []
    resumed = RobustMF(3, callbacks=[lambda one: iterations.append(one.iteration)], **settings)
    fit_on(resumed, frame, resume=path)
    assert iterations[0] > 1
    assert np.array_equal(resumed.row_factors_, whole.row_factors_)
    assert np.array_equal(resumed.column_bias_, whole.column_bias_)
    assert resumed.history_["objective"] == whole.history_["objective"]
