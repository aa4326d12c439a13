"""A list of what is most suspicious, with the reason in words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.outliers.evidence import Found, Lines

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SuspectEntry:
    """An entry, what was expected there, its score, and why it is listed."""

    row: Hashable
    column: Hashable
    value: float
    expected: float
    score: float
    reason: str


@dataclass(frozen=True)
class SuspectLine:
    """A row or a column, its number of entries, its score, and why it is listed."""

    id: Hashable
    entries: int
    score: float
    reason: str


@dataclass(frozen=True)
class Audit:
    """The most suspicious entries, rows and columns, worst first.

    A score is the share of good entries (honest rows, honest columns) that would look as bad or worse.

    Attributes
    ----------
    entries : list of SuspectEntry
    rows, columns : list of SuspectLine
    good_share : float
        The estimated share of good entries in the fit, going by their residuals.
    """

    entries: list[SuspectEntry]
    rows: list[SuspectLine]
    columns: list[SuspectLine]
    good_share: float

    def __str__(self) -> str:
        lines = [
            f"About {100 * (1 - self.good_share):.1f} % of the entries do not fit their rows and columns."
        ]
        for title, suspects in (("rows", self.rows), ("columns", self.columns)):
            lines += ["", f"Most suspicious {title}:"]
            lines += [
                f"  {s.id!r} ({s.entries} entries), score {s.score:.2g}: {s.reason}"
                for s in suspects
            ]
        lines += ["", "Most suspicious entries:"]
        lines += [
            f"  row {s.row!r}, column {s.column!r}, score {s.score:.2g}: {s.reason}"
            for s in self.entries
        ]
        return "\n".join(lines)

    def to_pandas(self) -> dict[str, Any]:
        """Three DataFrames, "entries", "rows" and "columns"; needs pandas."""
        import pandas as pd  # noqa: PLC0415 - only for those who ask for it

        entries, lines = (
            [field.name for field in fields(kind)] for kind in (SuspectEntry, SuspectLine)
        )
        return {
            "entries": pd.DataFrame(
                [astuple(suspect) for suspect in self.entries], columns=entries
            ),
            "rows": pd.DataFrame([astuple(suspect) for suspect in self.rows], columns=lines),
            "columns": pd.DataFrame([astuple(suspect) for suspect in self.columns], columns=lines),
        }


def suspect_entries(
    row_ids: Sequence[Hashable], column_ids: Sequence[Hashable], i: NDArray[Any], j: NDArray[Any], values: Array, expected: NDArray[Any],
    deviations: Array, scores: Array, top: int, at_most: float,
) -> list[SuspectEntry]:  # fmt: skip
    """The ``top`` entries with the smallest scores, not above ``at_most``; i and j are the numbers of their rows and columns."""
    listed = []
    for t in _worst(scores, top, at_most):
        value, guess, score = float(values[t]), float(expected[t]), float(scores[t])
        reason = f"{value:.4g} where {guess:.4g} ± {deviations[t]:.2g} was expected; {_odds(score)} good entries is as far off"
        listed.append(
            SuspectEntry(row_ids[int(i[t])], column_ids[int(j[t])], value, guess, score, reason)
        )
    return listed


def suspect_lines(
    lines: Lines,
    found: Found,
    ids: Sequence[Hashable],
    names: tuple[str, str],
    top: int,
    at_most: float,
    first: int = 0,
) -> list[SuspectLine]:
    """The ``top`` lines from number ``first`` on with the smallest scores, with the strongest kind of evidence and the numbers behind it.

    ``ids`` are those from ``first`` on; ``names`` are what a line of this side and one of the other are called.
    """
    counts, scores = lines.sums().astype(np.int64), found.scores
    order, ends = np.argsort(lines.i, kind="stable"), np.cumsum(counts)
    overall = float(lines.values.mean())
    listed = []
    scored = np.where(counts > 0, scores, np.inf)[first:]  # a line without entries has done nothing
    for k in [first + k for k in _worst(scored, top, at_most)]:
        kind = min(found.kinds, key=lambda kind: float(found.kinds[kind][k]))
        own = order[ends[k] - counts[k] : ends[k]]
        reason = f"{_words(kind, lines, found, own, overall, names[1])}; {_odds(float(found.scores[k]))} honest {names[0]}s is as odd"
        listed.append(SuspectLine(ids[k - first], int(counts[k]), float(scores[k]), reason))
    return listed


def _words(
    kind: str, lines: Lines, found: Found, own: NDArray[np.int64], overall: float, crossing: str
) -> str:
    """Why a line is listed; ``own`` are the numbers of its entries."""
    values = lines.values[own]
    if kind == "misfit":
        with np.errstate(over="ignore"):  # beside an exact fit everything is infinitely far off
            size = float(np.sqrt(np.mean(np.square(lines.z[own]))))
        return f"its residuals are {size:.1f} times the noise"
    if kind == "alike":
        return f"its values are {values.mean():.3g} ± {values.std():.2g}: too much alike, or too far from {overall:.3g}, the mean of all"
    if kind == "company":
        return f"its entries lie in {crossing}s that others do not have together"
    return f"{int(found.suspicious_crossing[lines.j[own]].sum())} of its {len(values)} entries lie in suspicious {crossing}s"


def _worst(scores: Array, top: int, at_most: float) -> list[int]:
    """The numbers of the ``top`` smallest scores that are not above ``at_most``, smallest first."""
    some = np.flatnonzero(scores <= at_most)
    return [int(k) for k in some[np.argsort(scores[some], kind="stable")[:top]]]


def _odds(score: float) -> str:
    return f"one in {1 / score:,.0f}" if score > 1e-6 else "less than one in a million"
