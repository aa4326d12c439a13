"""Calibrated outlier scores, evidence against rows and columns, and the audit."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from robustmf import Observed, RobustMF
from robustmf.datasets import average_attack, love_hate, make_synthetic
from robustmf.exceptions import UnknownIdsWarning
from robustmf.metrics import detection_auc, precision_at_k
from robustmf.outliers import evidence
from robustmf.outliers.audit import Audit
from robustmf.outliers.evidence import Groups, combined, group_evidence
from robustmf.outliers.noise import fit_distribution
from robustmf.outliers.scores import scores_and_predictions
from robustmf.validation import UNBOUNDED


def fitted(data, seed=0, **parameters):
    return RobustMF(5, random_state=seed, n_jobs=1, **parameters).fit(data.train)


def false_alarms(scores, bad):
    return [float((scores[~bad] <= level).mean()) for level in (0.01, 0.05)]


def within_band(alarms, fitted=False):
    """The bands of docs/design/outliers.md for Gaussian noise and up to 10 % of outliers."""
    low, high = ((0.008, 0.045), (0.012, 0.055)) if fitted else ((0.005, 0.045), (0.017, 0.07))
    return all(least <= alarm <= most for least, alarm, most in zip(low, alarms, high, strict=True))


@pytest.fixture(scope="module")
def data():
    return make_synthetic(500, outliers=0.1, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return fitted(data)


# Single entries


@pytest.mark.parametrize(
    ("noise", "outliers", "magnitude", "seed"),
    [(0.1, 0.05, 5.0, 0), (0.1, 0.1, 5.0, 1), (0.5, 0.05, 5.0, 2), (1.0, 0.05, 20.0, 3)],
)
def test_a_score_is_a_false_alarm_rate(noise, outliers, magnitude, seed):
    """For fitted and for held-out entries, which are distinguished automatically."""
    data = make_synthetic(
        500, noise=noise, outliers=outliers, magnitude=magnitude, random_state=seed
    )
    model = fitted(data, seed)
    for entries, bad in (
        (data.train, data.train_outliers),
        (data.validation, data.validation_outliers),
    ):
        scores = model.outlier_scores(entries)
        assert within_band(false_alarms(scores, bad), entries is data.train), false_alarms(
            scores, bad
        )
        assert (scores[bad] <= 0.01).mean() > 0.98


def new_rows(data, noise, outliers, seed):
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((300, 5)) @ data.column_factors.T
    seen = rng.random(clean.shape) < 0.06
    bad = rng.random(clean.shape) < outliers
    X = (
        clean
        + noise * rng.standard_normal(clean.shape)
        + 5 * bad * rng.choice([-1, 1], clean.shape)
    )
    X[~seen] = np.nan
    return X, bad[seen]


def test_new_rows_are_scored_without_a_refit(data, model):
    X, bad = new_rows(data, 0.1, 0.1, 1)
    scores = model.outlier_scores(X, rows="new")
    assert within_band(false_alarms(scores, bad)), false_alarms(scores, bad)
    assert (scores[bad] <= 0.01).mean() > 0.98
    alone = Observed.from_dense(X[:1])
    np.testing.assert_allclose(
        model.outlier_scores(alone, rows="new"), scores[: alone.n_entries], rtol=1e-6
    )


def test_scores_of_a_model_with_biases():
    data = make_synthetic(250, observed=0.4, random_state=0)
    model = fitted(data, bias=True)
    assert within_band(false_alarms(model.outlier_scores(), data.train_outliers), fitted=True)
    assert within_band(
        false_alarms(model.outlier_scores(data.validation), data.validation_outliers)
    )


def test_false_alarm_rate_without_outliers():
    data = make_synthetic(500, outliers=0.0, random_state=3)
    assert within_band(
        false_alarms(fitted(data).outlier_scores(), data.train_outliers), fitted=True
    )


def test_heavy_tails_are_estimated():
    """Noise with Student's t distribution, for which the normal one has too many false alarms."""
    rng = np.random.default_rng(0)
    data = make_synthetic(500, noise=0.0, random_state=0)
    train = data.train.with_values(
        data.train.rows.values + 0.1 * rng.standard_t(3, data.train.n_entries)
    )
    alarms = false_alarms(
        fitted(dataclasses.replace(data, train=train)).outlier_scores(), data.train_outliers
    )
    assert 0.008 <= alarms[0] <= 0.025
    assert 0.04 <= alarms[1] <= 0.07


