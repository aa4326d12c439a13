"""The choice between a center, biases, factors, and biases with factors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import robustmf
from robustmf import Observed, RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.exceptions import UnreliableFitWarning
from robustmf.initialization.biases import Biases, center_alone, learned_biases
from robustmf.initialization.candidates import ModelCandidate, simplest, standard_error
from robustmf.initialization.model_choice import (
    ConsideredModel,
    _errors,
    _truncated,
    _with_more_evidence,
)
from robustmf.initialization.search import search_entries
from robustmf.kernels.team import Team


def table(kind: str, seed: int = 0, outliers: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    """A table of one kind with 30 % missing and 3 % gross outliers, and the truth."""
    rng = np.random.default_rng(seed)
    m = 150
    n = 80
    biases = rng.standard_normal((m, 1)) + 2 * rng.standard_normal((1, n))
    product = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    truth, noise = {
        "center": (np.full((m, n), 3.0), 1.0),
        "biases": (3 + biases, 1.0),
        "factors": (product, 0.1),
        "biases and factors": (3 + biases + 0.5 * product, 0.7),
    }[kind]
    X = truth + noise * rng.standard_normal((m, n))
    X[rng.random((m, n)) < outliers] += 25
    X[rng.random((m, n)) < 0.3] = np.nan
    return X, truth


def chosen(model: RobustMF) -> str:
    (one,) = [candidate.model for candidate in model.candidates_ if candidate.chosen]
    return one


@pytest.mark.parametrize(
    ("kind", "rank", "error"),
    [
        ("center", 0, 0.06),
        ("biases", 0, 0.2),
        ("factors", 3, 0.05),
        ("biases and factors", 3, 0.27),
    ],
)
def test_the_kind_of_the_table_is_found(kind, rank, error):
    X, truth = table(kind, seed=1)
    model = RobustMF(random_state=0).fit(X)
    assert chosen(model) == kind or kind == "center"  # biases that are nearly zero do no harm
    assert model.rank_ == rank
    missing = np.isnan(X)
    assert np.sqrt(np.mean((model.impute(X) - truth)[missing] ** 2)) < error


def test_a_model_without_factors_answers_everything(tmp_path):
    X, _ = table("center", seed=1)
    model = RobustMF(random_state=0).fit(X)
    assert model.rank_ == 0
    assert model.row_factors_.shape == (150, 0)
    assert model.predict(3, 4) == pytest.approx(3, abs=0.1)
    assert model.transform(X[:5]).shape == (5, 1)
    assert (model.outlier_scores()[X[~np.isnan(X)] > 15] < 1e-3).all()
    cleaned, mask = model.clean(X, replace=True)
    assert mask.sum() > 200
    assert np.nanmax(cleaned) < 15
    assert len(model.recommend([0, 1], n=3)) == 2
    model.save(tmp_path / "model.rmf")
    loaded = robustmf.load(tmp_path / "model.rmf")
    assert loaded.candidates_ == model.candidates_
    np.testing.assert_array_equal(loaded.impute(X), model.impute(X))
    page = model.report(tmp_path / "page.html")
    assert "center" in page.read_text(encoding="utf-8")
    assert "rank 0, found" in repr(model)


def test_a_given_rank_without_support_has_factors_that_are_zero():
    X, _ = table("center", seed=1)
    model = RobustMF(4, random_state=0).fit(X)
    assert model.rank_ == 4
    assert not model.row_factors_.any()


def test_candidates_have_errors_of_entries_that_were_not_used():
    """The errors of the chosen model are those of entries that were really held out."""
    X, _ = table("biases and factors", outliers=0)
    held = np.zeros(X.shape, bool)
    rows, columns = np.nonzero(~np.isnan(X))
    part = np.random.default_rng(1).choice(len(rows), len(rows) // 20, replace=False)
    held[rows[part], columns[part]] = True
    model = RobustMF(random_state=0).fit(np.where(held, np.nan, X))
    errors = np.abs(
        model.predict(rows[part], columns[part])
        - X[held.nonzero()][np.argsort(np.lexsort((columns[part], rows[part])))]
    )
    (one,) = [candidate for candidate in model.candidates_ if candidate.chosen]
    deviation = errors.std() / np.sqrt(len(errors))
    assert abs(one.error - errors.mean()) < 4 * np.hypot(deviation, one.standard_error)


def test_the_simplest_model_within_a_standard_error_is_chosen():
    observed = Observed.from_dense(np.ones((40, 25)))
    rng = np.random.default_rng(0)
    best = rng.exponential(size=1000)
    noise = 0.1 * rng.standard_normal(1000)
    noise -= noise.mean()
    assert simplest([best + noise + 0.002, best], observed) == 0
    assert simplest([best + noise + 0.02, best], observed) == 1
    assert simplest([best + 5, best + noise + 0.002, best], observed) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_standard_errors_count_rows_and_columns_of_dependent_errors(axis):
    """Errors that are equal within a row, or a column, are no more than one observation."""
    rng = np.random.default_rng(0)
    observed = Observed.from_dense(np.ones((40, 25)))
    of_group = np.expand_dims(rng.standard_normal((25, 40)[axis]), axis)
    found = standard_error(np.broadcast_to(of_group, (40, 25)).ravel(), observed)
    assert found == pytest.approx(of_group.std() / np.sqrt(of_group.size), rel=0.03)
    independent = rng.standard_normal(1000)
    expected = independent.std() / np.sqrt(1000)
    assert 0.999 * expected <= standard_error(independent, observed) < 1.5 * expected


@pytest.mark.parametrize(("shape", "density"), [((200, 160), 1.0), ((200, 160), 0.3)])
def test_noise_has_no_factors(shape, density):
    """The first singular vectors of noise predict it worse than zero, which their errors show."""
    excess = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal(shape)
        X[rng.random(shape) > density] = np.nan
        assert RobustMF(random_state=0).fit(X).rank_ == 0
        operations = CPUOperations(Observed.from_dense(X), Team(1))
        found = search_entries(operations, 2, rng)
        if found.rank:
            zero = np.abs(operations.observed.rows.values)
            excess.append(np.abs(found.residuals).mean() / zero.mean())
    assert excess
    assert np.mean(excess) > 1


def test_of_two_models_with_factors_the_one_with_more_evidence_is_considered():
    rng = np.random.default_rng(0)
    densities = -rng.exponential(size=1000)
    noise = 0.1 * rng.standard_normal(1000)  # the standard error of the sum is 3.2
    noise -= noise.mean()

    def considered(one, other, rank=3, deviation=0.1):
        factors = [
            SimpleNamespace(log_densities=densities, rank=3),
            SimpleNamespace(
                log_densities=densities + noise,
                rank=rank,
                noise=SimpleNamespace(log_deviation=deviation),
            ),
        ]
        models = [
            ConsideredModel("factors", factors[0], None, one),
            ConsideredModel("biases and factors", factors[1], SimpleNamespace(side=None), other),
        ]
        return models.index(_with_more_evidence(models))

    assert considered(0.0, 2.0) == 0  # the simpler one, up to a standard error
    assert considered(0.0, 5.0) == 1
    assert considered(0.0, -2.0, rank=1) == 1  # it is the simpler one
    assert considered(0.0, -5.0, rank=1) == 0
    assert considered(0.0, 5.0, deviation=2.0) == 0  # noise levels that it cannot have


def test_divergence_of_biases_is_that_of_gaussian_posteriors():
    """KL divergence of N(b, σ²/(n+λ)) from N(0, σ²/λ), and half the expected loss of b's variance.

    Its terms in b² are those of the ridge, whose mean over the rows is that of the prior.
    """
    X = np.ones((6, 4))
    X[0, :2] = np.nan
    observed = Observed.from_dense(X)
    n = np.array([2, 4, 4, 4, 4, 4])
    ridge = 0.5
    biases = Biases(0.0, np.zeros(6), np.zeros(4), ridge, np.inf, 1.0)
    variance = 0.3
    own = ridge * variance
    expected = 0.5 * (np.log((n + own) / own) + n / (n + own)).sum()
    assert biases.divergence(observed, variance) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(2))
def test_columns_without_noise_do_not_decide_the_choice(seed):
    """Half of the columns are exact: the median error is zero whatever the others are."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((400, 4)) @ rng.standard_normal((4, 24)) + 6
    noise = np.where(np.arange(24) < 12, 0.0, 0.2)
    X = truth + noise * rng.standard_normal(truth.shape)
    held = rng.random(X.shape) < 0.2
    with pytest.warns(
        UnreliableFitWarning, match="half of the columns are functions of the others"
    ):
        model = RobustMF(random_state=0).fit(np.where(held, np.nan, X))
    assert not model.has_bias_
    errors = np.abs(model.predict(X) - truth)
    assert errors[:, :12][held[:, :12]].mean() < 1e-4
    assert errors[:, 12:][held[:, 12:]].mean() < 0.05


