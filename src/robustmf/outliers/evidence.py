"""Evidence against whole rows and columns: an attack may fit a low-rank model perfectly, and residuals alone would not see it.

Each kind of evidence is turned into the share of honest lines (rows, or columns) that would look as bad or worse. What honest lines
look like is learned from the lines at hand, robustly: most of them are taken to be honest, not all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import betainc, chdtrc, digamma, fdtr, fdtrc, ndtri, polygamma

from robustmf.outliers.noise import fit_law

Array = NDArray[np.float64]
Index = NDArray[Any]

#: A single bad entry shall not condemn its row: standardised residuals and values count up to so many spreads.
_WINSOR = 5.0

#: Lines with fewer entries than this are not used to learn what honest ones look like.
_TYPICAL = 5

#: Columns of the sketch that co-occurrence is measured by (so many at once), and its fixed seed: the answer shall depend on the data alone.
_SKETCH, _AT_ONCE, _SEED = 512, 16, 20081

#: Lines at least as bad as this are the suspicious ones that "crowd" looks for; rows and columns accuse each other in so many rounds.
_SUSPICIOUS, _ROUNDS = 5e-3, 3

#: The law of honest lines is learned from scores within so many scales: lines under attack lie beyond.
_NEAR, _TAIL = 2.5, 10.0

_LEAST = 1e-300


@dataclass(frozen=True)
class Lines:
    """The entries as seen from one side: line ``i`` of ``m`` has an entry with crossing line ``j`` of ``n``.

    ``values`` are the entries, ``z`` their standardised residuals.
    """

    i: Index
    j: Index
    m: int
    n: int
    values: Array
    z: Array

    @property
    def crossing(self) -> Lines:
        """The same entries from the other side."""
        return Lines(self.j, self.i, self.n, self.m, self.values, self.z)

    def sums(self, weights: Array | None = None) -> Array:
        """Sums over each line."""
        return np.bincount(self.i, weights, self.m).astype(np.float64)


def evidence(lines: Lines) -> dict[str, Array]:
    """For each kind of evidence but "crowd" one number a line: the share of honest lines that would look as bad or worse."""
    counts = lines.sums()
    kinds = {"misfit": _misfit(lines, counts), "company": _company(lines, counts)}
    # of measurements, lines with small factors are honestly alike; on a scale of few steps it is what one who pushes items gives
    return {**kinds, "alike": _alike(lines, counts)} if is_scale(lines.values) else kinds


@dataclass(frozen=True)
class Found:
    """The evidence against the lines of one side by its kinds, and which lines of the other side "crowd" looked for."""

    kinds: dict[str, Array]
    suspicious_crossing: NDArray[np.bool_]

    @property
    def scores(self) -> Array:
        """All evidence together."""
        return combined(self.kinds)


def both_sides(lines: Lines) -> tuple[Found, Found]:
    """The evidence against rows and against columns, each with "crowd", which needs the suspicious ones of the other side."""
    of_rows, of_columns = evidence(lines), evidence(lines.crossing)
    rows, columns = (
        Found(of_rows, np.zeros(lines.n, bool)),
        Found(of_columns, np.zeros(lines.m, bool)),
    )
    for _ in range(_ROUNDS):
        bad_rows, bad_columns = rows.scores <= _SUSPICIOUS, columns.scores <= _SUSPICIOUS
        rows = Found({**of_rows, **_crowd(lines, bad_columns)}, bad_columns)
        columns = Found({**of_columns, **_crowd(lines.crossing, bad_rows)}, bad_rows)
    return rows, columns


def combined(found: dict[str, Array]) -> Array:
    """The worst kind of evidence, corrected for the number of kinds looked at (Šidák)."""
    worst = np.minimum.reduce(list(found.values()))
    return np.asarray(-np.expm1(len(found) * np.log1p(-np.minimum(worst, 1 - 1e-16))))


def _misfit(lines: Lines, counts: Array) -> Array:
    """Residuals too large for the line's number of entries and the spread of noise among lines."""
    size = lines.sums(np.square(np.clip(lines.z, -_WINSOR, _WINSOR))) / np.maximum(counts, 1)
    return _against_others(_variances(size, counts)[1], counts >= 1, counts)


def _alike(lines: Lines, counts: Array) -> Array:
    """Values with too little spread, and a mean too far out: each may happen, both together rarely do (Fisher's sum)."""
    values = _winsorised(lines.values)
    mean = lines.sums(values) / np.maximum(counts, 1)
    spread = lines.sums(np.square(values - mean[lines.i])) / np.maximum(counts - 1, 1) + _rounding(
        values
    )
    enough = counts >= 2
    too_small, _, typical = _variances(spread, np.where(enough, counts - 1, 0), with_scale=True)
    judged = _learned_from(counts)
    middle = float(np.median(mean[judged]))
    between = 1.4826 * float(np.median(np.abs(mean[judged] - middle)))
    far = (mean - middle) / np.sqrt(between**2 + typical / np.maximum(counts, 1) + _LEAST)
    too_far = fit_law(far[judged]).two_sided(far)
    fisher = -2 * (np.log(np.maximum(too_small, _LEAST)) + np.log(np.maximum(too_far, _LEAST)))
    return _against_others(chdtrc(4, fisher), enough, counts)


