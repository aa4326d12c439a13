"""Which entries, rows and columns are bad: scores that mean a share of false alarms, for fitted and for new data."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf.answers import Answers
from robustmf.backends.registry import get_backend
from robustmf.data.factorization import UNKNOWN
from robustmf.data.observed import Observed
from robustmf.data.sampling import evenly_spaced
from robustmf.kernels.team import Team
from robustmf.outliers.audit import Audit, suspect_entries, suspect_lines
from robustmf.outliers.evidence import Lines, both_sides, combined, is_scale
from robustmf.outliers.noise import SAMPLE, Noise
from robustmf.validation import new_rows, require_integer, require_magnitude, require_positive

Array = NDArray[np.floating[Any]]
Rows = Literal["fitted", "new"]

#: ± in words is what holds this share of good entries.
_ONE_SIGMA = 0.6827


@dataclass(frozen=True)
class _Judged:
    """Entries with their places in the matrix that they are judged in, predictions, and deviations in units of the noise.

    ``known`` says which entries of X these are: all, but for those of new rows in columns that the fit did not know.
    """

    n_rows: int
    known: NDArray[np.bool_]
    i: NDArray[Any]
    j: NDArray[Any]
    values: NDArray[np.float64]
    predicted: Array
    deviations: NDArray[np.float64]

    @property
    def standardised(self) -> NDArray[np.float64]:
        """Residuals over their deviations, in the unit of the data."""
        return np.asarray((self.values - self.predicted) / self.deviations)

    def in_place(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score for each entry of X, NaN where nothing is known."""
        if self.known.all():
            return scores
        everywhere = np.full(len(self.known), np.nan)
        everywhere[self.known] = scores
        return everywhere