def test_ridges_of_biases_follow_their_variance():
    rng = np.random.default_rng(0)
    truth = 2 * rng.standard_normal((400, 1)) + 0.1 * rng.standard_normal((1, 300))
    X = truth + rng.standard_normal((400, 300))
    X[rng.random(X.shape) < 0.7] = np.nan
    biases = learned_biases(CPUOperations(Observed.from_dense(X), Team(1)))
    assert biases.row_ridge == pytest.approx(1 / 4, rel=0.25)
    assert 50 < biases.column_ridge < 200


@pytest.mark.parametrize(
    "plain",
    [
        {"model": "center"},
        {"model": 1, "rank": 0, "error": 1.0, "standard_error": 0.1, "chosen": True},
        {"model": "center", "rank": -1, "error": 1.0, "standard_error": 0.1, "chosen": True},
        {"model": "center", "rank": 0, "error": "1", "standard_error": 0.1, "chosen": True},
        {"model": "center", "rank": 0, "error": 1.0, "standard_error": 0.1, "chosen": "yes"},
        [],
    ],
)
def test_invalid_candidates_of_a_file_are_refused(plain):
    with pytest.raises(ValueError, match="invalid"):
        ModelCandidate.from_plain(plain)


def test_a_candidate_has_the_standard_error_of_its_mean_error():
    errors = np.array([1.0, 2.0, 3.0, 6.0])
    found = ModelCandidate.from_errors("biases", 0, errors, True)
    assert found.error == 3
    assert found.standard_error == pytest.approx(np.sqrt(3.5) / 2)


