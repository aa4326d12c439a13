"""The most suspicious entries, rows and columns, each with the reason in words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.outliers.evidence import Evidence, Groups

Array = NDArray[np.float64]


def shown(label: Hashable) -> str:
    """A label in a text: times as they are read, text in quotes and without control characters."""
    return str(label) if isinstance(label, date) else repr(label)


@dataclass(frozen=True)
class AuditOptions:
    """Constants of the reasons of an audit.

    Attributes
    ----------
    least_measured : float
        False-alarm rates are measured down to this score; smaller ones are extrapolated, and their
        use is to rank.
    """

    least_measured: float = 1e-3


OPTIONS = AuditOptions()


@dataclass(frozen=True)
class SuspectEntry:
    """An entry, the value expected there, its score, and why it is listed."""

    row: Hashable
    column: Hashable
    value: float
    expected: float
    score: float
    reason: str


@dataclass(frozen=True)
class SuspectGroup:
    """A row or a column, its number of entries, its score, and why it is listed."""

    id: Hashable
    entries: int
    score: float
    reason: str


@dataclass(frozen=True)
class Audit:
    """The most suspicious entries, rows and columns, worst first.

    A score is the share of clean entries (rows, columns) that would look as bad or worse. It is
    calibrated down to 0.001; reasons state no smaller share.

    Attributes
    ----------
    entries : list of SuspectEntry
    rows, columns : list of SuspectGroup
    clean_share : float
        The estimated share of clean entries in the fit, by their residuals.
    """

    entries: list[SuspectEntry]
    rows: list[SuspectGroup]
    columns: list[SuspectGroup]
    clean_share: float

    def __str__(self) -> str:
        lines = [share_of_outliers(self.clean_share)]
        for title, suspects in (("rows", self.rows), ("columns", self.columns)):
            lines += ["", f"Most suspicious {title}:"] if suspects else []
            lines += [
                f"  {shown(s.id)} ({s.entries} entries), score {s.score:.2g}: {s.reason}"
                for s in suspects
            ]
        lines += ["", "Most suspicious entries:"] if self.entries else []
        lines += [
            f"  row {shown(s.row)}, column {shown(s.column)}, score {s.score:.2g}: {s.reason}"
            for s in self.entries
        ]
        return "\n".join(lines)

    def to_pandas(self) -> dict[str, Any]:
        """Three DataFrames, "entries", "rows" and "columns"; needs pandas."""
        import pandas as pd  # noqa: PLC0415 - an optional dependency

        def frame(suspects: Sequence[Any], kind: type[Any]) -> Any:
            names = [field.name for field in fields(kind)]
            return pd.DataFrame([astuple(suspect) for suspect in suspects], columns=names)

        return {
            "entries": frame(self.entries, SuspectEntry),
            "rows": frame(self.rows, SuspectGroup),
            "columns": frame(self.columns, SuspectGroup),
        }


def share_of_outliers(clean_share: float) -> str:
    """The estimated share of outliers as a sentence; a small one is not rounded to zero."""
    percent = 100 * (1 - clean_share)
    share = f"About {percent:.1f} %" if percent >= 0.05 else "Less than 0.1 %"
    return f"{share} of the entries do not fit their rows and columns."


def suspect_entries(
    entries: Any,
    labels: tuple[Sequence[Hashable], Sequence[Hashable]],
    expected: NDArray[Any],
    deviations: Array,
    scores: Array,
    top: int,
    at_most: float,
) -> list[SuspectEntry]:
    """The ``top`` entries with the smallest scores, none above ``at_most``.

    ``entries`` is a :class:`~robustmf.outliers.scores.ScoredEntries`; ``labels`` are those of rows
    and columns.
    """
    suspects = []
    for t in _smallest(scores, top, at_most):
        value = float(entries.values[t])
        prediction = float(expected[t])
        score = float(scores[t])
        reason = (
            f"{_with_uncertainty(value, prediction, float(deviations[t]))} was expected; "
            f"{_odds(score)} clean entries is as far off"
        )
        row = labels[0][int(entries.i[t])]
        column = labels[1][int(entries.j[t])]
        suspects.append(SuspectEntry(row, column, value, prediction, score, reason))
    return suspects


def _with_uncertainty(value: float, prediction: float, deviation: float) -> str:
    """A value and its prediction, with the digits that the uncertainty leaves."""
    if not 0 < deviation < np.inf:
        return f"{value:.4g} where {prediction:.4g} ± {deviation:.2g}"
    decimals = 1 - int(np.floor(np.log10(deviation)))  # two digits of the deviation
    numbers = []
    for number in (value, prediction):
        before = int(np.floor(np.log10(abs(number)))) + 1 if number else 0
        numbers.append(f"{number:.{min(max(before + decimals, 4), 15)}g}")
    return f"{numbers[0]} where {numbers[1]} ± {deviation:.2g}"


def suspect_groups(
    groups: Groups,
    evidence: Evidence,
    labels: Sequence[Hashable],
    names: tuple[str, str],
    top: int,
    at_most: float,
    first: int = 0,
) -> list[SuspectGroup]:
    """The ``top`` rows (or columns) with the smallest scores, and their strongest evidence.

    Parameters
    ----------
    labels : sequence
        Labels of the groups from index ``first`` on.
    names : (str, str)
        What a group of this side, and one of the other side, is called.
    first : int, default=0
        Groups before this index are not listed.
    """
    counts = groups.sums().astype(np.int64)
    scores = evidence.scores
    order = np.argsort(groups.i, kind="stable")
    ends = np.cumsum(counts)
    overall = float(groups.values.mean())
    # A group without entries gives no reason for suspicion.
    eligible = np.where(counts > 0, scores, np.inf)[first:]
    suspects = []
    for k in [first + k for k in _smallest(eligible, top, at_most)]:
        kind = min(evidence.kinds, key=lambda kind: float(evidence.kinds[kind][k]))
        own = order[ends[k] - counts[k] : ends[k]]
        score = float(scores[k])
        reason = (
            f"{_describe(kind, groups, evidence, own, overall, names[1])}; "
            f"{_odds(score)} clean {names[0]}s is as unusual"
        )
        suspects.append(SuspectGroup(labels[k - first], int(counts[k]), score, reason))
    return suspects


def _describe(
    kind: str,
    groups: Groups,
    evidence: Evidence,
    own: NDArray[np.int64],
    overall: float,
    other_side: str,
) -> str:
    """Why a group is listed; ``own`` are the indices of its entries."""
    values = groups.values[own]
    if kind == "misfit":
        with np.errstate(over="ignore"):  # relative to an exact fit any residual is infinite
            size = float(np.sqrt(np.mean(np.square(groups.z[own]))))
        return f"its residuals are {size:.1f} times the noise"
    if kind == "uniformity":
        return (
            f"its values are {values.mean():.3g} ± {values.std():.2g}: too similar to each other, "
            f"or too far from {overall:.3g}, the mean of all"
        )
    if kind == "co-occurrence":
        return f"its entries lie in {other_side}s that others do not have together"
    shared = int(evidence.suspicious_others[groups.j[own]].sum())
    return f"{shared} of its {len(values)} entries lie in suspicious {other_side}s"


def _smallest(scores: Array, top: int, at_most: float) -> list[int]:
    """Indices of the ``top`` smallest scores that are not above ``at_most``, smallest first."""
    candidates = np.flatnonzero(scores <= at_most)
    order = np.argsort(scores[candidates], kind="stable")[:top]
    return [int(k) for k in candidates[order]]


def _odds(score: float) -> str:
    """The share of clean entries or groups in words, no smaller than what is measured."""
    if score <= OPTIONS.least_measured:
        return f"fewer than one in {1 / OPTIONS.least_measured:,.0f}"
    return f"about one in {1 / score:,.0f}"
