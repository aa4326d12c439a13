"""Attempts of a search, additions and removals of factors: which state is kept."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

from robustmf import Observed, RobustMF
from robustmf.initialization import attempts as attempts_module
from robustmf.initialization.variational import FoundFactors, VariationalSearch
from robustmf.initialization.variational_options import OPTIONS
from robustmf.kernels.team import Team


def entries():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 15))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) > 0.7] = np.nan
    return Observed.from_dense(X)


def searching(rank=3):
    """A search at random factors."""
    search = VariationalSearch(entries(), Team(1), 1)
    rng = np.random.default_rng(5)
    search.start(rng.standard_normal((20, rank)), rng.standard_normal((15, rank)), 0.1)
    search.noise.release(0.2)
    search.expectations()
    return search


@pytest.mark.parametrize(
    ("attempts", "chosen"),
    [
        ([(-2.0, False, 0.1), (-1.0, False, 0.1)], -1.0),
        ([(-1.0, False, 0.1), (-2.0, False, 0.1)], -1.0),
        ([(-2.0, True, 0.1), (-1.0, False, 0.1)], -2.0),
        ([(-2.0, False, 0.7), (-1.0, False, 0.1)], -2.0),
    ],
)
def test_the_best_attempt_is_returned_and_a_clear_one_ends_the_search(
    attempts, chosen, monkeypatch
):
    left = list(attempts)
    factors = np.ones((20, 1)), np.ones((15, 1))

    class Search:
        noise = SimpleNamespace(outlier_share=0.0)

        rank = 1

        def __init__(self, *_):
            self.value, self.is_clear, self.smallest_share = left.pop(0)

        def evidence(self):
            return self.value

        scale_deviation = 0.0
        gross = np.zeros(1)

        def preferred_exponents(self):
            return (1.0, 1.0), 0.0

        def found(self):
            noise = SimpleNamespace()
            return FoundFactors(*factors, 1.0, noise, 1.0, (), 1, 0.0, self.value, 0.0, (1.0, 1.0))

    monkeypatch.setattr(attempts_module, "VariationalSearch", Search)
    # the spectrum shows more than the one factor that the attempt has kept
    monkeypatch.setattr(attempts_module, "_attempt", lambda *_: 2)
    completed = []
    monkeypatch.setattr(
        attempts_module, "_complete", lambda search, _: completed.append(search.value)
    )
    for share in (0.0, 1.0):
        completed.clear()
        monkeypatch.setattr(Search.noise, "outlier_share", share)
        left[:] = attempts
        found = attempts_module.search_factors(entries(), None, Team(1), np.random.default_rng(0))
        assert found.evidence == chosen
        _, is_clear, smallest_share = attempts[0]
        assert len(left) == (1 if is_clear or smallest_share > 0.6 else 0)
        # with few outliers the best attempt alone is completed
        made = [value for value, *_ in attempts[: 2 - len(left)]]
        assert completed == (made if share else [chosen])


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_an_attempt_begins_without_gross_values_and_frees_components_of_many_outliers(
    share, monkeypatch
):
    search = VariationalSearch(entries(), Team(1), 1)
    search.gross = np.arange(len(search.values)) % 7 == 0
    seen = []

    def spectral_factors(_, values, rank, seed):
        seen.append(values)
        return np.ones((20, rank)), np.ones((15, rank))

    steps = []
    monkeypatch.setattr(attempts_module, "spectral_factors", spectral_factors)
    monkeypatch.setattr(VariationalSearch, "anneal", lambda *_: steps.append("anneal"))
    monkeypatch.setattr(VariationalSearch, "settle", lambda self: steps.append(self.noise.is_free))
    monkeypatch.setattr(type(search.noise), "outlier_share", property(lambda _: share))
    attempts_module._attempt(search, 3, 1e-3)
    assert len(set(seen[0][search.gross])) == 1
    assert len(set(seen[0])) > 100
    assert steps == (["anneal", False] if share < 0.08 else ["anneal", False, True])


@pytest.mark.parametrize(
    ("shown", "share", "gross_share", "number"),
    [(3, 0.05, 0.05, 1), (4, 0.05, 0.05, 2), (3, 0.2, 0.05, 2), (3, 0.05, 0.2, 2)],
)
def test_a_second_attempt_is_made_if_factors_are_lost_or_outliers_many(
    shown, share, gross_share, number, monkeypatch
):
    """The spectrum shows so many factors, and each attempt keeps three."""
    made = []

    def attempt(search, *_):
        made.append(search)
        return shown

    class Search:
        rank = 3
        is_clear = False
        smallest_share = 0.0
        noise = SimpleNamespace(outlier_share=share)

        def __init__(self, *_):
            pass

        def evidence(self):
            return 0.0

        scale_deviation = 0.0
        gross = np.array([gross_share])

        def preferred_exponents(self):
            return (1.0, 1.0), 0.0

        def found(self):
            return self

    monkeypatch.setattr(attempts_module, "VariationalSearch", Search)
    monkeypatch.setattr(attempts_module, "_attempt", attempt)
    monkeypatch.setattr(attempts_module, "_complete", lambda *_: None)
    attempts_module.search_factors(entries(), None, Team(1), np.random.default_rng(0))
    assert len(made) == number


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_with_few_outliers_predictions_count_where_factors_are_added(share, monkeypatch):
    """The evidence falls by 1, and the log density of the entries rises by 2."""
    search = searching()
    search.settle()
    evidences = iter([0.0, -1.0])
    monkeypatch.setattr(VariationalSearch, "evidence", lambda _: next(evidences))
    shares = property(lambda _: share)
    monkeypatch.setattr(type(search.noise), "outlier_share", shares)
    rank = search.rank

    def grow(_, most):
        search.rows.extend(np.full((20, 1), 0.1), 0.1)
        search.columns.extend(np.full((15, 1), 0.1), 0.1)
        search.precision = np.append(search.precision, 1.0)
        return most > rank

    def settle(_):
        search.log_densities = search.log_densities + 2 / len(search.log_densities)

    monkeypatch.setattr(VariationalSearch, "grow", grow)
    monkeypatch.setattr(VariationalSearch, "settle", settle)
    monkeypatch.setattr(attempts_module, "OPTIONS", replace(OPTIONS, max_growth=1))
    attempts_module._add_factors(attempts_module._BestState(search), rank + 1)
    assert search.rank == (rank + 1 if share < 0.08 else rank)


def test_with_many_outliers_in_one_attempt_all_attempts_are_completed(monkeypatch):
    shares = [0.05, 0.2]
    completed = []

    class Search:
        rank = 0
        is_clear = False

        def __init__(self, *_):
            self.value = len(shares)
            self.noise = SimpleNamespace(outlier_share=shares.pop(0))
            self.smallest_share = 0.0

        def evidence(self):
            return self.value

        scale_deviation = 0.0
        gross = np.zeros(1)

        def preferred_exponents(self):
            return (1.0, 1.0), 0.0

        def found(self):
            return self

    monkeypatch.setattr(attempts_module, "VariationalSearch", Search)
    monkeypatch.setattr(attempts_module, "_attempt", lambda *_: 1)
    monkeypatch.setattr(attempts_module, "_complete", lambda search, _: completed.append(search))
    found = attempts_module.search_factors(entries(), None, Team(1), np.random.default_rng(0))
    assert found.value == 2
    assert found in completed
    assert len(completed) == 2


@pytest.mark.parametrize(
    ("after_two", "after_all", "removed"),
    [
        # the fourth best after two sweeps would have been the best after all
        ([4.0, 3.0, 2.0, 1.0, 0.0], {0: 1.0, 1: 5.0, 2: 3.0, 3: 9.0, 4: 9.0}, 1),
        ([4.0, -1e9, -1e9, -1e9, -1e9], {0: 1.0, 1: 9.0, 2: 9.0, 3: 9.0, 4: 9.0}, 0),
        ([-1e9] * 5, dict.fromkeys(range(5), 9.0), None),
    ],
)
def test_the_best_of_three_removals_is_kept(after_two, after_all, removed, monkeypatch):
    search = searching(rank=5)
    left = search.rows.U.copy()
    base = float(search.log_densities.sum())
    tried = []

    def learned(self, sweeps):
        missing = next(k for k in range(5) if not (self.rows.U[0] == left[0, k]).any())
        tried.append((missing, sweeps))
        return base + (after_two[missing] if sweeps == 2 else after_all[missing])

    monkeypatch.setattr(VariationalSearch, "_learned", learned)
    monkeypatch.setattr(VariationalSearch, "settle", lambda _: None)
    assert search.remove_factor() is (removed is not None)
    kept = [k for k in range(5) if k != removed]
    np.testing.assert_array_equal(search.rows.U, left[:, kept])
    finalists = sorted(k for k, sweeps in tried if sweeps > 2)
    assert finalists == [k for k in range(3) if after_two[k] > -1e9]


@pytest.mark.parametrize(("survivors", "rounds"), [(2, 3), (1, 1)])
def test_factors_are_added_while_most_of_them_are_supported(survivors, rounds, monkeypatch):
    """Of four factors that are added in each round so many survive."""
    search = searching(rank=1)
    made = []

    def grow(self, _):
        made.append(self.rank)
        for side in self.sides:
            side.extend(np.full((len(side.U), 4), 0.1), 0.1)
        self.precision = np.append(self.precision, np.ones(4))
        self.variances = 1 / self.precision
        return True

    def settle(self):
        # with many outliers they are settled twice, the second time to no effect
        if not self.noise.is_free:
            self.keep_factors(np.arange(self.rank) < self.rank - 4 + survivors)

    monkeypatch.setattr(VariationalSearch, "grow", grow)
    monkeypatch.setattr(VariationalSearch, "settle", settle)
    best = attempts_module._BestState(search)
    monkeypatch.setattr(best, "update", lambda **_: True)
    attempts_module._add_factors(best, 50)
    assert len(made) == rounds


def test_rows_that_explain_more_than_a_wrong_factor_would_are_not_repaired():
    """Clean entries of a row with a wrong factor: those it is fitted to, and some by chance."""
    search = searching(rank=3)
    search.variances = np.array([4.0, 2.0, 1.0])
    search.noise.variance = 0.02
    counts = np.array([3, 13, 103])
    found = search._explained_by_chance(counts, 0.8)
    # the error of the weakest factor has the variance 2, a hundred times that of the noise
    within = np.array([2.5, 2.5 / np.sqrt(101)])
    inside, chance = 2 * ndtr(within) - 1
    chance *= 0.8 / inside
    others = counts - 3
    deviation = np.sqrt(others * chance * (1 - chance))
    np.testing.assert_allclose(found, 3 + others * chance + 3 * deviation)


def test_the_share_of_the_precision_that_is_uncertainty_of_the_other_side():
    """A mean over factors: the trace of S Σ w C, for each row, by hand."""
    search = searching(rank=2)
    search.sweep()
    own, other = search.sides
    weights = own.take(search.weights)
    found = own.returned(other, weights)
    a, c = np.tril_indices(2)

    def full(packed):
        out = np.empty((2, 2))
        out[a, c] = out[c, a] = packed * np.where(a == c, 1.0, 0.5)
        return out

    for i in range(3):
        row = slice(*own.groups.pointers[i : i + 2])
        uncertain = sum(
            w * full(other.covariances[j])
            for w, j in zip(weights[row], own.groups.indices[row], strict=True)
        )
        expected = np.trace(full(own.covariances[i]) @ uncertain) / 2
        assert found[i] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("strength", [0.02, 1.0])
def test_scales_that_a_strong_factor_makes_different_hide_no_weak_one(strength):
    """A weak factor whose size has nothing to do with that of the strong one."""
    rng = np.random.default_rng(3)
    U = rng.standard_normal((80, 2)) * [1, strength]
    V = rng.standard_normal((60, 2))
    observed = Observed.from_dense(U @ V.T + 1e-3 * rng.standard_normal((80, 60)))
    search = VariationalSearch(observed, Team(1), 1)
    attempts_module._attempt(search, None, 0.1)
    exponents, gain = search.preferred_exponents()
    rescaled = attempts_module._rescaled(search, None)
    if strength == 1:
        assert exponents == (1.0, 1.0)
        assert gain == 0
        assert rescaled is search
    else:
        assert max(exponents) < 0.8
        assert gain > 20
        assert rescaled.exponents == exponents
        assert rescaled.evidence() > search.evidence() + 0.5 * gain
        scales = search.row_scale ** exponents[0]
        np.testing.assert_allclose(rescaled.row_scale, scales, rtol=0.1)


def test_the_preferred_exponents_make_the_factors_most_likely():
    """The log density of Gaussian factors, each with the variance that fits it best, by hand."""
    search = searching(rank=2)
    search.rows.levels.log_scale = np.linspace(-2, 2, 20)
    rng = np.random.default_rng(1)
    size = np.exp(-0.4 * search.rows.levels.log_scale)
    search.rows.U = rng.standard_normal((20, 2)) * size[:, None]
    search.columns.levels.log_scale = np.zeros(15)
    (exponent, of_columns), gain = search.preferred_exponents()

    def log_density(own):
        second = search.rows.U**2 + search.rows.covariances[:, [0, 2]]
        factor = np.exp(2 * (1 - own) * search.rows.levels.log_scale)[:, None]
        variances = np.mean(second * factor, axis=0)
        return -0.5 * np.log(variances / factor).sum()

    densities = [log_density(own) for own in np.linspace(0, 1, 21)]
    assert exponent == pytest.approx(np.argmax(densities) / 20)
    assert 0 < exponent < 1
    assert of_columns == 1
    assert gain == pytest.approx(max(densities) - densities[-1])


@pytest.mark.parametrize("share", [0.04, 0.2])
def test_rows_of_values_of_two_sizes(share):
    """The median of such a row is one of the sizes by chance, and no scale of it."""
    rng = np.random.default_rng(1)
    X = np.kron([[1.0, 0.0], [0.0, 5.0]], np.ones((20, 13)))[:, :25]
    observed = X + 0.1 * X.std() * rng.normal(size=X.shape)
    observed[rng.random(X.shape) < 0.2] = np.nan
    bad = rng.random(X.shape) < share
    observed[bad] += 8 * X.std() * np.sign(rng.normal(size=bad.sum()))
    model = RobustMF(random_state=0, n_jobs=1).fit(observed)
    error = model.predict(*np.indices(X.shape)) - X
    assert np.sqrt(np.mean(error**2)) < 0.1 * X.std()


def test_a_row_of_large_values_among_outliers_of_one_size():
    """Outliers have most evidence in units of the data, in which such a row is an outlier, too."""
    rng = np.random.default_rng(2)
    U = rng.standard_normal((120, 3)) * np.exp(rng.standard_normal((120, 1)))
    U[5] *= 30 / np.abs(U[5]).max()
    X = U @ rng.standard_normal((3, 60))
    observed = X + 0.05 * rng.standard_normal(X.shape)
    bad = rng.random(X.shape) < 0.2
    observed[bad] += 5 * rng.choice([-1, 1], bad.sum())
    observed[rng.random(X.shape) > 0.5] = np.nan
    model = RobustMF(random_state=0, n_jobs=1).fit(observed)
    error = model.predict(*np.indices(X.shape)) - X
    assert np.sqrt(np.mean(error**2)) < 0.05
