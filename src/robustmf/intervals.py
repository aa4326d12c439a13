"""Prediction intervals by split conformal calibration, with bad entries among those calibrated on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from robustmf.estimator import RobustMF
from robustmf.outliers.noise import fit_law
from robustmf.validation import require_positive

Array = NDArray[np.floating[Any]]


class Interval(NamedTuple):
    """Ends of prediction intervals, in the shape of what was asked for."""

    lower: Array
    upper: Array


class ConformalIntervals:
    """Intervals that hold a new good value with a given probability, whatever the model got wrong.

    Held-out entries give residuals, each over its own deviation (how well the fit knows that row and column). The interval reaches as
    far as the right share of *good* entries does. Bad entries among the held-out ones would push it outwards: with a share π of them,
    all farther off than the good ones, the q-quantile of the good is the q(1 − π)-quantile of all; π is estimated from the centre of
    the residuals, where only good ones are. Without bad entries this is split conformal prediction (Lei et al. 2018, scaled residuals),
    whose coverage holds for any model and noise; with them it also rests on the estimate of π.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : as in ``fit``
        Entries of the fitted matrix that were *not* fitted, some hundreds or more: e.g. the second part of
        :func:`robustmf.selection.entry_train_test_split`.

    Attributes
    ----------
    good_share_ : float
        Estimated share of good entries among those of X.

    Examples
    --------
    >>> from robustmf import RobustMF
    >>> from robustmf.datasets import make_synthetic
    >>> from robustmf.intervals import ConformalIntervals
    >>> data = make_synthetic(250, random_state=0)
    >>> model = RobustMF(rank=5, random_state=0).fit(data.train)
    >>> lower, upper = ConformalIntervals(model, data.validation).predict([0, 1], [2, 3], level=0.9)
    >>> bool((lower < model.predict([0, 1], [2, 3])).all() and (upper - lower < 1).all())
    True
    """

    def __init__(self, model: RobustMF, X: Any) -> None:
        check_is_fitted(model)
        self._model, self._noise = model, model._noise()
        observed, i, j = model._located(X)
        fitted = model._is_fitted(i, j, observed.rows.values, False)
        if fitted.any():
            raise ValueError(
                f"X must hold entries that the model was not fitted to, but {int(fitted.sum())} of {len(i)} were; "
                "hold some out with robustmf.selection.entry_train_test_split"
            )
        residual = observed.rows.values - model._predictor().pairs(i, j)
        scores = residual / self._noise.deviations(i, j, np.zeros(len(i), bool))
        self.good_share_ = fit_law(scores).share
        self._scores = np.sort(np.abs(scores).astype(np.float64))

    def predict(self, rows: Any, cols: Any, level: float = 0.9) -> Interval:
        """Intervals for values at pairs of a row and a column, named as in :meth:`RobustMF.predict`.

        They are infinite (or ``bounds``) where X had too few entries for the level.
        """
        require_positive("level", level)
        if level >= 1:
            raise ValueError(f"level must be a share below 1, got level={level!r}")
        i, j = np.broadcast_arrays(
            self._model._numbers("row", rows, "rows"), self._model._numbers("column", cols, "cols")
        )
        if (i < 0).any() or (j < 0).any():
            raise ValueError(
                "rows and cols must be known to the fit: nothing is known about how far off an unknown one would be"
            )
        deviations = self._noise.deviations(i.ravel(), j.ravel(), np.zeros(i.size, bool)).reshape(
            i.shape
        )
        reach = self._quantile(level) * deviations
        predicted = self._model.predict(rows, cols)
        clip = self._model._predictor().clip
        return Interval(clip(np.asarray(predicted - reach)), clip(np.asarray(predicted + reach)))

    def _quantile(self, level: float) -> float:
        """The ⌈(n+1)·level⌉-th smallest of the n good scores."""
        place = int(np.ceil((self.good_share_ * len(self._scores) + 1) * level))
        return float(self._scores[place - 1]) if place <= len(self._scores) else float("inf")