def test_scores_do_not_depend_on_the_unit(data, model):
    scaled = dataclasses.replace(data, train=data.train.with_values(1000 * data.train.rows.values))
    np.testing.assert_allclose(
        fitted(scaled).outlier_scores(), model.outlier_scores(), rtol=0.02, atol=1e-6
    )


def test_the_entries_of_the_fit_are_the_default(data, model):
    np.testing.assert_array_equal(model.outlier_scores(), model.outlier_scores(data.train))
    moved = data.train.with_values(data.train.rows.values + 0.01)
    # Entries that differ from the fitted ones are scored as held out.
    assert (model.outlier_scores(moved) != model.outlier_scores()).any()


def test_the_distribution_is_fitted_to_the_center():
    rng = np.random.default_rng(0)
    clean = 2 * rng.standard_t(6, 20_000)
    bad = 50 + rng.random(4_000)
    distribution = fit_distribution(np.concatenate([clean, bad]))
    of_clean = fit_distribution(clean)
    assert distribution.share == pytest.approx(20 / 24, abs=0.005)
    # The bins depend slightly on the initial scale.
    assert (distribution.scale, distribution.freedom) == pytest.approx(
        (of_clean.scale, of_clean.freedom), rel=0.02
    )
    assert distribution.scale == pytest.approx(2, rel=0.05)
    assert distribution.freedom == pytest.approx(6, rel=0.4)
    assert distribution.two_sided(np.array([distribution.quantile(0.9)]))[0] == pytest.approx(0.1)


# Rows and columns


def rating_model(ratings):
    return RobustMF(3, bias=True, reg=3.0, random_state=0, n_jobs=1).fit(ratings)


@pytest.fixture(scope="module")
def loved(ratings):
    return love_hate(ratings, share=0.04, random_state=1)


@pytest.fixture(scope="module")
def loved_model(loved):
    return rating_model(loved.ratings)


@pytest.fixture(scope="module")
def shilled(ratings):
    return average_attack(ratings, [7, 77], attack_size=0.05, filler_size=0.08, random_state=1)


@pytest.fixture(scope="module")
def shilled_model(shilled):
    return rating_model(shilled.ratings)


def test_items_with_constant_values_are_found_although_they_fit_perfectly(loved, loved_model):
    judged = loved.columns & (loved.ratings.columns.counts >= 5)
    scores = loved_model.column_scores()
    assert (scores[judged] <= 0.01).mean() > 0.9
    assert (scores[~loved.columns] <= 0.01).mean() < 0.02
    # Residuals contain no evidence.
    assert detection_auc(loved.entries, -loved_model.outlier_scores()) < 0.6
    assert detection_auc(loved.entries, -np.log(loved_model.outlier_scores(attacks=True))) > 0.95


def test_injected_profiles_and_their_targets_are_found(shilled, shilled_model):
    assert precision_at_k(shilled.rows, -np.log(shilled_model.row_scores())) >= 0.9
    assert precision_at_k(shilled.columns, -np.log(shilled_model.column_scores())) == 1.0
    assert (
        detection_auc(shilled.entries, -np.log(shilled_model.outlier_scores(attacks=True))) > 0.95
    )


def test_clean_rows_and_columns_have_few_false_alarms(ratings):
    model = rating_model(ratings)
    for scores in (model.row_scores(), model.column_scores()):
        assert (scores <= 0.01).mean() <= 0.02
        assert (scores <= 0.05).mean() <= 0.08


def test_new_profiles_are_scored_among_the_fitted_rows(ratings, shilled):
    model = rating_model(ratings)
    dense = np.full(shilled.ratings.shape, np.nan)
    dense[shilled.ratings.rows.group_of_entry(), shilled.ratings.rows.indices] = (
        shilled.ratings.rows.values
    )
    clean = dense[:20]
    scores = model.row_scores(np.vstack([dense[shilled.rows], clean]), rows="new")
    assert len(scores) == 40
    assert detection_auc(np.arange(40) < 20, -np.log(scores)) > 0.95
    assert len(model.column_scores(clean, rows="new")) == ratings.shape[1]
    with_attacks = model.outlier_scores(dense[shilled.rows], rows="new", attacks=True)
    assert np.median(with_attacks) < 0.05


