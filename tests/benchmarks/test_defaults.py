"""The search for the best setting, on small data."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import defaults
from robustmf import Observed
from robustmf.selection import entry_train_test_split


def ratings(rows=300, columns=400, share=0.12, seed=0):
    """Half stars: biases, weak factors, much noise."""
    rng = np.random.default_rng(seed)
    mean = 3.5 + 0.4 * rng.standard_normal((rows, 1)) + 0.5 * rng.standard_normal(columns)
    mean = mean + 0.15 * rng.standard_normal((rows, 2)) @ rng.standard_normal((2, columns))
    i, j = np.nonzero(rng.random(mean.shape) < share)
    values = np.clip(np.round(2 * (mean[i, j] + 0.8 * rng.standard_normal(len(i)))) / 2, 0.5, 5)
    return Observed.from_indices(i, j, values, mean.shape)


@pytest.mark.slow
def test_the_search_contains_the_default():
    train, test = entry_train_test_split(ratings(), 0.1, random_state=0)
    case = defaults.Case(2, [(train, defaults.error_on(test))])
    record = {"problem": "ratings", **defaults.search(case)}
    assert len(record["tried"]) > 12
    rows = [row.split(" | ") for row in defaults.table([record]).splitlines()[2:]]
    assert [row[1] for row in rows] == ["MAE, held out", "RMSE, held out"]
    for row in rows:
        assert float(row[2]) / float(row[3]) == pytest.approx(float(row[4]), abs=2e-3)
        assert float(row[4]) < 1.05