def considered(biases=None, **factors):
    return ConsideredModel("", SimpleNamespace(**factors), biases, 0.0)


def test_errors_are_truncated_at_the_lowest_noise_level():
    """A model is not better because it fits outliers, or because its own noise is larger."""
    models = [considered(sigma=2.0), considered(sigma=0.5)]
    errors = [np.array([1.0, 4.0, 90.0]), np.array([0.1, 0.3, 9.0])]
    found = _truncated(errors, errors, models)
    np.testing.assert_allclose(found, [[1.0, 1.5, 1.5], [0.1, 0.3, 1.5]])


def test_errors_are_not_truncated_below_those_of_most_entries():
    """The noise level is that of an entry of scale 1, which may be far below the others'."""
    errors = [np.array([1.0, 1.0, 4.0, 90.0]), np.array([0.0, 1.0, 1.0, 2.0])]
    models = [considered(sigma=0.1), considered(sigma=0.3)]
    found = _truncated(errors, errors, models)
    most = 3 * MAD_TO_SIGMA
    np.testing.assert_allclose(found[0], [1.0, 1.0, 4.0, most])
    np.testing.assert_allclose(found[1][1:], errors[1][1:])


def test_without_noise_errors_are_truncated_far_below_those_of_the_simplest_model():
    exact = [considered(sigma=0.0)]
    found, _ = _truncated([np.array([1.0, 2.0, 3.0]), np.zeros(3)], [np.zeros(3)], exact)
    np.testing.assert_allclose(found, 2e-6)


def test_errors_of_biases_are_those_of_entries_left_out():
    """With squares and without ridge the leave-one-out error of a mean is e n/(n − 1)."""
    X = np.arange(12.0).reshape(3, 4) ** 2
    observed = Observed.from_dense(X)
    zeros = np.zeros(3), np.zeros(4)
    residual = np.array([0.5, -0.5, 0.1, 0.2] * 3)
    residual[5] = 10.0
    rows = Biases(0.0, *zeros, 0.0, np.inf, 1.0)  # no biases of columns
    leverage = rows.leverage(observed, residual)
    expected = np.full(12, 1 / 4)
    expected[5] = 0.1 / 4  # Huber's weight of an outlier of ten widths
    np.testing.assert_allclose(leverage, expected)
    found = _errors(considered(rows, residuals=residual), observed)
    np.testing.assert_allclose(found, np.abs(residual) / (1 - expected))
    alone = Biases(0.0, *zeros, -3.0, np.inf, 1.0)  # as of a row with one entry
    found = _errors(considered(alone, residuals=np.full(12, 0.1)), observed)
    np.testing.assert_allclose(found, 0.1 / 0.05)


@pytest.mark.parametrize("seed", range(3))
def test_exact_biases_are_chosen_without_factors(seed):
    """Errors of exact fits are rounding errors, which do not distinguish models."""
    rng = np.random.default_rng(seed)
    truth = 3 + rng.normal(size=(60, 1)) + rng.normal(size=20)
    model = RobustMF(random_state=0).fit(np.where(rng.random(truth.shape) < 0.5, truth, np.nan))
    assert model.rank_ == 0
    np.testing.assert_allclose(model.predict(truth), truth, rtol=1e-9)