def test_scores_of_new_rows_are_in_the_order_of_their_entries(ratings):
    """Columns are matched by id in any order; the scores of unknown columns are NaN."""
    model = rating_model(ratings)
    items = [ratings.column_ids[k] for k in (30, 3, 200, 100)]
    values = [4.0, 0.5, 3.0, 5.0]
    scores = model.outlier_scores(
        Observed.from_triplets(row=["new"] * 4, col=items, value=values), rows="new"
    )
    order = np.argsort(items)
    by_number = np.full((1, ratings.shape[1]), np.nan)
    by_number[0, [30, 3, 200, 100]] = values
    expected = dict(
        zip(
            np.flatnonzero(~np.isnan(by_number[0])),
            model.outlier_scores(by_number, rows="new"),
            strict=True,
        )
    )
    np.testing.assert_allclose(scores, [expected[(30, 3, 200, 100)[k]] for k in order])
    with pytest.warns(UnknownIdsWarning):
        with_unknown = model.outlier_scores(
            Observed.from_triplets(
                row=["new"] * 5, col=["a new item", *items], value=[3.0, *values]
            ),
            rows="new",
            attacks=True,
        )
    assert np.isnan(with_unknown).tolist() == [True, False, False, False, False]


def test_new_rows_without_entries_have_score_one(model):
    empty = np.full((2, 500), np.nan)
    assert model.row_scores(empty, rows="new").tolist() == [1.0, 1.0]
    assert len(model.outlier_scores(empty, rows="new")) == 0


def test_one_bad_entry_does_not_flag_its_row(data, model):
    values = data.train.rows.values.copy()
    first = data.train.rows.pointers[17]
    values[first] += 1000.0
    judged = data.train.with_values(values)
    assert model.outlier_scores(judged)[first] < 1e-6
    assert model.row_scores(judged)[17] > 0.01


# The audit


def test_the_audit_names_the_worst_with_reasons(loved, loved_model):
    audit = loved_model.audit(top=5)
    names = {f"item {k}" for k in range(500)}
    attacked = {loved.ratings.column_ids[k] for k in np.flatnonzero(loved.columns)}
    assert len(audit.columns) == 5
    assert {suspect.id for suspect in audit.columns} <= attacked <= names
    assert all(
        suspect.reason.startswith(("its values are 5 ± 0", "its values are 0.5 ± 0"))
        for suspect in audit.columns
    )
    assert [s.score for s in audit.columns] == sorted(s.score for s in audit.columns)
    counts = dict(zip(loved.ratings.column_ids, loved.ratings.columns.counts.tolist(), strict=True))
    assert all(suspect.entries == counts[suspect.id] for suspect in audit.columns)


def test_the_audit_lists_the_planted_entries(data, model):
    audit = model.audit(top=50)
    rows = data.train.rows
    planted = set(
        zip(
            rows.group_of_entry()[data.train_outliers].tolist(),
            rows.indices[data.train_outliers].tolist(),
            strict=True,
        )
    )
    assert len(audit.entries) == 50
    assert all((suspect.row, suspect.column) in planted for suspect in audit.entries)
    worst = audit.entries[0]
    assert worst.reason.startswith(f"{worst.value:.4g} where {worst.expected:.4g} ± 0.")
    deviations = [float(one.reason.split(" ± ")[1].split()[0]) for one in audit.entries]
    assert 0.03 < np.median(deviations) < 0.15  # the noise is 0.1, less the degrees of freedom
    assert worst.score < 1e-6
    assert "fewer than one in 1,000 clean entries" in worst.reason
    assert audit.clean_share == pytest.approx(0.9, abs=0.01)
    assert "About 10.0 % of the entries" in str(audit) or "About 9." in str(audit)


def test_the_audit_of_profiles_states_the_evidence(shilled_model):
    reasons = " ".join(suspect.reason for suspect in shilled_model.audit(top=20).rows)
    assert "suspicious columns" in reasons or "do not have together" in reasons


