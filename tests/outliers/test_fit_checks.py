"""Fits that fail their own checks: a warning, an attribute, the summary, the model file."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import robustmf
from robustmf import RobustMF
from robustmf.exceptions import EmptyRowsWarning, ModelFileError, UnreliableFitWarning
from robustmf.model import FitSummary
from robustmf.outliers.fit_checks import failed_checks
from robustmf.outliers.scores import noise_model
from robustmf.report.summary import summary


def low_rank(m=120, n=60, rank=3, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    return X + noise * rng.standard_normal((m, n)), rng


def fit(X, expect=None, **options):
    """A fitted model; without ``expect``, no warning of an unreliable fit may be issued."""
    model = RobustMF(random_state=0, n_jobs=1, **options)
    if expect is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnreliableFitWarning)
            return model.fit(X)
    with pytest.warns(UnreliableFitWarning, match=expect):
        return model.fit(X)


def test_a_good_fit_passes():
    X, rng = low_rank()
    X[rng.random(X.shape) < 0.1] += 10
    X[rng.random(X.shape) < 0.3] = np.nan
    model = fit(X)
    assert model.failed_checks_ == ()
    assert "failed checks" not in summary(model)


def test_noise_alone_passes():
    rng = np.random.default_rng(1)
    assert fit(rng.standard_normal((80, 50))).failed_checks_ == ()


def test_rows_and_columns_with_mostly_bad_entries_are_reported(tmp_path):
    X, rng = low_rank()
    X[:4] += 10 * rng.standard_normal((4, 60))
    model = fit(X, "of 120 rows have most")
    (failed,) = model.failed_checks_
    assert failed.startswith("4 of 120 rows")
    assert "outliers (0, 1, 2, …)" in failed
    assert summary(model)["failed checks"] == failed
    model.save(tmp_path / "model.rmf")
    assert robustmf.load(tmp_path / "model.rmf").failed_checks_ == (failed,)
    (of_transposed,) = fit(X.T, "of 120 columns have most").failed_checks_
    assert of_transposed == failed.replace("rows", "columns")


def test_rows_and_columns_are_named_by_their_labels():
    X, rng = low_rank()
    X[5] += 10 * rng.standard_normal(60)
    hours = pd.date_range("2026-03-01", periods=120, freq="h")
    (failed,) = fit(pd.DataFrame(X, hours), "of 120 rows").failed_checks_
    assert "1 of 120 rows have most of their entries flagged as outliers (2026-03-01 05:00:00)" in (
        failed
    )


def test_too_many_flagged_entries_are_reported():
    X, rng = low_rank()
    bad = rng.random(X.shape) < 0.45
    X[bad] += 40 * rng.choice([-1, 1], X.shape)[bad] + 20 * rng.standard_normal(X.shape)[bad]
    model = RobustMF(random_state=0, n_jobs=1).fit(low_rank()[0])
    observed = robustmf.Observed.from_dense(X)
    sample = observed.sampled(10**6)
    (failed,) = failed_checks(model.model_, sample, noise_model(model.model_, sample))
    assert failed.startswith("45 % of the entries") or failed.startswith("44 % of the entries")


def test_factors_that_predict_worse_than_the_median_are_reported():
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((60, 40))
    model = fit(noise, "worse than by the median", rank=12, reg=1e-6, init="random")
    assert "from the others with error" in model.failed_checks_[-1]


def test_entries_without_weight_are_not_checked():
    X, rng = low_rank()
    bad = np.zeros(X.shape, bool)
    bad[:4] = True
    X[bad] += 10 * rng.standard_normal(bad.sum())
    weights = np.where(bad, 0.0, 1.0)
    model = RobustMF(random_state=0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreliableFitWarning)
        with pytest.warns(EmptyRowsWarning, match="4 of 120 rows"):
            model.fit(X, weights=weights)
    assert model.failed_checks_ == ()


def test_few_entries_are_not_checked():
    rng = np.random.default_rng(3)
    assert fit(rng.standard_normal((12, 10)), rank=3, reg=1e-6).failed_checks_ == ()


def test_invalid_checks_of_a_model_file_are_refused():
    state = RobustMF(random_state=0).fit(low_rank()[0]).model_.summary.to_state()
    assert FitSummary.from_state(state | {"failed_checks_": ["a"]}).failed_checks == ("a",)
    with pytest.raises(ModelFileError, match="failed_checks_"):
        FitSummary.from_state(state | {"failed_checks_": [1]})


@pytest.mark.parametrize("kind", ["binary", "many zeros"])
def test_tables_of_which_half_is_predicted_exactly(kind):
    """Half of a table of 0 and 1 was flagged, and removed by clean, without a word."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 20))
    X = 1.0 * (X > 0) if kind == "binary" else np.where(rng.random(X.shape) < 0.55, 0, X)
    model = fit(X, "flagged as outliers, .*; all others are predicted exactly")
    assert len(model.failed_checks_) == 1


def test_exact_tables_with_outliers_pass():
    X, rng = low_rank(noise=0)
    X[rng.random(X.shape) < 0.2] += 10
    assert fit(X).failed_checks_ == ()


def test_zeros_for_missing_values_are_reported():
    """All ratings of a table with 0 for a missing one were flagged without a word."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 20)) < 0.8, 0, rng.integers(1, 6, (50, 20)))
    fit(X, r"% of the values are 0 and predicted exactly.* if 0 stands for missing values")
    fit(np.where(rng.random(X.shape) < 0.05, 9, 7))  # a constant table with a few outliers
