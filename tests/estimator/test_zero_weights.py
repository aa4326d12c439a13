"""An entry of weight 0 is not observed: results are those without it, whatever its value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from robustmf import RobustMF
from robustmf.exceptions import EmptyRowsWarning

NAMES = {"row": "sensor", "col": "time", "value": "reading"}


@pytest.fixture(scope="module")
def cells():
    """A table of rank 2 and weights: 0 in one row, and where the noise is ten times larger."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 24))
    weights = (rng.random(signal.shape) > 1 / 3).astype(float)
    weights[5] = 0
    noise = np.where(weights > 0, 0.05, 0.5) * rng.normal(size=signal.shape)
    given = signal + noise
    given[rng.random(signal.shape) < 0.1] = np.nan
    given[5, 0] = np.nan
    return given, weights


@pytest.fixture(scope="module")
def both(cells):
    """The fit with weights, and the one without these entries."""
    given, weights = cells
    fits = []
    for X, of_entries in ((given, weights), (np.where(weights > 0, given, np.nan), None)):
        with pytest.warns(EmptyRowsWarning, match="1 of 40 rows and 0 of 24 columns"):
            fits.append(RobustMF(2, random_state=0).fit(X, weights=of_entries))
    return fits


def test_the_fit_and_its_noise_are_those_without_the_entries(both):
    weighted, without = both
    np.testing.assert_array_equal(weighted.row_factors_, without.row_factors_)
    for name in ("noise_", "median_", "scale_", "theta_", "reg_"):
        assert getattr(weighted, name) == getattr(without, name)
    assert 0.045 < weighted.noise_ < 0.055


def test_scores_are_those_without_the_entries(cells, both):
    given, weights = cells
    weighted, without = both
    np.testing.assert_array_equal(weighted.outlier_scores(), without.outlier_scores())
    used = weights[~np.isnan(given)] > 0
    scores = np.asarray(weighted.outlier_scores(given))
    np.testing.assert_array_equal(scores[used], without.outlier_scores())
    assert (scores[~used] < 1e-3).mean() > 0.5  # ten times the noise


def test_a_row_whose_entries_have_weight_0_is_not_imputed_as_zero(cells, both):
    given, _ = cells
    weighted, without = both
    assert np.isnan(weighted.impute(given)[5, 0])
    assert np.isnan(without.impute(given)[5, 0])


def test_lines_of_a_long_table_keep_their_places(cells):
    given, weights = cells
    lines = pd.DataFrame(given).stack().dropna().rename("reading").reset_index()
    lines.columns = [*NAMES.values()]
    lines["weight"] = weights[lines.sensor, lines.time]
    lines = lines.sample(frac=1, random_state=0).reset_index(drop=True)
    with pytest.warns(EmptyRowsWarning):
        model = RobustMF(2, random_state=0).fit(lines, weights=lines.weight, **NAMES)
    scores = model.outlier_scores()
    assert scores.index.equals(lines.index)
    np.testing.assert_array_equal(scores.isna(), lines.weight == 0)
    used = lines.weight > 0
    np.testing.assert_array_equal(scores[used], model.outlier_scores(lines)[used])
    with pytest.warns(EmptyRowsWarning):
        factors = RobustMF(2, random_state=0).fit_transform(lines, weights=lines.weight, **NAMES)
    rows = [model.row_ids_.index(k) for k in pd.unique(lines.sensor)]
    np.testing.assert_array_equal(factors, model.row_factors_[rows])


def test_a_new_value_of_weight_0_removes_the_old_one():
    grid = np.outer(np.arange(1.0, 9.0), np.arange(1.0, 7.0))
    table = pd.DataFrame(grid, index=list("abcdefgh"), columns=list("uvwxyz"))
    model = RobustMF(1, random_state=0).fit(table)
    model.partial_fit(table.iloc[:1], weights=np.eye(1, 6))
    assert len(model.entries_["values"]) == 43
    assert (model.entries_["weights"] > 0).all()
