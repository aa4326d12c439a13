"""Metrics, compared with their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from robustmf import metrics
from robustmf.data.observed import Observed


def test_errors_and_shift():
    assert metrics.rmse([1, 2, 3], [1, 2, 5]) == pytest.approx(np.sqrt(4 / 3))
    assert metrics.mae([1, 2, 3], [1, 2, 5]) == pytest.approx(2 / 3)
    assert metrics.prediction_shift([3, 3], [4, 3.5]) == 0.75
    many = np.full(10_000_000, 0.1, np.float32)
    assert metrics.mae(many, np.zeros_like(many)) == pytest.approx(np.float32(0.1), rel=1e-12)


def test_hit_ratio_counts_only_columns_that_can_be_recommended():
    scores = np.array([[5.0, 4, 3, 2], [1, 2, 3, 4], [4, 3, 2, 1]])
    assert metrics.hit_ratio(scores, [2], 2) == pytest.approx(1 / 3)
    assert metrics.hit_ratio(scores, [2, 0], 2) == pytest.approx((1 + 2) / 6)
    seen = Observed.from_indices([0, 1], [0, 2], [1.0, 1.0], (3, 4))
    # user 0 has seen item 0, so item 2 moves up; user 1 has seen the target
    assert metrics.hit_ratio(scores, [2], 2, seen) == 0.5
    assert scores[0, 0] == 5
    assert np.isnan(
        metrics.hit_ratio(scores[1:2], [2], 1, Observed.from_indices([0], [2], [1.0], (1, 4)))
    )


def test_hit_ratio_of_ties_is_that_of_a_random_order():
    assert metrics.hit_ratio(np.zeros((3, 10)), [4], 2) == pytest.approx(0.2)
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (20, 12)).astype(float)
    ratios = []
    for _ in range(4000):
        order = np.argsort(-(scores + 0.5 * rng.random(scores.shape)), axis=1)[:, :3]
        ratios.append((order == 5).any(axis=1).mean())
    assert metrics.hit_ratio(scores, 5, 3) == pytest.approx(np.mean(ratios), abs=0.005)


def test_detection():
    bad = np.array([True, False, True, False, False])
    scores = np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    assert metrics.detection_auc(bad, scores) == pytest.approx(5 / 6)
    assert metrics.detection_average_precision(bad, scores) == pytest.approx((1 + 2 / 3) / 2)
    assert metrics.precision_at_k(bad, scores) == 0.5
    assert metrics.precision_at_k(bad, scores, 3) == pytest.approx(2 / 3)
    assert metrics.precision_at_k(bad, np.zeros(5)) == pytest.approx(0.4)
    assert metrics.precision_at_k(bad, [1, 0, 0, 0, 0], 2) == pytest.approx((1 + 0.25) / 2)


def test_paired_test_agrees_with_its_formula_and_handles_equal_differences():
    rng = np.random.default_rng(0)
    a = rng.normal(1, 0.1, 8)
    b = rng.normal(1.2, 0.1, 8)
    differences = a - b
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(8))
    found = metrics.paired_t_test(a, b)
    assert found.difference == pytest.approx(differences.mean())
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(t), 7))
    assert found.significant == (found.p_value < 0.05)
    assert metrics.paired_t_test(a, a) == metrics.PairedComparison(0.0, 1.0, False)
    assert metrics.paired_t_test([1.0, 2.0], [0.0, 1.0]).significant
    assert not metrics.paired_t_test([1, 2, 3], [2, 1, 3]).significant


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: metrics.rmse([1], [1, 2]),
            ValueError,
            "truth and predicted must have the same number of values, at least one; got 1 and 2",
        ),
        (lambda: metrics.mae([], []), ValueError, "at least one"),
        (lambda: metrics.rmse([1, np.nan], [1, 2]), ValueError, "truth must be finite, got nan"),
        (lambda: metrics.hit_ratio([[1.0, 2]], [2], 1), ValueError, "targets its columns"),
        (lambda: metrics.hit_ratio([[1.0, 2]], [1], 0), ValueError, "n must be an integer >= 1"),
        (
            lambda: metrics.hit_ratio([[1.0, 2]], [1], 1, Observed.from_dense([[1.0]])),
            ValueError,
            "seen must have the shape",
        ),
        (lambda: metrics.detection_auc([0, 1], [1, 2]), TypeError, "bad must be an array of bool"),
        (lambda: metrics.detection_auc([True, True], [1, 2]), ValueError, "both True and False"),
        (
            lambda: metrics.detection_auc([True, False], [1, np.nan]),
            ValueError,
            "scores must not be NaN",
        ),
        (
            lambda: metrics.precision_at_k([True, False], [1, 2], 3),
            ValueError,
            "k must be an integer from 1 to 2",
        ),
        (lambda: metrics.paired_t_test([1], [2]), ValueError, "at least 2 pairs"),
        (
            lambda: metrics.paired_t_test([1, 2], [2, 3], level=95),
            ValueError,
            "level must lie between 0 and 1",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
