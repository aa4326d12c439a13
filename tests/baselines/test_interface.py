"""What all comparison systems have in common: interface, inputs, invariances, errors."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import ALL, MONOTONE, fitted, label, product, relative_error
from robustmf.baselines import GRASTA, OMDL, RMC, RMFMM, RP, AltGrad, AltImpute, ScaledASD
from robustmf.data.observed import Observed
from robustmf.exceptions import EmptyRowsWarning, NumericalError


@pytest.mark.parametrize(
    ("method", "tol"),
    [
        (AltGrad(5, reg=1e-12, tol=1e-15), 1e-8),
        (AltGrad(5, variant="joint", tol=1e-13, max_iter=5000), 1e-6),
        (RP(5, tol=1e-16), 1e-6),
        (ScaledASD(5, tol=1e-9), 1e-6),
        (AltImpute(5, reg=1e-8, tol=1e-16), 1e-6),
    ],
    ids=label,
)
def test_least_squares_methods_recover_a_noiseless_matrix(method, tol, recovery):
    X, exact, _ = recovery
    assert relative_error(product(fitted(method, exact)), X) < tol


@pytest.mark.parametrize(
    ("method", "tol"),
    [(RMC(5), 2e-6), (GRASTA(5), 2e-3), (RMFMM(5, tol=1e-5, inner_max_iter=300), 1e-3)],
    ids=["RMC", "GRASTA", "RMFMM"],
)
def test_robust_methods_recover_under_gross_outliers(method, tol, recovery):
    X, _, attacked = recovery
    assert relative_error(product(fitted(method, attacked)), X) < tol


@pytest.mark.parametrize("method", MONOTONE, ids=label)
def test_objective_never_increases(method, small):
    objective = np.array(fitted(method, small).history_["objective"])
    assert np.all(np.diff(objective) <= 1e-12 * objective[:-1])
    assert objective[-1] < 0.9 * objective[0]


@pytest.mark.parametrize("method", ALL, ids=label)
def test_same_bits_for_any_number_of_threads(method, small):
    one = fitted(method, small, n_jobs=1)
    three = fitted(method, small, n_jobs=3)
    np.testing.assert_array_equal(one.row_factors_, three.row_factors_)
    np.testing.assert_array_equal(one.column_factors_, three.column_factors_)


@pytest.mark.parametrize("method", ALL, ids=label)
def test_same_interface(method, small):
    seen = []
    model = fitted(method, small, callbacks=[lambda snapshot: seen.append(snapshot.iteration)])
    history = model.history_
    assert history["iteration"] == seen == list(range(model.n_iter_ + 1))
    assert np.all(np.diff(history["seconds"]) >= 0)
    i = [0, 5, 59]
    j = [44, 0, 7]
    expected = product(model)[i, j]
    np.testing.assert_allclose(
        model.predict(i, j),
        expected if model.bounds_ is None else np.clip(expected, *model.bounds_),
        rtol=1e-12,
    )
    stopped = fitted(method, small, callbacks=[lambda snapshot: snapshot.iteration == 1])
    assert (stopped.n_iter_, stopped.converged_) == (1, False)


@pytest.mark.parametrize("method", ALL, ids=label)
def test_sparse_dense_and_float32_inputs(method, small):
    dense = np.full(small.shape, np.nan)
    dense[small.rows.group_of_entry(), small.rows.indices] = small.rows.values
    model = fitted(method, small)
    np.testing.assert_array_equal(product(fitted(method, dense)), product(model))
    np.testing.assert_array_equal(product(fitted(method, small.to_sparse())), product(model))
    single = fitted(method, dense.astype(np.float32))
    assert single.row_factors_.dtype == single.column_factors_.dtype == np.float32
    assert np.isfinite(product(single)).all()


@pytest.mark.parametrize("method", [AltGrad(3), RP(3), ScaledASD(3), AltImpute(3)], ids=label)
def test_predictions_scale_with_the_data(method, small):
    """Least squares with λ in units of the data: scaled values give scaled predictions."""
    scaled = fitted(method, small.with_values(64 * small.rows.values), tol=1e-12)
    plain = fitted(method, small, tol=1e-12)
    assert relative_error(product(scaled), 64 * product(plain)) < 1e-4


@pytest.mark.parametrize("method", ALL, ids=label)
def test_rows_and_columns_without_entries_get_zeros(method, small):
    wider = Observed.from_indices(
        small.rows.group_of_entry(), small.rows.indices, small.rows.values, (62, 46)
    )
    with pytest.warns(EmptyRowsWarning, match="2 of 62 rows and 1 of 46 columns"):
        model = fitted(method, wider)
    Z = product(model)
    assert np.isfinite(Z).all()
    center = np.mean(small.rows.values) if getattr(method, "variant", "") == "minibatch" else 0
    np.testing.assert_allclose(Z[60:], center)
    np.testing.assert_allclose(Z[:, 45:], center)


@pytest.mark.parametrize("method", ALL, ids=label)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 0}, "rank must be an integer from 1 to 45"),
        ({"rank": 2.5}, "rank must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": -1.0}, "tol must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
    ids=["rank-0", "rank-float", "max_iter", "tol", "n_jobs"],
)
def test_bad_parameters_are_refused_by_name(method, changes, message, small):
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(method, small, **changes)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (AltGrad(variant="sgd"), "variant must be one of"),
        (AltGrad(reg=-1.0), "reg must be"),
        (AltImpute(reg="big"), "reg must be"),
        (RP(conjugacy="fletcher"), "conjugacy must be one of"),
        (RMC(shrinking=1.5), "shrinking must be below 1"),
        (RMC(delta=0.0), "delta must be"),
        (GRASTA(inner_max_iter=0), "inner_max_iter must be"),
        (OMDL(alpha=float("nan")), "alpha must be"),
        (OMDL(batch_size=0), "batch_size must be"),
    ],
    ids=label,
)
def test_parameters_of_single_methods_are_checked(method, message, small):
    with pytest.raises((ValueError, TypeError), match=message):
        method.fit(small)


@pytest.mark.parametrize("method", ALL, ids=label)
@pytest.mark.parametrize(
    "X",
    [np.full((20, 15), 3.0), np.zeros((20, 15)), np.outer(np.arange(20.0), np.ones(15))],
    ids=["constant", "zero", "rank-one"],
)
def test_degenerate_matrices_give_finite_factors(method, X):
    Z = product(fitted(method, X))
    assert np.isfinite(Z).all()


@pytest.mark.parametrize("method", ALL, ids=label)
def test_bad_data_is_refused(method):
    with pytest.raises(ValueError, match="at least one observed entry"):
        fitted(method, np.full((4, 5), np.nan))
    with pytest.raises(ValueError, match="finite"):
        fitted(method, np.array([[1.0, np.inf], [2.0, 3.0], [1.0, 1.0], [1.0, 1.0]]))


@pytest.mark.parametrize("method", ALL, ids=label)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e30, 1e-30, "mixed"])
def test_extreme_values_give_finite_factors_or_a_named_error(method, dtype, scale, small):
    X = small.to_sparse().toarray() * (np.logspace(-6, 6, 45) if scale == "mixed" else scale)
    if dtype == np.float32 and scale != "mixed":
        with pytest.raises(
            ValueError, match=r"X has values of size .*; in float32 the largest must lie between"
        ):
            fitted(method, X.astype(dtype), max_iter=3)
        return
    try:
        model = fitted(method, X.astype(dtype), max_iter=3)
    except NumericalError:
        return
    assert np.isfinite(model.row_factors_).all()
    assert np.isfinite(model.column_factors_).all()