def test_the_audit_of_new_rows_has_their_ids(ratings):
    model = rating_model(ratings)
    bad = Observed.from_triplets(
        row=["new user"] * 30, col=ratings.column_ids[:30], value=[5.0] * 30
    )
    audit = model.audit(bad, rows="new", at_most=1.0)
    assert [suspect.id for suspect in audit.rows] == ["new user"]
    assert audit.rows[0].entries == 30
    assert {suspect.row for suspect in audit.entries} == {"new user"}


def test_the_audit_lists_nothing_that_is_not_suspicious():
    data = make_synthetic(100, rank=2, observed=0.5, outliers=0.0, random_state=0)
    audit = RobustMF(2, random_state=0, n_jobs=1).fit(data.train).audit(at_most=1e-7)
    assert audit.entries == audit.rows == audit.columns == []
    assert audit.to_pandas()["rows"].columns.tolist() == ["id", "entries", "score", "reason"]


def test_times_in_the_text_of_an_audit_are_written_as_they_are_read():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1)) @ rng.standard_normal((1, 20))
    X += 0.1 * rng.standard_normal(X.shape)
    X[5, 7] += 10
    hours = pd.date_range("2026-03-01", periods=60, freq="h")
    text = str(RobustMF(random_state=0).fit(pd.DataFrame(X, hours)).audit(top=1))
    assert "row 2026-03-01 05:00:00, column 7" in text


def test_the_audit_as_data_frames(loved_model):
    pytest.importorskip("pandas")
    tables = loved_model.audit(top=3).to_pandas()
    assert list(tables) == ["entries", "rows", "columns"]
    assert len(tables["columns"]) == 3
    assert tables["entries"].columns.tolist() == [
        "row",
        "column",
        "value",
        "expected",
        "score",
        "reason",
    ]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda model: RobustMF().outlier_scores(np.ones((2, 2))), NotFittedError, "not fitted"),
        (lambda model: RobustMF().audit(), NotFittedError, "not fitted"),
        (
            lambda model: model.outlier_scores(np.ones((3, 500))),
            ValueError,
            "shape of the fitted matrix",
        ),
        (
            lambda model: model.outlier_scores(np.ones((3, 4)), rows="new"),
            ValueError,
            "X has 4 features",
        ),
        (lambda model: model.row_scores(rows="new"), ValueError, "rows='new' needs X"),
        (
            lambda model: model.column_scores(rows="old"),
            ValueError,
            "rows must be 'fitted' or 'new', got rows='old'",
        ),
        (lambda model: model.audit(top=0), ValueError, "top must be an integer >= 1"),
        (lambda model: model.audit(at_most=-1), ValueError, "at_most must be"),
    ],
)
def test_bad_use_is_refused_by_name(model, call, error, message):
    with pytest.raises(error, match=message):
        call(model)


def test_entries_with_unknown_ids_have_no_score_and_a_warning(loved_model):
    fitted = loved_model.model_.fitted_entries()
    known = fitted.row_ids[0], fitted.column_ids[int(fitted.rows.indices[0])]
    value = float(fitted.rows.values[0])
    some = Observed.from_triplets(
        row=[known[0], "nobody", known[0]], col=[known[1], known[1], "nothing"], value=[value, 3, 3]
    )
    with pytest.warns(UnknownIdsWarning, match="2 of 3 entries .* rows='new'"):
        scores = loved_model.outlier_scores(some)
    i = some.row_ids.index(known[0])
    j = some.column_ids.index(known[1])
    is_known = (some.rows.group_of_entry() == i) & (some.rows.indices == j)
    np.testing.assert_array_equal(np.isnan(scores), ~is_known)
    assert scores[is_known] == loved_model.outlier_scores()[0]
    for call in (loved_model.row_scores, loved_model.column_scores, loved_model.audit):
        with pytest.warns(UnknownIdsWarning, match="2 of 3 entries"):
            call(some)


def test_tiny_and_degenerate_data_have_scores():
    for X in (np.ones((5, 4)), np.arange(20.0).reshape(5, 4), np.eye(3)):
        model = RobustMF(1, random_state=0).fit(X)
        for scores in (
            model.outlier_scores(),
            model.row_scores(),
            model.column_scores(),
            model.outlier_scores(attacks=True),
        ):
            assert ((scores >= 0) & (scores <= 1)).all()
        model.audit()


