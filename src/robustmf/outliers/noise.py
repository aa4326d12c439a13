"""What a fit knows of its own noise: how large residuals of good entries are, and how many entries are good.

A residual of a fitted entry is smaller than the noise, for the entry has pulled the fit towards itself; that of a new entry is larger,
for the factors are not exact. With l the variance that the other entries' noise gives the prediction (in units of the noise), from the
row's regression and the column's,

    fitted entry:  Var e ≈ σ² / ((1 + l_row)(1 + l_col)),        held-out entry:  Var e ≈ σ² (1 + l_row + l_col),
    entry of a new row, folded in:  Var e ≈ σ² (1 + l_col) / (1 + l_row).

l_row = v_jᵀ(n_i S + λI)⁻¹v_j takes the entries of a row for a random sample of all (S is their second moment), which needs no pass over
them; what it misses on average is made up by one factor, from the number of parameters spent. Residuals divided by these are taken to
follow Student's law with a scale and a tail of their own, fitted to the central part alone (truncated likelihood), so that outliers,
wherever they lie beyond it, take no part. What the law would have in that part, beside what is there, gives the share of good entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Array = NDArray[np.floating[Any]]
_TINY = float(np.finfo(np.float64).tiny)

#: Residuals that the law is fitted to: at most so many, spread evenly over the entries.
SAMPLE = 50_000

#: The law is fitted to residuals within so many robust scales, sorted into so many bins.
_CENTRAL, _BINS = 4.0, 200

#: Tails between Student's with 2.1 degrees of freedom and, for all that can be told, the normal law.
_TAILS = (2.1, 200.0)

#: Fewer residuals than this say nothing about the tail: the normal law is taken.
_ENOUGH = 200

#: No fit is taken to have spent more parameters than this share of its entries.
_MOST_SPENT = 0.8

#: Of a row or column of which nothing is known, the variance of a prediction in units of the noise: it has no bound, but squares must have.
_MOST_LEVERAGE = 1e12

#: Entries looked at in one go.
_SLICE = 1 << 18


@dataclass(frozen=True)
class Law:
    """Student's law around 0, and the share of the values that follow it."""

    scale: float
    tail: float
    share: float

    def in_scales(self, x: Array) -> NDArray[np.float64]:
        """``x`` in units of the scale; infinite where an exact fit left none to speak of."""
        with np.errstate(over="ignore"):
            return np.asarray(x / self.scale, np.float64)

    def two_sided(self, x: Array) -> NDArray[np.float64]:
        """How often a value that follows the law is at least as far out as x."""
        return np.asarray(2 * stdtr(self.tail, -np.abs(self.in_scales(x))))

    def above(self, x: Array) -> NDArray[np.float64]:
        """How often a value that follows the law is at least x."""
        return np.asarray(stdtr(self.tail, -self.in_scales(x)))

    def quantile(self, level: Any) -> Any:
        """|x| of that share of the values that follow the law lies below this."""
        return self.scale * stdtrit(self.tail, (1 + np.asarray(level)) / 2)


#: What is assumed before residuals are seen.
UNIT_LAW = Law(1.0, _TAILS[1], 1.0)


def fit_law(x: Array, central: float = _CENTRAL, tail: float | None = None) -> Law:
    """Student's law for the central part of x, by truncated maximum likelihood on bins; where the rest lies does not matter.

    The central part is what lies within ``central`` robust scales: a wide one tells more of the tail, a narrow one is not misled by
    outliers that lie close, but cannot tell the tail, which is then to be given.
    """
    size = np.abs(x[np.isfinite(x)]).astype(np.float64)
    kept, scale = size, 0.0
    for _ in range(3):
        scale = 1.4826 * float(np.median(kept)) if kept.size else 0.0
        kept = size[size <= central * scale]
    if scale <= _TINY or len(kept) < _ENOUGH:
        share = len(kept) / len(size) if scale > 0 else 1.0
        return Law(max(scale, _TINY), tail or _TAILS[1], share)
    edges = np.linspace(0, central, _BINS + 1)
    counts = np.histogram(kept / scale, edges)[0] / len(kept)

    def unlikelihood(free: NDArray[np.float64]) -> float:
        inside = 2 * stdtr(tail or _tail(free[1]), edges / np.exp(free[0])) - 1
        return -float(counts @ np.log(np.maximum(np.diff(inside) / inside[-1], 1e-300)))

    start, precision = [0.0] if tail else [0.0, 0.1], {"xatol": 1e-3, "fatol": 1e-8}
    best = scipy.optimize.minimize(unlikelihood, start, method="Nelder-Mead", options=precision).x
    law = Law(scale * float(np.exp(best[0])), tail or _tail(best[1]), 1.0)
    inside = 1 - float(law.two_sided(np.array([central * scale]))[0])
    return Law(law.scale, law.tail, min(1.0, len(kept) / len(size) / inside))