def test_biases_are_found_beside_a_given_rank_whatever_solver_the_size_suggests():
    """Ratings for which the automatic solver would be a projection, which has no biases."""
    rng = np.random.default_rng(8)
    shape = (300, 80)
    factors = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 80))
    biases = 0.4 * rng.standard_normal((300, 1)) + 0.5 * rng.standard_normal(80)
    truth = 3.3 + biases + 0.45 * factors
    X = np.where(rng.random(shape) < 0.35, truth + 0.3 * rng.standard_normal(shape), np.nan)
    plain = RobustMF(2, bias=False, random_state=0).fit(X)
    assert plain.solver_ == "varpro"
    model = RobustMF(2, random_state=0).fit(X)
    assert model.has_bias_
    assert [one.model for one in model.candidates_ if one.chosen] == ["biases and factors"]
    errors = [np.sqrt(np.mean((one.predict(X) - truth) ** 2)) for one in (model, plain)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize(
    "X",
    [
        [[3.0]],
        np.full((2, 2), 3.0),
        np.full((3, 3), -3.0),
        np.full((10, 8), 3.0),
        np.arange(6.0).reshape(2, 3) + 10,
        [[1.0, 2.0, 3.0, 4.0]],
    ],
)
def test_tables_too_small_for_factors_have_a_center_or_biases(X):
    X = np.asarray(X)
    model = RobustMF(random_state=0).fit(X)
    assert model.rank_ == 0
    np.testing.assert_allclose(model.predict(X), X, rtol=1e-3)
    assert chosen(model) == ("center" if np.ptp(X) == 0 else "biases")


@pytest.mark.parametrize("shape", [(2, 50), (50, 2), (3, 4), (100, 3)])
def test_factors_of_narrow_tables_are_found(shape):
    rng = np.random.default_rng(0)
    X = np.outer(1 + rng.random(shape[0]), rng.standard_normal(shape[1]))
    model = RobustMF(random_state=0).fit(X)
    assert model.rank_ == 1
    np.testing.assert_allclose(model.predict(X), X, atol=1e-5)


@pytest.mark.parametrize(
    ("rank", "noise"), [("auto", 0.0), (1, 0.0), ("auto", 0.1), (1, 0.1), (2, 0.1)]
)
def test_biases_beside_factors_have_the_ridge_of_the_noise_that_factors_leave(rank, noise):
    """With the ridge of biases alone, large biases cost more than calling all entries outliers."""
    size = np.arange(1.0, 41.0)
    X = np.outer(size, size)
    observed = X + noise * np.random.default_rng(5).normal(size=X.shape)
    model = RobustMF(rank, bias=True, random_state=0, n_jobs=1).fit(observed)
    error = model.predict(*np.indices(X.shape)) - X
    assert np.sqrt(np.mean(error**2)) < max(0.6 * noise, 1e-3)
    assert model.failed_checks_ == ()


def test_ridges_of_biases_are_relative_to_the_noise():
    biases = Biases(0.0, np.zeros(3), np.zeros(2), 4.0, 2.0, 1.0, sigma=0.5)
    beside = biases.beside_factors(0.25)
    assert (beside.row_ridge, beside.column_ridge, beside.sigma) == (1.0, 0.5, 0.25)
    with Team(1) as team:
        alone = center_alone(CPUOperations(Observed.from_dense(np.ones((3, 2))), team), biases)
    assert alone.beside_factors(0.25) is alone


@pytest.mark.parametrize("unit", [1.0, 300.0])
@pytest.mark.parametrize(
    "X",
    [np.full((2, 2), 3.0), np.array([[1.0, 2.0], [2.0, 4.0]]), np.arange(1.0, 5.0)[:, None]],
    ids=["constant", "rank 1", "column"],
)
@pytest.mark.parametrize("settings", [{"rank": 1}, {"bias": False}], ids=["rank", "bias"])
def test_a_model_of_factors_that_is_required_is_fitted_to_tables_of_any_size(X, settings, unit):
    """Where entries are too few to see their noise, λ is that of a noise of a tenth of them."""
    for table in (X, X.T):
        model = RobustMF(random_state=0, **settings).fit(unit * table)
        np.testing.assert_allclose(model.predict(*np.indices(table.shape)), unit * table, rtol=0.02)