def _company(lines: Lines, counts: Array) -> Array:
    """Entries where they do not go together: crossing lines that hardly anyone else has together.

    Σ over the other lines of (entries shared with them, each weighted by its rarity)², over the number of entries squared; by a random
    sketch, so that no table of pairs of lines is made.
    """
    rarity = 1 / np.sqrt(np.maximum(np.bincount(lines.j, minlength=lines.n), 1))
    has = sp.csr_array((np.ones(len(lines.i)), (lines.i, lines.j)), (lines.m, lines.n))
    own, has_transposed = has @ rarity, sp.csr_array(has.T)
    rng = np.random.default_rng(_SEED)
    shared = np.zeros(lines.m)
    for _ in range(_SKETCH // _AT_ONCE):
        signs = rng.choice([-1.0, 1.0], (lines.m, _AT_ONCE))
        shared += np.square(
            has @ ((has_transposed @ signs) * rarity[:, None]) - own[:, None] * signs
        ).sum(axis=1)
    together = -np.log(np.maximum(shared / _SKETCH, _LEAST) / np.maximum(counts, 1) ** 2)
    return _standardised(together, counts >= 2, counts)


def _crowd(lines: Lines, suspicious: NDArray[np.bool_]) -> dict[str, Array]:
    """More entries shared with suspicious crossing lines than chance would give (binomial); no look is taken where there are none."""
    if not suspicious.any():
        return {}
    hits, counts = lines.sums(suspicious[lines.j].astype(np.float64)), lines.sums()
    share = float(hits.sum() / counts.sum())
    return {
        "crowd": np.where(
            hits > 0, betainc(np.maximum(hits, 1), np.maximum(counts - hits, 0) + 1, share), 1.0
        )
    }


def _variances(variance: Array, freedom: Array, with_scale: bool = False) -> Any:
    """How often an honest variance is as small, and as large: variance/typical follows F(freedom, d), d from the spread of variances.

    The empirical Bayes model of Smyth (2004), its two parameters from medians.
    """
    judged = freedom >= _TYPICAL - 1 if (freedom >= _TYPICAL - 1).sum() >= 10 else freedom >= 1
    size, n = np.log(np.maximum(variance, _LEAST)), np.maximum(freedom, 1)
    centered = (size - digamma(n / 2) + np.log(n / 2))[judged]
    middle = float(np.median(centered)) if centered.size else 0.0
    found = 1.4826 * float(np.median(np.abs(centered - middle))) if centered.size else 0.0
    excess = found**2 - (float(np.median(polygamma(1, n[judged] / 2))) if centered.size else 0.0)
    # between the two ends of the search
    excess = min(max(excess, 1e-3), 1e4)
    prior = 2 * scipy.optimize.brentq(lambda half: float(polygamma(1, half)) - excess, 1e-2, 1e4)
    typical = float(np.exp(middle + digamma(prior / 2) - np.log(prior / 2)))
    ratio = variance / max(typical, _LEAST)
    small, large = (
        np.where(freedom >= 1, fdtr(n, prior, ratio), 1.0),
        np.where(freedom >= 1, fdtrc(n, prior, ratio), 1.0),
    )
    return (small, large, typical) if with_scale else (small, large)


def _against_others(share: Array, judged: NDArray[np.bool_], counts: Array) -> Array:
    """Shares corrected by the lines' own: where more lines than expected look bad, looking bad says less."""
    return _standardised(-ndtri(np.clip(share, _LEAST, 1 - 1e-16)), judged, counts)


def _standardised(score: Array, judged: NDArray[np.bool_], counts: Array) -> Array:
    """How often an honest line scores as high or higher, by a law fitted to the central part of the scores."""
    learned = judged & _learned_from(counts)
    if learned.sum() < 10:
        return np.ones(len(score))
    middle = float(np.median(score[learned]))
    law = fit_law(
        score[learned & (score > middle)] - middle, _NEAR, _TAIL
    )  # only the upper half speaks for the upper tail
    return np.where(judged, law.above(score - middle), 1.0)


def _learned_from(counts: Array) -> NDArray[np.bool_]:
    typical = counts >= _TYPICAL
    return typical if typical.sum() >= 10 else counts >= 1


def _winsorised(values: Array) -> Array:
    """Values no farther out than so many spreads."""
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    return (
        np.clip(values, middle - _WINSOR * spread, middle + _WINSOR * spread)
        if spread > 0
        else values
    )


def is_scale(values: NDArray[Any]) -> bool:
    """Whether the values are steps of a scale, as ratings are."""
    return _rounding(values) > 0


def _rounding(values: NDArray[Any]) -> float:
    """The variance that rounding to a scale of few steps hides."""
    steps = np.unique(values[:100_000])
    return float(np.diff(steps).min()) ** 2 / 12 if 1 < len(steps) <= 100 else 0.0
