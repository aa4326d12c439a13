"""Metrics of predictions, of the effect of attacks, of outlier detection, and of paired runs.

Errors of prediction, areas under curves and tests are those of scikit-learn and SciPy; the
functions here validate the input, compute in float64, and name the argument in error messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ttest_rel
from sklearn.metrics import (
    average_precision_score,
    mean_absolute_error,
    roc_auc_score,
    root_mean_squared_error,
)

from robustmf.data.observed import Observed

Array = NDArray[np.float64]

#: Differences that vary by less than this, relative to the largest one, are considered equal.
_EQUAL_DIFFERENCES = 1e-12


def rmse(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Root mean squared error.

    Parameters
    ----------
    truth, predicted : array-like of the same size
        True and predicted values.

    Returns
    -------
    float

    Examples
    --------
    >>> from robustmf.metrics import rmse
    >>> rmse([1, 2, 3, 4], [1, 2, 3, 6])
    1.0
    """
    a, b = _pair(truth, predicted, "truth", "predicted")
    return float(root_mean_squared_error(a, b))


def mae(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Mean absolute error.

    Parameters
    ----------
    truth, predicted : array-like of the same size
        True and predicted values.

    Returns
    -------
    float

    Examples
    --------
    >>> from robustmf.metrics import mae
    >>> mae([1, 2, 3, 4], [1, 2, 3, 6])
    0.5
    """
    a, b = _pair(truth, predicted, "truth", "predicted")
    return float(mean_absolute_error(a, b))


def prediction_shift(before: ArrayLike, after: ArrayLike) -> float:
    """Mean change of the predictions of attacked items for genuine users.

    Parameters
    ----------
    before, after : array-like of the same size
        Predictions before and after the attack.

    Returns
    -------
    float
        Positive if an attack that promotes the items succeeded.

    References
    ----------
    B. Mobasher, R. Burke, R. Bhaumik and C. Williams, "Toward trustworthy recommender systems: an
    analysis of attack models and algorithm robustness", ACM TOIT 7(4), 2007.

    Examples
    --------
    >>> from robustmf.metrics import prediction_shift
    >>> prediction_shift([2.0, 3.0], [2.5, 4.5])
    1.0
    """
    a, b = _pair(before, after, "before", "after")
    return float(np.mean(b - a))


def hit_ratio(scores: ArrayLike, targets: ArrayLike, n: int, seen: Observed | None = None) -> float:
    """Fraction of (user, target) pairs in which the target is among the user's ``n`` best items.

    Parameters
    ----------
    scores : array-like of shape (users, items)
        Predictions for genuine users.
    targets : array-like of int
        Columns of the attacked items.
    n : int
        Length of the list of recommendations.
    seen : Observed, default=None
        Entries of the same shape. Items that a user has rated are not recommended, and pairs in
        which the user has rated the target are not counted.

    Returns
    -------
    float
        NaN if every user has rated every target.

    Notes
    -----
    Ties count as if they were broken at random.

    Examples
    --------
    >>> from robustmf.metrics import hit_ratio
    >>> hit_ratio([[5, 3, 1], [1, 2, 3]], targets=[0], n=1)
    0.5
    """
    table = _numbers(scores, "scores")
    columns = np.atleast_1d(np.asarray(targets))
    if (
        table.ndim != 2
        or columns.dtype.kind not in "iu"
        or columns.min() < 0
        or columns.max() >= table.shape[1]
    ):
        raise ValueError(
            "scores must be (users, items) and targets its columns; "
            f"got shape {table.shape}, targets={targets!r}"
        )
    if np.isnan(table).any():
        raise ValueError("scores must not be NaN")
    if n < 1:
        raise ValueError(f"n must be an integer >= 1, got n={n!r}")
    if seen is not None:
        if seen.shape != table.shape:
            raise ValueError(f"seen must have the shape of scores, {table.shape}, got {seen.shape}")
        table[seen.rows.group_of_entry(), seen.rows.indices] = -np.inf
    pairs = 0
    hits = 0.0
    for column in columns:
        target_scores = table[:, column]
        counted = target_scores > -np.inf
        better = (table[counted] > target_scores[counted, None]).sum(axis=1)
        equal = (table[counted] == target_scores[counted, None]).sum(axis=1)
        hits += float(np.clip((n - better) / equal, 0, 1).sum())
        pairs += int(counted.sum())
    return hits / pairs if pairs else float("nan")


def detection_auc(bad: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve, :func:`sklearn.metrics.roc_auc_score`.

    It is the probability that a bad entry has a higher score than a clean one, with ties counted
    half.

    Parameters
    ----------
    bad : array-like of bool
        Whether each entry (row, column) is bad.
    scores : array-like of the same size
        Higher for entries that are more likely to be bad.

    Returns
    -------
    float
    """
    return float(roc_auc_score(*_detection(bad, scores)))


def detection_average_precision(bad: ArrayLike, scores: ArrayLike) -> float:
    """Average precision, :func:`sklearn.metrics.average_precision_score`.

    Parameters
    ----------
    bad : array-like of bool
        Whether each entry (row, column) is bad.
    scores : array-like of the same size
        Higher for entries that are more likely to be bad.

    Returns
    -------
    float
    """
    return float(average_precision_score(*_detection(bad, scores)))


def precision_at_k(bad: ArrayLike, scores: ArrayLike, k: int | None = None) -> float:
    """Fraction of bad entries among the ``k`` highest scores.

    Parameters
    ----------
    bad : array-like of bool
        Whether each entry (row, column) is bad.
    scores : array-like of the same size
        Higher for entries that are more likely to be bad.
    k : int, default=None
        None is the number of bad entries.

    Returns
    -------
    float

    Notes
    -----
    Ties at the threshold count as if they were broken at random.

    Examples
    --------
    >>> from robustmf.metrics import precision_at_k
    >>> precision_at_k([True, False, True, False], [0.9, 0.8, 0.7, 0.1], k=2)
    0.5
    """
    truth, score = _detection(bad, scores)
    k = int(truth.sum()) if k is None else k
    if not 1 <= k <= len(score):
        raise ValueError(
            f"k must be an integer from 1 to {len(score)}, the number of scores, got k={k!r}"
        )
    threshold = np.partition(score, len(score) - k)[len(score) - k]
    above = score > threshold
    tied = score == threshold
    return float((truth[above].sum() + (k - above.sum()) * truth[tied].mean()) / k)


@dataclass(frozen=True)
class PairedComparison:
    """Result of :func:`paired_t_test`.

    Attributes
    ----------
    difference : float
        Mean of first − second.
    p_value : float
        The two-sided p-value.
    significant : bool
        Whether the p-value is below 1 − level.
    """

    difference: float
    p_value: float
    significant: bool


def paired_t_test(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> PairedComparison:
    """Two-sided t-test of paired runs (same data and seed), :func:`scipy.stats.ttest_rel`.

    Parameters
    ----------
    first, second : array-like of the same size
        Results of the two methods.
    level : float, default=0.95
        The confidence level.

    Returns
    -------
    PairedComparison
    """
    a, b = _pair(first, second, "first", "second")
    if len(a) < 2:
        raise ValueError(f"a paired test requires at least 2 pairs, got {len(a)}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got level={level!r}")
    differences = a - b
    # if all differences are equal up to rounding, the statistic is 0/0 or infinite
    p_value = (
        float(ttest_rel(a, b).pvalue)
        if np.ptp(differences) > _EQUAL_DIFFERENCES * np.abs(differences).max()
        else float(differences[0] == 0)
    )
    return PairedComparison(float(differences.mean()), p_value, p_value < 1 - level)


def _pair(first: ArrayLike, second: ArrayLike, *names: str) -> tuple[Array, Array]:
    """Two vectors of the same length of finite numbers, in float64."""
    a = _numbers(first, names[0]).ravel()
    b = _numbers(second, names[1]).ravel()
    if a.shape != b.shape or not a.size:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same number of values, at least one; "
            f"got {a.size} and {b.size}"
        )
    for name, values in zip(names, (a, b), strict=True):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got {values[~np.isfinite(values)][0]}")
    return a, b


def _numbers(values: ArrayLike, name: str) -> Array:
    """A copy in float64."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array.astype(np.float64)


def _detection(
    bad: ArrayLike, scores: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.floating[Any]]]:
    """Labels and scores of the same length, with both labels present."""
    truth = np.asarray(bad).ravel()
    score = _numbers(scores, "scores").ravel()
    if truth.dtype != np.bool_:
        raise TypeError(f"bad must be an array of bool, got dtype {truth.dtype}")
    if truth.shape != score.shape:
        raise ValueError(
            f"bad and scores must have the same length, got {len(truth)} and {len(score)}"
        )
    if np.isnan(score).any():
        raise ValueError("scores must not be NaN")
    if truth.all() or not truth.any():
        raise ValueError(f"bad must contain both True and False, got {len(truth)} equal values")
    return truth, score
