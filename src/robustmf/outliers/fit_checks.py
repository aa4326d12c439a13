"""Checks that a fitted model must pass to be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from robustmf.data.sampling import EntrySample
from robustmf.data.table_form import ids_or_numbers
from robustmf.exceptions import UnreliableFitWarning, warn_user
from robustmf.model import FittedModel
from robustmf.outliers.audit import shown
from robustmf.outliers.noise import NoiseModel

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FitCheckOptions:
    """Constants of the checks.

    Attributes
    ----------
    most_flagged : float
        A larger share of flagged entries is too many: the searches for initial factors fail where
        about a third of the entries are outliers.
    most_others : float
        If more than half of the values are equal and predicted exactly, a larger share of other
        values that are flagged is too many: they are what the table is about.
    level : float
        Entries with a score up to this are flagged; rows that have many flagged entries with this
        probability, divided by the number of rows, are reported.
    trimmed : float
        The share of the largest errors that are left out of a mean, so that outliers do not count.
    exact : float
        A fit whose noise is below this share of the largest value is exact.
    least_entries : int
        With fewer entries nothing is checked.
    most_entries : int
        Of more entries a sample is checked, evenly spaced.
    most_named : int
        So many of the rows or columns with most entries flagged are named.
    """

    most_flagged: float = 1 / 3
    most_others: float = 0.1
    level: float = 1e-3
    trimmed: float = 1 / 3
    exact: float = 1e-6
    least_entries: int = 200
    most_entries: int = 1 << 16
    most_named: int = 3


OPTIONS = FitCheckOptions()


def failed_checks(model: FittedModel, sample: EntrySample, noise: NoiseModel) -> tuple[str, ...]:
    """The checks that a fit fails, in words; none where it can be trusted.

    1. Not too many of the entries are flagged; fewer if most values are equal.
    2. No row or column has most of its entries flagged, beyond what is expected by chance.
    3. Entries are predicted from the others better than by the median of all values.

    Fits with a loss that is not robust, or that interpolates entries because it is nonsmooth, have
    no distribution of clean residuals to check against; exact fits have no noise, and only the
    first check applies to them.
    """
    i = sample.i
    j = sample.j
    values = sample.values.astype(np.float64)
    is_exact = noise.distribution.scale <= OPTIONS.exact * float(np.abs(values).max(initial=0.0))
    is_checked = model.loss.robust and model.loss.degree == 2
    if not is_checked or len(values) < OPTIONS.least_entries:
        return ()
    residual = values - model.predict_pairs(i, j).astype(np.float64)
    deviation = noise.deviations(i, j, sample.influence)
    flagged = noise.distribution.two_sided(residual / deviation) <= OPTIONS.level
    failed = []
    share = float(flagged.mean())
    if share > OPTIONS.most_flagged:
        cause = (
            "; all others are predicted exactly, as if there were no noise, which happens if "
            "there are few distinct values, such as 0 and 1, or if half of the columns are "
            "functions of the others"
        )
        failed.append(
            f"{100 * share:.0f} % of the entries are flagged as outliers, more than a fit can "
            f"distinguish from clean ones{cause if is_exact else ''}"
        )
    if is_exact:
        common, n_common = _most_common(values)
        if not failed and 2 * n_common > len(values) and share > OPTIONS.most_others:
            failed.append(
                f"{100 * n_common / len(values):.0f} % of the values are {common:g} and predicted "
                f"exactly, and {100 * share:.0f} % of the entries are flagged as outliers: if "
                f"{common:g} stands for missing values, make these missing; a table of mostly "
                "equal values does not have the noise of this model"
            )
        return tuple(failed)
    m, n = model.shape
    for name, of_entry, size, ids in (
        ("row", i, m, ids_or_numbers(model.row_ids, m)),
        ("column", j, n, ids_or_numbers(model.column_ids, n)),
    ):
        found = _mostly_flagged(of_entry, flagged, size)
        if len(found):
            names = ", ".join(shown(ids[k]) for k in found[: OPTIONS.most_named].tolist())
            more = ", …" if len(found) > OPTIONS.most_named else ""
            failed.append(
                f"{len(found)} of {size} {name}s have most of their entries flagged as outliers "
                f"({names}{more}); predictions there rest on the others"
            )
    left_out = np.abs(residual) * noise.deviations(i, j, np.zeros(len(i))) / deviation
    others = np.minimum(sample.row_counts[i], sample.column_counts[j]) - 1
    determined = others > model.factors.rank + model.factors.has_bias
    if determined.sum() >= OPTIONS.least_entries:
        error, standard_error = _trimmed_mean(left_out[determined])
        by_median, _ = _trimmed_mean(np.abs(values - np.median(values))[determined])
        if error > by_median + standard_error:
            failed.append(
                f"entries are predicted from the others with error {error:.3g}, worse than by the "
                f"median of all values ({by_median:.3g})"
            )
    return tuple(failed)


def warn_of_failed_checks(failed: tuple[str, ...]) -> None:
    """Issue one warning for all failed checks."""
    if failed:
        warn_user(f"the fit does not pass its checks: {'; '.join(failed)}", UnreliableFitWarning)


def _most_common(values: Array) -> tuple[float, int]:
    """The most frequent value and its number of entries."""
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()]), int(counts.max())


def _mostly_flagged(
    of_entry: NDArray[Any], flagged: NDArray[np.bool_], size: int
) -> NDArray[np.integer[Any]]:
    """The rows with more than half of their entries flagged, and not by chance."""
    counts = np.bincount(of_entry, minlength=size)
    bad = np.bincount(of_entry, flagged, minlength=size)
    most = np.flatnonzero(bad > counts / 2)
    chance = bdtrc(bad[most] - 1, counts[most], float(flagged.mean()))
    return np.asarray(most[chance <= OPTIONS.level / size])


def _trimmed_mean(errors: Array) -> tuple[float, float]:
    """The mean of the errors without the largest, and its standard error."""
    kept = np.sort(errors)[: max(1, round((1 - OPTIONS.trimmed) * len(errors)))]
    return float(kept.mean()), float(kept.std() / np.sqrt(len(kept)))
