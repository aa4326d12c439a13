"""How good predictions are, how far an attack moves them, how well bad entries are found, and whether a difference is more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ttest_rel
from sklearn.metrics import average_precision_score, roc_auc_score

from robustmf.data.observed import Observed

Array = NDArray[np.float64]


def rmse(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Root of the mean squared difference, summed in float64.

    Examples
    --------
    >>> from robustmf.metrics import rmse
    >>> rmse([1, 2, 3, 4], [1, 2, 3, 6])
    1.0
    """
    a, b = _pair(truth, predicted, "truth", "predicted")
    return float(np.sqrt(np.mean(np.square(a - b))))


def mae(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Mean absolute difference, summed in float64.

    Examples
    --------
    >>> from robustmf.metrics import mae
    >>> mae([1, 2, 3, 4], [1, 2, 3, 6])
    0.5
    """
    a, b = _pair(truth, predicted, "truth", "predicted")
    return float(np.mean(np.abs(a - b)))


def prediction_shift(before: ArrayLike, after: ArrayLike) -> float:
    """Mean of after − before over predictions of the attacked items by genuine users: positive where a push worked.

    As in Mobasher et al., "Toward trustworthy recommender systems", ACM TOIT 7(4), 2007.

    Examples
    --------
    >>> from robustmf.metrics import prediction_shift
    >>> prediction_shift([2.0, 3.0], [2.5, 4.5])
    1.0
    """
    a, b = _pair(before, after, "before", "after")
    return float(np.mean(b - a))


def hit_ratio(scores: ArrayLike, targets: ArrayLike, n: int, seen: Observed | None = None) -> float:
    """Share of (user, target) pairs in which the target is among the user's ``n`` best items.

    Parameters
    ----------
    scores : array (users, items)
        Predictions for genuine users; pass users block by block where all of them would be too many.
    targets : array of int
        Columns of the attacked items.
    n : int
        Length of the list of recommendations.
    seen : Observed, optional
        Entries of the same shape: what a user has rated is not recommended, and a target that the user has rated is not counted.

    Notes
    -----
    Equal scores count as if their order were drawn at random. NaN where every user has rated every target.

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
            f"scores must be (users, items) and targets its columns; got shape {table.shape}, targets={targets!r}"
        )
    if np.isnan(table).any():
        raise ValueError("scores must not be NaN")
    if n < 1:
        raise ValueError(f"n must be an integer >= 1, got n={n!r}")
    if seen is not None:
        if seen.shape != table.shape:
            raise ValueError(f"seen must have the shape of scores, {table.shape}, got {seen.shape}")
        table[seen.rows.group_of_entry(), seen.rows.indices] = -np.inf
    pairs, hits = 0, 0.0
    for column in columns:
        own = table[:, column]
        counted = own > -np.inf
        better = (table[counted] > own[counted, None]).sum(axis=1)
        equal = (table[counted] == own[counted, None]).sum(axis=1)
        hits += float(np.clip((n - better) / equal, 0, 1).sum())
        pairs += int(counted.sum())
    return hits / pairs if pairs else float("nan")


def detection_auc(bad: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: the chance that a bad entry (row, column) scores above a good one, ties counting half."""
    return float(roc_auc_score(*_detection(bad, scores)))


def detection_average_precision(bad: ArrayLike, scores: ArrayLike) -> float:
    """Precision averaged over the ranks of the bad ones: scikit-learn's ``average_precision_score``."""
    return float(average_precision_score(*_detection(bad, scores)))


def precision_at_k(bad: ArrayLike, scores: ArrayLike, k: int | None = None) -> float:
    """Share of bad ones among the ``k`` highest scores; k is the number of bad ones where none is given.

    Equal scores at the border count as if their order were drawn at random.

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
    border = np.partition(score, len(score) - k)[len(score) - k]
    above, at = score > border, score == border
    return float((truth[above].sum() + (k - above.sum()) * truth[at].mean()) / k)


@dataclass(frozen=True)
class PairedComparison:
    """Result of :func:`paired_t_test`: mean of first − second, the two-sided p-value, and whether it is below 1 − level."""

    difference: float
    p_value: float
    significant: bool


def paired_t_test(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> PairedComparison:
    """Student's t-test for paired runs (same data and seed), two-sided, at the given confidence."""
    a, b = _pair(first, second, "first", "second")
    if len(a) < 2:
        raise ValueError(f"a paired test needs at least 2 pairs, got {len(a)}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got level={level!r}")
    gap = a - b
    # without spread (but rounding) the statistic is 0/0 or x/0: no difference at all, or one beyond doubt
    p_value = (
        float(ttest_rel(a, b).pvalue)
        if np.ptp(gap) > 1e-12 * np.abs(gap).max()
        else float(gap[0] == 0)
    )
    return PairedComparison(float(gap.mean()), p_value, p_value < 1 - level)


def _pair(first: ArrayLike, second: ArrayLike, *names: str) -> tuple[Array, Array]:
    a, b = (
        _numbers(values, name).ravel() for values, name in zip((first, second), names, strict=True)
    )
    if a.shape != b.shape or not a.size:
        raise ValueError(
            f"{names[0]} and {names[1]} must hold equally many numbers, at least one; got {a.size} and {b.size}"
        )
    for name, values in zip(names, (a, b), strict=True):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got {values[~np.isfinite(values)][0]}")
    return a, b


def _numbers(values: ArrayLike, name: str) -> Array:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array.astype(np.float64)


def _detection(
    bad: ArrayLike, scores: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.floating[Any]]]:
    truth, score = np.asarray(bad).ravel(), _numbers(scores, "scores").ravel()
    if truth.dtype != np.bool_:
        raise TypeError(f"bad must be an array of bool, got dtype {truth.dtype}")
    if truth.shape != score.shape:
        raise ValueError(f"bad and scores must have one length, got {len(truth)} and {len(score)}")
    if np.isnan(score).any():
        raise ValueError("scores must not be NaN")
    if truth.all() or not truth.any():
        raise ValueError(
            f"bad must hold both kinds to measure how well they are told apart, got {len(truth)} of one kind"
        )
    return truth, score