class Detection(Answers):
    """Methods that say what is bad; see :class:`robustmf.RobustMF`."""

    def outlier_scores(
        self, X: Any = None, *, rows: Rows = "fitted", attacks: bool = False
    ) -> NDArray[np.float64]:
        """For each observed entry of X, in row order, the share of good entries that lie as far off or farther: small is suspicious.

        So entries with a score up to 0.01 are about 1 % of the good entries, and the bad ones. Residuals are corrected for what an
        entry did to its own fit, or for what the fit does not know of a new one; docs/design/outliers.md has the model and how well
        it holds.

        Parameters
        ----------
        X : as in ``fit``, or None
            Entries of the fitted matrix: those of the fit (the default, None), or others, which are told apart by themselves.
        rows : {"fitted", "new"}
            With "new" the rows of X are ones that the fit has not seen; they are folded in. Entries in columns that the fit did not
            know get NaN.
        attacks : bool
            Hold against an entry also what speaks against its whole row or column: the smallest of the three scores, corrected for
            taking the smallest. For attacks that write whole rows or columns.
        """
        noise = self._noise()
        judged = self._judged(X, rows, noise)
        scores = noise.law.two_sided(judged.standardised)
        if not attacks:
            return judged.in_place(scores)
        by_row, by_column = self._line_scores(judged, noise, rows)
        i = judged.i + (len(self.row_factors_) if rows == "new" else 0)
        return judged.in_place(
            combined({"entry": scores, "row": by_row[i], "column": by_column[judged.j]})
        )

    def entry_weights(self, X: Any) -> Array:
        """How far each observed entry of X (same rows as in ``fit``, in row order) is trusted: 1 = fully, near 0 = a gross outlier.

        The loss's slope relative to that of least squares for a smooth loss, to its slope at 0 for a kinked one.
        """
        residual = self._residuals(X)
        of = self.loss_.derivative if self.loss_.concave else self.loss_.weight
        return np.asarray(of(residual) / of(np.zeros(1, residual.dtype)))

    def row_scores(self, X: Any = None, *, rows: Rows = "fitted") -> NDArray[np.float64]:
        """For each row of the fit (or of X, where its rows are new) the share of honest rows that would look as bad or worse.

        Judged are a row's residuals, the spread and mean of its values, where it has its entries, and how many of them it shares with
        suspicious columns. X and ``rows`` as in :meth:`outlier_scores`; new rows are judged among those of the fit. A row without
        entries has score 1.

        On data without an attack, 0.1 to 0.2 % of the rows of measurements had a score up to 0.01, and 0.7 % of those of ratings
        (``robustmf bench calibration``): it is on the safe side.
        """
        noise = self._noise()
        scores = self._line_scores(self._judged(X, rows, noise), noise, rows)[0]
        return scores[len(self.row_factors_) :] if rows == "new" else scores

    def column_scores(self, X: Any = None, *, rows: Rows = "fitted") -> NDArray[np.float64]:
        """For each column the share of honest columns that would look as bad or worse, as :meth:`row_scores` for rows.

        With ``rows="new"`` a column is judged by the entries of the fit and of the new rows together.

        Measured as there: 0.1 to 0.3 % of the columns of measurements had a score up to 0.01, but 2.6 % of those of ratings:
        there a low score is a hint, not a probability.
        """
        noise = self._noise()
        return self._line_scores(self._judged(X, rows, noise), noise, rows)[1]

    def audit(
        self, X: Any = None, *, rows: Rows = "fitted", top: int = 10, at_most: float = 0.01
    ) -> Audit:
        """The most suspicious entries, rows and columns of X (by default of the fit), each with the reason in words.

        Parameters
        ----------
        top : int
            List at most so many of each.
        at_most : float
            List nothing with a score above this.

        Examples
        --------
        >>> from robustmf import RobustMF
        >>> from robustmf.datasets import make_synthetic
        >>> data = make_synthetic(250, random_state=0)
        >>> found = RobustMF(rank=5, random_state=0).fit(data.train).audit(top=3)
        >>> round(1 - found.good_share, 2), len(found.entries)
        (0.05, 3)
        """
        require_integer("top", top, 1)
        require_positive("at_most", at_most)
        noise = self._noise()
        judged = self._judged(X, rows, noise)
        lines = self._lines(judged, noise, rows)
        first = len(self.row_factors_) if rows == "new" else 0
        found = both_sides(lines)
        row_ids = _names(
            getattr(X, "row_ids", None) if rows == "new" else self.row_ids_, lines.m - first
        )
        column_ids = _names(self.column_ids_, lines.n)
        return Audit(
            suspect_entries(
                row_ids, column_ids, judged.i, judged.j, judged.values, self._on_scale(judged.predicted),
                noise.law.quantile(_ONE_SIGMA) * judged.deviations, noise.law.two_sided(judged.standardised), top, at_most,
            ),
            suspect_lines(lines, found[0], row_ids, ("row", "column"), top, at_most, first),
            suspect_lines(lines.crossing, found[1], column_ids, ("column", "row"), top, at_most),
            noise.law.share,
        )  # fmt: skip

    def _residuals(self, X: Any) -> Array:
        """Values minus predictions at the observed entries of X, whose rows are those of ``fit``, in row order."""
        self._require_factors()
        observed, predictor = self._placed(X), self._predictor()
        if get_backend(self.device).capabilities.host_arrays or observed.row_ids is not None:
            observed, i, j = self._located(observed)
            return np.asarray(observed.rows.values - predictor.pairs(i, j))
        self._require_fitted_shape(observed)
        with Team(self.n_jobs) as team:
            operations = self._operations(observed, team, self._n_features_out)
            residual = operations.residuals(
                *map(operations.array, predictor.factors(observed.dtype))
            )
        values = observed.rows.values
        return np.asarray(
            values - np.clip(values - residual, *predictor.bounds)
            if predictor.bounded
            else residual
        )

    def _on_scale(self, predicted: Array) -> Array:
        """Predictions as they are shown: where the fit's values are on a scale of few steps, none is beyond its ends."""
        values = self.entries_["values"]
        return np.clip(predicted, values.min(), values.max()) if is_scale(values) else predicted

    def _noise(self) -> Noise:
        """The noise of the fit, from (some of) its entries."""
        self._require_factors()
        i, j, values, counts = self._sampled()
        residual = values - self._predictor().pairs(i, j)
        return Noise.fit(
            self.row_factors_, self.column_factors_, self.bias_unit_ if self._has_bias else 0.0, self.reg_, self.reg_by_count, counts,
            residual, i, j,
        )  # fmt: skip

    def _sampled(
        self,
    ) -> tuple[NDArray[Any], NDArray[Any], Array, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Some of the fit's entries, evenly spread, and how many each row and column has."""
        stored = self.entries_
        if "pointers" not in stored:  # they stayed on a cluster
            chosen = evenly_spaced(len(stored["values"]), SAMPLE)
            found = stored["rows"][chosen], stored["columns"][chosen], stored["values"][chosen]
            return *found, (stored["row_counts"], stored["column_counts"])
        entries = self._fitted_entries()
        rows = entries.rows
        chosen = evenly_spaced(entries.n_entries, SAMPLE)
        i, j = np.searchsorted(rows.pointers, chosen, side="right") - 1, rows.indices[chosen]
        return (
            i,
            j,
            rows.values[chosen],
            (rows.counts, np.bincount(rows.indices, minlength=entries.shape[1])),
        )

    def _located(self, X: Any) -> tuple[Observed, NDArray[Any], NDArray[Any]]:
        """X as entries of the fitted matrix: with the numbers of their rows and columns, found by id where X and the fit have ids."""
        self._require_factors()
        observed = self._placed(X).to_host()
        require_magnitude(observed, new=True)
        i: NDArray[Any] = observed.rows.group_of_entry()
        j: NDArray[Any] = observed.rows.indices
        rows, columns = self._lookup("row"), self._lookup("column")
        if observed.row_ids is not None:
            if rows is None or columns is None:
                raise ValueError(
                    "X has ids, but the fit had none; give X by row and column numbers"
                )
            return (
                observed,
                rows.indices(observed.row_ids)[i],
                columns.indices(observed.column_ids)[j],
            )
        self._require_fitted_shape(observed)
        return observed, i, j

    def _require_fitted_shape(self, observed: Observed) -> None:
        wanted = (len(self.row_factors_), len(self.column_factors_))
        if observed.shape != wanted:
            raise ValueError(
                f"X must have the shape of the fitted matrix, {wanted}, got {observed.shape}"
            )

    def _judged(self, X: Any, rows: Rows, noise: Noise) -> _Judged:
        if rows not in ("fitted", "new"):
            raise ValueError(f"rows must be 'fitted' or 'new', got rows={rows!r}")
        if rows == "new":
            if X is None:
                raise ValueError("rows='new' needs X, the new rows")
            T, observed, V = (
                self._fold_in(X),
                new_rows(X, self._placed).to_host(),
                self.column_factors_,
            )
            places: NDArray[Any] = observed.rows.indices
            lookup = self._lookup("column")
            if observed.column_ids is not None and lookup is not None:
                places = lookup.indices(observed.column_ids)[places]
            known = places != UNKNOWN
            i, j = observed.rows.group_of_entry()[known], places[known]
            predicted = (
                np.einsum("tq,tq->t", T[i, : V.shape[1]], V[j])
                + self._shifts()[j]
                + (T[i, -1] if self._has_bias else 0)
            )
            predicted = self._predictor().clip(np.asarray(predicted))
            values = observed.rows.values[known].astype(np.float64)
            return _Judged(
                observed.shape[0], known, i, j, values, predicted, noise.new_row_deviations(i, j, T)
            )
        observed, i, j = self._located(self._fitted_entries() if X is None else X)
        unknown = (i == UNKNOWN) | (j == UNKNOWN)
        if unknown.any():
            raise ValueError(
                f"X has {int(unknown.sum())} entries in rows or columns that the fit did not know; give new rows with rows='new'"
            )
        fitted = (
            np.ones(len(i), bool)
            if X is None
            else self._is_fitted(i, j, observed.rows.values, True)
        )
        values = observed.rows.values.astype(np.float64)
        return _Judged(
            observed.shape[0],
            ~unknown,
            i,
            j,
            values,
            self._predictor().pairs(i, j),
            noise.deviations(i, j, fitted),
        )

    def _is_fitted(
        self, i: NDArray[Any], j: NDArray[Any], values: Array, unknown: bool
    ) -> NDArray[np.bool_]:
        """Which entries the model was fitted to: those at a fitted place with the fitted value.

        Where the fit's entries stayed on a cluster, all are taken to be what ``unknown`` says.
        """
        if "pointers" not in self.entries_:
            return np.full(len(i), unknown)
        known = self._fitted_entries()
        n = known.shape[1]
        places = known.rows.group_of_entry().astype(np.int64) * n + known.rows.indices
        asked = i.astype(np.int64) * n + j
        at = np.minimum(np.searchsorted(places, asked), len(places) - 1)
        return np.asarray((places[at] == asked) & (known.rows.values[at] == values))

    def _lines(self, judged: _Judged, noise: Noise, rows: Rows) -> Lines:
        """The entries to judge rows and columns by; new rows stand below those of the fit."""
        m, n = len(self.row_factors_), len(self.column_factors_)
        z = noise.law.in_scales(judged.standardised)
        if rows == "fitted":
            return Lines(judged.i, judged.j, m, n, judged.values, z)
        fitted = self._judged(None, "fitted", noise)
        return Lines(
            np.concatenate([fitted.i, m + judged.i]),
            np.concatenate([fitted.j, judged.j]),
            m + judged.n_rows,
            n,
            np.concatenate([fitted.values, judged.values]),
            np.concatenate([noise.law.in_scales(fitted.standardised), z]),
        )

    def _line_scores(
        self, judged: _Judged, noise: Noise, rows: Rows
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        by_row, by_column = both_sides(self._lines(judged, noise, rows))
        return by_row.scores, by_column.scores


def _names(ids: Sequence[Hashable] | None, size: int) -> Sequence[Hashable]:
    return range(size) if ids is None else ids
