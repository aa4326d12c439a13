"""``n_init``: the best of several fits is returned, wherever it comes in the sequence."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import RobustMF


def fit_and_record(seed):
    """A fit from four random initializations, and the last objective of each."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((25, 2)) @ rng.standard_normal((2, 20))
    X += 4 * (rng.random(X.shape) < 0.2) * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.5] = np.nan
    last = []

    def record(snapshot):
        if snapshot.iteration == 0:
            last.append(snapshot.objective)
        last[-1] = snapshot.objective

    model = RobustMF(
        2,
        loss="geman-mcclure",
        theta=0.5,
        reg=0.1,
        bias=False,
        solver="irls",
        init="random",
        n_init=4,
        tol=1e-6,
        max_iter=2000,
        random_state=seed,
        n_jobs=1,
        callbacks=[record],
    ).fit(X)
    return model, last


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_the_fit_with_the_lowest_objective_is_returned():
    positions = set()
    for seed in range(6):
        model, last = fit_and_record(seed)
        assert len(last) == 4
        assert max(last) > 1.01 * min(last)
        assert model.history_["objective"][-1] == pytest.approx(min(last), rel=1e-12)
        positions.add(int(np.argmin(last)))
    assert len(positions) > 1, "the best is at several positions of the sequence"