def test_evidence_that_was_not_computed_is_not_combined():
    rng = np.random.default_rng(0)
    i, j = np.divmod(np.arange(40 * 30), 30)
    rows, columns = group_evidence(
        Groups(i, j, 40, 30, rng.standard_normal(1200), rng.standard_normal(1200))
    )
    for found in (rows, columns):
        assert not found.suspicious_others.any()
        # Without a suspicious row or column the density of suspicious neighbours is not computed.
        assert set(found.kinds) == {"misfit", "co-occurrence"}
        np.testing.assert_array_equal(found.scores, combined(found.kinds))


def test_an_audit_of_ratings_expects_nothing_beyond_the_scale():
    rng = np.random.default_rng(5)
    stars = np.clip(
        np.rint(3 + 1.6 * np.outer(rng.standard_normal(60), rng.standard_normal(50))), 1, 5
    )
    wrong = rng.random(stars.shape) < 0.03
    stars[wrong] = 6 - stars[wrong]
    model = RobustMF(1, bias=True, init="ridge", random_state=0).fit(stars)
    unclipped = replace(model.model_, bounds=UNBOUNDED)
    assert unclipped.predict_pairs(*np.nonzero(stars)).max() > 5.1, "predictions are clipped"
    listed = model.audit(top=50, at_most=0.05).entries
    assert listed
    assert all(1 <= one.expected <= 5 for one in listed)


def test_a_small_share_of_outliers_is_not_called_zero():
    assert "Less than 0.1 % of the entries" in str(Audit([], [], [], 0.9999))
    assert "About 0.1 % of the entries" in str(Audit([], [], [], 0.9994))


def test_expected_values_of_new_rows_are_within_the_bounds():
    X = np.outer(np.arange(1.0, 13), np.arange(1.0, 9))
    model = RobustMF(1, bias=False, bounds=(0.0, 50.0), random_state=0, n_jobs=1).fit(X)
    _, expected = scores_and_predictions(model._model(), 2 * X[-2:], rows="new", attacks=False)
    assert expected.max() == 50
    np.testing.assert_allclose(expected[:2], [22, 44], rtol=0.01)


def test_co_occurrence_is_measured_with_other_groups_only(monkeypatch):
    """The sketch against the sum over all pairs of groups."""
    rng = np.random.default_rng(0)
    incidence = rng.random((60, 40)) < 0.2
    i, j = np.nonzero(incidence)
    groups = Groups(i, j, 60, 40, np.ones(len(i)), np.zeros(len(i)))
    monkeypatch.setattr(evidence, "_upper_tail", lambda statistic, eligible, counts: statistic)
    density = np.exp(-evidence._co_occurrence(groups, groups.sums()))
    rarity = 1 / np.sqrt(np.maximum(incidence.sum(axis=0), 1))
    shared = (incidence * rarity) @ incidence.T.astype(float)
    np.fill_diagonal(shared, 0)
    expected = np.square(shared).sum(axis=1) / incidence.sum(axis=1) ** 2
    assert np.median(np.abs(density / expected - 1)) < 0.1


def test_groups_with_few_entries_share_more_of_them_with_suspicious_ones():
    counts = np.repeat([4.0, 400.0], [100, 10])
    hits = np.repeat([1.0, 2.0], [100, 10])
    shares = evidence._hit_shares(hits, counts)
    mean = hits.sum() / counts.sum()
    np.testing.assert_allclose(shares[:100], 0.25, rtol=1e-3)
    np.testing.assert_allclose(shares[100:], mean)  # not below the mean share


def test_probabilities_beyond_the_number_of_groups_are_moderated():
    """Ten times farther off, a t distribution with ten degrees of freedom has 1e-10 of the tail."""
    statistic = np.append(np.random.default_rng(0).standard_normal(400), [1e4, 1e5])
    counts = np.full(402, 50.0)
    tail = evidence._upper_tail(statistic, counts > 0, counts)
    assert tail[-2] / tail[-1] == pytest.approx(1e5, rel=0.01)