def _tail(inverse: float) -> float:
    """Degrees of freedom from their inverse, in which the likelihood is well behaved near the normal law."""
    return float(1 / np.clip(inverse, 1 / _TAILS[1], 1 / _TAILS[0]))


@dataclass(frozen=True)
class Side:
    """One side's factors as regressors of the other side: their second moment over the entries, by its axes, and the ridge."""

    moments: NDArray[np.float64]
    axes: NDArray[np.float64]
    constant: float
    reg: float
    reg_by_count: bool

    @classmethod
    def of(
        cls,
        factors: Array,
        counts: NDArray[np.int64],
        constant: float,
        reg: float,
        reg_by_count: bool,
    ) -> Side:
        """``counts`` says how often each of the factors is met; the other side has a constant too, where it is not 0."""
        return cls.of_moment(
            moment_sum(factors, counts, constant), int(counts.sum()), constant, reg, reg_by_count
        )

    @classmethod
    def of_moment(
        cls,
        total: NDArray[np.float64],
        n_entries: int,
        constant: float,
        reg: float,
        reg_by_count: bool,
    ) -> Side:
        """The same from :func:`moment_sum` over so many entries."""
        moments, axes = np.linalg.eigh(total / max(n_entries, 1))
        return cls(np.maximum(moments, 0.0), axes, constant, reg, reg_by_count)

    def coordinates(self, factors: Array) -> NDArray[np.float64]:
        """Squared coordinates of factors along the axes, for :meth:`leverages`."""
        return np.square(_design(factors, self.constant) @ self.axes)

    def leverages(self, squares: NDArray[np.float64], counts: NDArray[Any]) -> NDArray[np.float64]:
        """vᵀ(nS + λI)⁻¹v for regressions on ``counts`` entries each, at regressors with these coordinates."""
        with np.errstate(over="ignore"):
            told = np.einsum("tq,tq->t", squares, 1 / self._information(counts)[1])
        return np.asarray(np.minimum(told, _MOST_LEVERAGE))

    def spent(self, counts: NDArray[Any]) -> float:
        """Parameters that regressions on ``counts`` entries spend, all together; the ridge saves some."""
        entries, both = self._information(counts)
        return float((entries / both).sum())

    def _information(self, counts: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the entries, and the entries and the ridge, tell along each axis.

        n²/(n + r + 1) stands for n − r − 1, from the mean of an inverse Wishart matrix, and is of use for small n too.
        """
        n = np.asarray(counts, np.float64)[:, None]
        entries = n**2 / (n + len(self.moments) + 1) * self.moments
        return entries, entries + np.maximum(self.reg * (n if self.reg_by_count else 1.0), _TINY)


def _design(factors: Array, constant: float) -> NDArray[np.float64]:
    design = np.asarray(factors, np.float64)
    return np.hstack([design, np.full((len(design), 1), constant)]) if constant else design


def moment_sum(factors: Array, counts: NDArray[np.int64], constant: float) -> NDArray[np.float64]:
    """Σ v vᵀ over entries, of factors that are met so often each."""
    design = _design(factors, constant)
    return np.asarray((design * counts[:, None]).T @ design)


@dataclass(frozen=True)
class Noise:
    """The noise of one fit.

    Attributes
    ----------
    law : Law
        The law of the residuals of good entries, each divided by its own deviation, and the share of good entries.
    U, V : ndarray
        The factors of the fit.
    of_rows, of_columns : Side
        U as the regressors of the columns, and V as those of the rows.
    row_counts, column_counts : ndarray of int64
        How many entries each row and column was fitted to.
    inflation : float
        What the leverages are multiplied by, so that they add up to the parameters spent.
    """

    law: Law
    U: Array
    V: Array
    of_rows: Side
    of_columns: Side
    row_counts: NDArray[np.int64]
    column_counts: NDArray[np.int64]
    inflation: float = 1.0

    @classmethod
    def fit(
        cls, U: Array, V: Array, constant: float, reg: float, reg_by_count: bool, counts: tuple[NDArray[np.int64], NDArray[np.int64]],
        residual: Array, i: NDArray[Any], j: NDArray[Any],
    ) -> Noise:  # fmt: skip
        """The noise of a fit to ``counts`` entries a row and a column, from the residuals of some of its entries, at (i, j)."""
        of_rows, of_columns = (
            Side.of(A, n, constant, reg, reg_by_count) for A, n in zip((U, V), counts, strict=True)
        )
        return cls(UNIT_LAW, U, V, of_rows, of_columns, *counts).calibrated(residual, i, j)

    def calibrated(self, residual: Array, i: NDArray[Any], j: NDArray[Any]) -> Self:
        """The same with its law and inflation fitted to the residuals of some of the fit's entries, at (i, j)."""
        noise, fitted = self, np.ones(len(residual), bool)
        for _ in range(2):  # the share of good entries, then what these alone could tell
            noise = noise._inflated(i, j)
            noise = replace(noise, law=fit_law(residual / noise.deviations(i, j, fitted)))
        return noise

    def parameters_spent(self, good: float) -> float:
        """Parameters that the rows' and the columns' regressions spend, if this share of each one's entries is good."""
        return self.of_rows.spent(good * self.column_counts) + self.of_columns.spent(
            good * self.row_counts
        )

    def _inflated(self, i: NDArray[Any], j: NDArray[Any]) -> Self:
        total = self.parameters_spent(self.law.share) - len(self.of_rows.moments) ** 2
        spent = min(max(total, 0.0) / max(self.law.share * self.n_entries, 1.0), _MOST_SPENT)
        given = 1 - float(
            np.square(replace(self, inflation=1.0).deviations(i, j, np.ones(len(i), bool))).mean()
        )
        return replace(self, inflation=max(spent / given, 1.0) if given > 0 else 1.0)

    @property
    def n_entries(self) -> int:
        """Entries that were fitted to."""
        return int(self.row_counts.sum())

    def deviations(
        self, i: NDArray[Any], j: NDArray[Any], fitted: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Standard deviations of residuals of good entries at (i, j), in units of the noise; ``fitted`` or held out."""
        own = fitted.astype(np.int64)
        of_row, of_column = self._leverages(
            self.U, i, j, self.row_counts[i] - own, self.column_counts[j] - own
        )
        return np.where(
            fitted, 1 / np.sqrt((1 + of_row) * (1 + of_column)), np.sqrt(1 + of_row + of_column)
        )

    def new_row_deviations(self, i: NDArray[Any], j: NDArray[Any], T: Array) -> NDArray[np.float64]:
        """The same for all entries of rows that were folded in, with factors T."""
        folded_in = np.bincount(i, minlength=len(T))
        of_row, of_column = self._leverages(
            T[:, : self.U.shape[1]], i, j, folded_in[i] - 1, self.column_counts[j]
        )
        return np.sqrt((1 + of_column) / (1 + of_row))

    def _leverages(
        self,
        U: Array,
        i: NDArray[Any],
        j: NDArray[Any],
        in_row: NDArray[Any],
        in_column: NDArray[Any],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Inflated leverages of the row's and the column's regression at (i, j), a slice of the entries at a time."""
        by_row, by_column = self.of_columns.coordinates(self.V), self.of_rows.coordinates(U)
        of_row, of_column = np.empty(len(i)), np.empty(len(i))
        for low in range(0, len(i), _SLICE):
            part = slice(low, low + _SLICE)
            good = (self.law.share * np.maximum(counts[part], 0) for counts in (in_row, in_column))
            of_row[part] = self.inflation * self.of_columns.leverages(by_row[j[part]], next(good))
            of_column[part] = self.inflation * self.of_rows.leverages(
                by_column[i[part]], next(good)
            )
        return of_row, of_column
