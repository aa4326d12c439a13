"""Units, extreme values and exact fits; stress/checks/equivariance.py has more cases."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.linalg import LinAlgError, circulant

from robustmf import RobustMF
from robustmf.baselines import ScaledASD
from robustmf.datasets import make_synthetic
from robustmf.exceptions import RobustMFWarning
from robustmf.outliers.evidence import Groups, group_evidence
from robustmf.solvers.projection import _damped_step
from stress.checks import equivariance


@pytest.mark.parametrize("shape", [(15, 8), (8, 15), (12, 12)])
@pytest.mark.parametrize(
    "given", [{}, {"weights": True}, {"bias": True}, {"init": "random"}, {"init": "pair"}], ids=str
)
def test_a_matrix_and_its_transpose_have_the_same_initialization(shape, given):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((shape[0], 2)) @ rng.standard_normal(
        (2, shape[1])
    ) + 0.1 * rng.standard_normal(shape)
    X[rng.random(shape) < 0.15] = np.nan
    weights = rng.uniform(0.5, 2, shape) if "weights" in given else None
    pair = [rng.standard_normal((size, 2)) for size in shape]
    settings = {name: value for name, value in given.items() if name != "weights"}
    found = []
    for transposed in (False, True):
        if "init" in given:
            settings["init"] = (
                "random" if given["init"] == "random" else tuple(pair[::-1] if transposed else pair)
            )
        model = RobustMF(2, solver="irls", max_iter=0, random_state=3, n_jobs=1, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RobustMFWarning)
            model.fit(
                X.T.copy() if transposed else X,
                weights=None if weights is None else weights.T.copy() if transposed else weights,
            )
        sides = [(model.row_factors_, model.row_bias_), (model.column_factors_, model.column_bias_)]
        found.append(sides[::-1] if transposed else sides)
    for one, other in zip(*found, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "case",
    [
        # A relative change of 1e-13 does not imply convergence.
        equivariance.Case(("irls", "huber", 2), "transposed, auto", 23, 10, 3, 0, 7415),
        # Two local minima: rows first leads to one, columns first to the other.
        equivariance.Case(("irls", "huber", 2), "transposed", 9, 29, 3, 0, 548064537),
        # The initialization of variable projection uses the l1 loss, which has its own λ.
        equivariance.Case(("varpro", "lsp", 0), "unit, auto", 10, 8, 1, 1, 3),
        # The noise is estimated from the better of two initializations.
        equivariance.Case(("varpro", "welsch", 2), "order, auto", 8, 12, 2, 0, 1238),
        # Message passing that does not converge amplifies rounding errors.
        equivariance.Case(("irls", "cauchy", 2), "unit, auto", 16, 9, 3, -4, 471441288),
        # So do sweeps with a nonsmooth loss.
        equivariance.Case(("irls", "lsp", 0), "unit, auto", 23, 18, 2, -1, 1078667638),
    ],
    ids=lambda case: f"{case.method[0]}, {case.change}",
)
def test_difficult_cases(case):
    equivariance.check(case)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_matrix_and_its_transpose_have_the_same_initialization_where_sums_tie(weighted):
    """Skew-symmetric; and symmetric with asymmetric weights of equal row and column sums."""
    A = np.random.default_rng(4).integers(-9, 10, (12, 12)).astype(float)
    weights = None
    X = A - A.T
    if weighted:
        X = circulant(np.r_[A[0, :7], A[0, 5:0:-1]])
        weights = circulant(np.arange(1.0, 13.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        one, other = (
            RobustMF(2, solver="irls", max_iter=0, random_state=3, n_jobs=1).fit(
                data, weights=given
            )
            for data, given in (
                (X, weights),
                (X.T.copy(), None if weights is None else weights.T.copy()),
            )
        )
    np.testing.assert_array_equal(one.row_factors_, other.column_factors_)
    np.testing.assert_array_equal(one.column_factors_, other.row_factors_)


@pytest.mark.parametrize(("solver", "loss"), [("mm", "geman"), ("mm", "lsp"), ("varpro", "welsch")])
@pytest.mark.parametrize("shape", [(15, 8), (12, 13)])
def test_a_matrix_and_its_transpose_have_the_same_fit(solver, loss, shape):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((shape[0], 2)) @ rng.standard_normal(
        (2, shape[1])
    ) + 0.05 * rng.standard_normal(shape)
    X[rng.random(shape) < 0.2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        one, other = (
            RobustMF(2, solver=solver, loss=loss, bias=False, random_state=0, n_jobs=1).fit(data)
            for data in (X, X.T.copy())
        )
    np.testing.assert_allclose(one.row_factors_, other.column_factors_, atol=1e-9)
    np.testing.assert_allclose(one.column_factors_, other.row_factors_, atol=1e-9)


@pytest.mark.parametrize(
    ("solver", "loss"), [("mm", "l1"), ("mm", "lsp"), ("irls", "lsp"), ("varpro", "l1")]
)
@pytest.mark.parametrize("unit", [1e-3, 2.0**20])
def test_nonsmooth_losses_fit_data_in_any_unit(solver, loss, unit):
    entries = make_synthetic(40, 25, rank=2, observed=0.9, random_state=0).train
    models = [
        RobustMF(
            2, solver=solver, loss=loss, bias=False, random_state=0, n_jobs=1, max_iter=200
        ).fit(entries.with_values(c * entries.rows.values))
        for c in (1.0, unit)
    ]
    one, other = (model.row_factors_ @ model.column_factors_.T for model in models)
    np.testing.assert_allclose(other / unit, one, atol=1e-6)


@pytest.mark.parametrize("value", [1e76, 1e-76, -1e300, 5e-324])
def test_values_that_cannot_be_squared_are_refused_with_a_remedy(value):
    X = np.full((5, 4), value)
    for model in (RobustMF(1), ScaledASD(1)):
        with pytest.raises(
            ValueError,
            match=r"X has values of size .*; in float64 the largest must lie between 1e-75 "
            r"and 1e\+75: multiply X",
        ):
            model.fit(X)


def test_float32_has_its_own_limits_and_new_rows_may_be_small():
    X = np.outer(np.arange(1.0, 7), np.arange(1.0, 6)).astype(np.float32)
    with pytest.raises(
        ValueError,
        match=r"in float32 .* between 1e-09 and 1e\+12: multiply X by a constant "
        r"or give X as float64",
    ):
        RobustMF(1).fit(X * np.float32(1e20))
    model = RobustMF(1, random_state=0, n_jobs=1).fit(X)
    assert np.isfinite(model.transform(X * np.float32(1e-30))).all()
    for method in (model.transform, model.outlier_scores):
        with pytest.raises(ValueError, match="X has values of size"):
            method(X * np.float32(1e20))


@pytest.mark.parametrize("solver", ["irls", "varpro"])
def test_values_of_all_magnitudes(solver):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((6, 5)) * 10.0 ** rng.integers(-300, 75, (6, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        model = RobustMF(1, solver=solver, random_state=0, n_jobs=1).fit(X)
    assert np.isfinite(model.row_factors_ @ model.column_factors_.T).all()


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.RobustMFWarning")
def test_exact_fits_and_rows_without_entries_are_audited_without_warnings():
    X = np.outer(np.arange(1.0, 9), np.arange(1.0, 7))
    X[3] = np.nan
    found = (
        RobustMF(1, random_state=0, n_jobs=1, reg_by_count=True, loss="huber")
        .fit(X)
        .audit(at_most=1.0, top=50)
    )
    assert 3 not in [suspect.id for suspect in found.rows]
    one = RobustMF(1, random_state=0, n_jobs=1, reg_by_count=True, loss="huber").fit([[2.0]])
    assert np.isfinite(one.outlier_scores()).all()
    assert str(one.audit(at_most=1.0))


def test_evidence_from_extremely_different_variances_is_finite():
    i, j = np.divmod(np.arange(4), 2)
    groups = Groups(
        i, j, 2, 2, np.array([0.0, 0.0, 1e70, -1e70]), np.array([0.0, 0.0, 1e150, 1e150])
    )
    assert all(np.isfinite(kind).all() for kind in group_evidence(groups)[0].kinds.values())


def test_a_step_whose_curvature_overflows_is_refused_without_a_warning():
    with pytest.raises(LinAlgError, match="curvature"):
        _damped_step(np.eye(2) * 1e300, np.zeros((2, 1)), np.full((2, 1), 1e100), 1e-3)


@pytest.mark.parametrize("kind", [RobustMF, ScaledASD])
def test_errors_of_floating_point_arithmetic_that_the_caller_raises_do_not_affect_fits(kind):
    data = make_synthetic(40, rank=2, random_state=0).train
    values = data.rows.values.copy()
    values[5] = 1e-300
    values[::17] *= 1e6
    data = data.with_values(values)

    def results():
        model = kind(2, random_state=0, max_iter=5).fit(data)
        weights = model.entry_weights(data) if kind is RobustMF else 0
        return model.row_factors_, np.asarray(weights)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        expected = results()
        with np.errstate(all="raise"):
            found = results()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
