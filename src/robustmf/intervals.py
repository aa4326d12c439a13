"""Prediction intervals by split conformal calibration that tolerates outliers."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustmf.estimator import RobustMF
from robustmf.outliers.noise import fit_distribution
from robustmf.outliers.scores import is_fitted, noise_model
from robustmf.validation import require_positive

Array = NDArray[np.floating[Any]]


class Interval(NamedTuple):
    """Ends of prediction intervals, in the shape of the query."""

    lower: Array
    upper: Array


class ConformalIntervals:
    """Intervals that contain a new clean value with a given probability.

    Held-out entries give residuals, each divided by its own standard deviation, which depends on
    the row and the column. The interval extends to the right quantile of the *clean* ones. Outliers
    among the held-out entries would widen it: with a share π of them, all farther off than the
    clean ones, the q-quantile of the clean ones is the q(1 − π)-quantile of all. π is estimated
    from the center of the residuals, where only clean ones are, by the distribution of the noise
    model.

    With ``clean_share=1`` this is split conformal prediction (Lei et al. 2018, scaled residuals):
    its coverage of all values, clean or not, is at least nominal for any model and noise, if the
    entries of X and the new ones are exchangeable. With an estimated share coverage depends on the
    estimate, too. It is near nominal where the clean noise resembles a Gaussian or Student
    distribution, and below nominal where it does not: of a mixture of two noise levels, some of the
    entries with the higher level are counted as outliers.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : as in ``fit``
        Entries of the fitted matrix that were *not* fitted, some hundreds or more: e.g. the second
        part of :func:`robustmf.selection.entry_train_test_split`.
    clean_share : "auto" or float, default="auto"
        Share of clean entries among those of X, above 0; "auto" estimates it. 1 guarantees the
        coverage if X has no outliers, and gives wider intervals if it has some.

    Attributes
    ----------
    clean_share_ : float
        The share of clean entries that is used.

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

    def __init__(
        self, model: RobustMF, X: Any, *, clean_share: float | Literal["auto"] = "auto"
    ) -> None:
        if clean_share != "auto":
            require_positive("clean_share", clean_share, also="'auto'")
            if clean_share > 1:
                raise ValueError(f"clean_share must be at most 1, got clean_share={clean_share!r}")
        fitted = model._model()
        self._estimator = model
        self._noise = noise_model(fitted)
        observed, i, j = fitted.locate(X)
        values = observed.rows.values
        known = int(is_fitted(fitted, i, j, values).sum())
        if known:
            raise ValueError(
                f"X must hold entries that the model was not fitted to, but {known} of {len(i)} "
                "were; hold some out with robustmf.selection.entry_train_test_split"
            )
        residual = values - fitted.predict_pairs(i, j)
        scores = residual / self._noise.deviations(i, j, np.zeros(len(i)))
        self.clean_share_ = (
            fit_distribution(scores).share if clean_share == "auto" else float(clean_share)
        )
        self._scores = np.sort(np.abs(scores).astype(np.float64))

    def predict(self, rows: Any, columns: Any, level: float = 0.9) -> Interval:
        """Intervals for pairs of a row and a column.

        Parameters
        ----------
        rows, columns
            Ids or numbers as in :meth:`RobustMF.predict`; unknown ids raise.
        level : float, default=0.9
            Probability that the interval contains a clean value, below 1.

        Returns
        -------
        Interval
            Lower and upper ends. They are infinite (or ``bounds``) where X had too few entries for
            the level.
        """
        require_positive("level", level)
        if level >= 1:
            raise ValueError(f"level must be below 1, got level={level!r}")
        model = self._estimator._model()
        i, j = np.broadcast_arrays(
            model.indices("row", rows, "rows"), model.indices("column", columns, "columns")
        )
        if (i < 0).any() or (j < 0).any():
            raise ValueError(
                "rows and columns must be known to the fit: the residuals of an unknown one have "
                "no known distribution"
            )
        no_influence = np.zeros(i.size)
        deviations = self._noise.deviations(i.ravel(), j.ravel(), no_influence).reshape(i.shape)
        half_width = self._quantile(level) * deviations
        predicted = model.predict(rows, columns)
        lower = model.clip(np.asarray(predicted - half_width))
        return Interval(lower, model.clip(np.asarray(predicted + half_width)))

    def _quantile(self, level: float) -> float:
        """The ⌈(n+1)·level⌉-th smallest of the n clean scores."""
        k = int(np.ceil((self.clean_share_ * len(self._scores) + 1) * level))
        return float(self._scores[k - 1]) if k <= len(self._scores) else float("inf")
