"""Non-negative initial points: from singular vectors, from given and random factors."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.estimator.parameters import settings_of
from robustmf.exceptions import NotConvergedWarning
from robustmf.initialization import nonnegative, regularization
from robustmf.initialization.nonnegative import nonnegative_factors, positive_parts
from robustmf.losses import Welsch

pytestmark = pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")


def parts_of(m, n, rank, seed=0):
    """Sparse non-negative factors."""
    rng = np.random.default_rng(seed)
    U, V = (rng.gamma(2.0, 0.5, (k, rank)) * (rng.random((k, rank)) < 0.6) for k in (m, n))
    return U, V


def rotated(U, V, seed=1):
    """Other factors with the same product, of both signs."""
    G = np.linalg.qr(np.random.default_rng(seed).standard_normal((U.shape[1], U.shape[1])))[0]
    return U @ G, V @ G


def test_positive_parts_of_a_non_negative_matrix_of_rank_one_are_exact():
    u = np.arange(1.0, 6)
    v = np.arange(2.0, 9)
    W, H = positive_parts(-u[:, None], -v[:, None], 3)
    np.testing.assert_allclose(W @ H.T, np.outer(u, v), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(W[:, 0]), np.linalg.norm(H[:, 0]))
    assert not W[:, 1:].any()
    assert not H[:, 1:].any()


def test_positive_parts_depend_on_the_product_only_and_are_ordered():
    U, V = rotated(*parts_of(30, 20, 4))
    W, H = positive_parts(U, V, 4)
    assert min(W.min(), H.min()) >= 0
    assert np.all(W.any(axis=0) & H.any(axis=0))
    again = positive_parts(*rotated(U, V, 2), 4)
    np.testing.assert_allclose(again[0] @ again[1].T, W @ H.T, atol=1e-10)
    more = positive_parts(U, V, 7)  # the first pair has one part only: the matrix is non-negative
    np.testing.assert_array_equal(more[0][:, :4], W)
    assert np.all(more[0].any(axis=0))
    sizes = np.linalg.norm(more[0], axis=0) * np.linalg.norm(more[1], axis=0)
    assert np.all(np.diff(sizes[4:]) <= 0)
    np.testing.assert_allclose(np.linalg.norm(W, axis=0), np.linalg.norm(H, axis=0))
    assert W.dtype == U.dtype
    assert positive_parts(U.astype(np.float32), V.astype(np.float32), 4)[0].dtype == np.float32


def test_rows_are_compared_with_their_ridge(team):
    """A factor that the other side does not use changes the ridge only."""
    a = np.arange(1.0, 9)
    b = np.arange(2.0, 9)
    operations = CPUOperations(Observed.from_dense(np.outer(a, b)), team)
    U = np.column_stack([a, np.full(8, 5.0)])
    V = np.column_stack([b, np.zeros(7)])
    nonnegative._solve_again(operations, Welsch(1.0), 0.01, U, V)
    assert not U[:, 1].any()
    np.testing.assert_allclose(U[:, 0], a, rtol=1e-3)


def test_poor_rows_and_columns_are_solved_again(team):
    """Of the factors that were found one row and one column are wrong."""
    U, V = parts_of(60, 50, 3)
    rng = np.random.default_rng(2)
    X = U @ V.T + 0.05 * rng.standard_normal((60, 50))
    X[rng.random(X.shape) < 0.1] += 6
    operations = CPUOperations(Observed.from_dense(X), team)
    wrong = [A.copy() for A in rotated(U, V)]
    wrong[0][7] += 9
    wrong[1][11] -= 9
    start = positive_parts(*wrong, 3)

    def errors(robust):
        W, H = nonnegative_factors(operations, tuple(wrong), start, 0.01, 0.05, robust)
        assert min(W.min(), H.min()) >= 0
        error = np.abs(W @ H.T - U @ V.T)
        return np.median(error[7]), np.median(error[:, 11]), np.median(error)

    assert max(errors(robust=True)) < 0.05
    assert errors(robust=False)[2] > 0.1, "outliers have weight"
    poor = Welsch(1.0)
    W = np.abs(wrong[0])
    before = W.copy()
    nonnegative._solve_again(operations, poor, 0.01, W, V)
    assert np.abs(W[7] - before[7]).max() > 1


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_init_random_and_a_given_pair():
    U, V = parts_of(30, 20, 2)
    X = U @ V.T + 0.01
    model = RobustMF(2, nonnegative=True, max_iter=0)
    for A in (model.set_params(init=(U, V)).fit(X), model.set_params(init="random").fit(X)):
        assert min(A.row_factors_.min(), A.column_factors_.min()) >= 0
        assert A.row_factors_.shape == (30, 2)
    model.set_params(init=(U, V)).fit(X)
    np.testing.assert_array_equal(model.row_factors_, U)
    np.testing.assert_array_equal(model.column_factors_, V)
    V[3, 1] = -2
    with pytest.raises(ValueError, match=r"init=\(U, V\) must be non-negative .*element -2.0"):
        model.set_params(init=(U, V)).fit(X)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_a_given_rank_above_the_rank_of_the_matrix_is_used_where_it_is_needed():
    """The matrix has rank 3, and no fewer than four non-negative factors."""
    square = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1.0]])
    rng = np.random.default_rng(0)
    rows = rng.gamma(1.0, size=(40, 4)) * (rng.random((40, 4)) < 0.5)
    columns = rng.gamma(1.0, size=(30, 4)) * (rng.random((30, 4)) < 0.5)
    clean = rows @ square @ columns.T
    assert np.linalg.matrix_rank(clean) == 3
    X = clean + 0.01 * rng.standard_normal(clean.shape)

    def error(rank):
        model = RobustMF(rank, nonnegative=True, tol=1e-7, max_iter=2000, random_state=0).fit(X)
        assert model.rank_ == rank
        return np.sqrt(np.mean((model.row_factors_ @ model.components_ - clean) ** 2))

    assert error(4) < 0.02
    assert error(3) > 5 * error(4)


def test_the_initial_noise_level_is_not_below_that_of_the_search():
    U, V = rotated(*parts_of(50, 40, 3))  # its entries are fitted badly by non-negative factors
    rng = np.random.default_rng(3)
    X = U @ np.abs(V).T + 0.05 * rng.standard_normal((50, 40))
    free, bound = (
        RobustMF(3, nonnegative=constrained, random_state=0, max_iter=5).fit(X)
        for constrained in (False, True)
    )
    assert bound.theta_ > 1.2 * free.theta_


def test_regularization_by_held_out_entries_has_the_constraint(team, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.gamma(0.5, size=(90, 2)) @ rng.gamma(0.5, size=(2, 60))
    observed = Observed.from_dense(X + 0.8 * rng.standard_normal(X.shape))
    model = RobustMF(2, loss="huber", nonnegative=True)
    settings = settings_of(model, observed.shape, observed.rows.values)
    error = regularization._error
    smallest = []

    def spy(holdout, bounds, U, V):
        smallest.append(min(U.min(), V.min()))
        return error(holdout, bounds, U, V)

    monkeypatch.setattr(regularization, "_error", spy)
    operations = CPUOperations(observed, team)
    found = regularization.search_regularization(settings, operations, None, rng)
    assert len(smallest) > 3
    assert min(smallest) >= 0
    assert not found.bias


def test_no_warning_of_limits_is_issued_by_the_initialization(recwarn):
    U, V = parts_of(40, 30, 2)
    RobustMF(2, nonnegative=True, random_state=0).fit(U @ V.T + 0.01)
    assert not [w for w in recwarn if issubclass(w.category, NotConvergedWarning)]
