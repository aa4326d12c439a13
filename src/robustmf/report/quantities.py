"""What plots and pages display: histograms, factor maps, reduced tables, candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustmf.initialization.candidates import ModelCandidate
from robustmf.losses import Loss

Array = NDArray[np.float64]
Index = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class QuantityOptions:
    """Constants of histograms and maps.

    Attributes
    ----------
    range_quantile, range_factor : float
        The range of a histogram of residuals is this multiple of this quantile of their sizes, so
        that a few gross errors do not compress the distribution of the others into one bin.
    tries : int
        For each label of a map at most this many points are considered.
    """

    range_quantile: float = 0.9
    range_factor: float = 6.0
    tries: int = 20


OPTIONS = QuantityOptions()

#: Width of a character of a label and height of a label, relative to the axes.
LABEL_SIZE = (0.0185, 0.055)


class Histogram(NamedTuple):
    """Histogram of residuals and the weight that the loss assigns to each bin.

    ``beyond`` residuals lie outside the range and are counted in the outermost bins.
    """

    edges: Array
    counts: NDArray[np.int64]
    weights: Array
    beyond: int

    @property
    def centers(self) -> Array:
        """Centers of the bins."""
        return np.asarray((self.edges[:-1] + self.edges[1:]) / 2)


class FactorMap(NamedTuple):
    """Rows and columns along the first two principal axes of the predictions.

    ``share`` is the share of these axes in the sum of squares of the predictions.
    """

    rows: Array
    columns: Array
    share: float


@dataclass(frozen=True)
class Grid:
    """A table reduced to at most ``max_side`` rows and columns: each cell is a block of the table.

    Attributes
    ----------
    shape : tuple of int
        Shape of the grid.
    blocks : tuple of int
        Number of rows and of columns of a block; (1, 1) where the table is not reduced.
    cell : array of int
        For each entry the flat index of its cell.
    """

    shape: tuple[int, int]
    blocks: tuple[int, int]
    cell: Index

    @classmethod
    def of(cls, i: Index, j: Index, shape: tuple[int, int], max_side: int) -> Grid:
        """Return the grid of entries (i, j) of a table of this shape."""
        height, width = (-(-size // max_side) for size in shape)
        m = -(-shape[0] // height)
        n = -(-shape[1] // width)
        return cls((m, n), (height, width), (i // height).astype(np.int64) * n + j // width)

    def means(self, values: NDArray[Any]) -> Array:
        """Return the mean of the entries of each cell, NaN where there are none."""
        size = self.shape[0] * self.shape[1]
        counts = np.bincount(self.cell, minlength=size)
        sums = np.bincount(self.cell, values, size)
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / np.where(counts, counts, np.nan)).reshape(self.shape)

    def marked(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the cells with an entry that is True in ``mask``."""
        found = np.zeros(self.shape[0] * self.shape[1], bool)
        found[self.cell[mask]] = True
        return found.reshape(self.shape)


def relative_weights(loss: Loss, residuals: NDArray[Any]) -> Array:
    """Return the weights of residuals relative to that of an exact entry."""
    weight = loss.derivative if loss.concave else loss.weight
    return np.asarray(weight(residuals) / weight(np.zeros(1, residuals.dtype)))


def residual_histogram(loss: Loss, residuals: Array, n_bins: int) -> Histogram:
    """Return the histogram of residuals over a range that gross errors do not extend."""
    size = np.abs(residuals)
    limit = OPTIONS.range_factor * float(np.quantile(size, OPTIONS.range_quantile))
    limit = min(float(size.max()), limit) or 1.0
    edges = np.linspace(-limit, limit, n_bins + 1)
    counts = np.histogram(np.clip(residuals, -limit, limit), edges)[0]
    weights = relative_weights(loss, (edges[:-1] + edges[1:]) / 2)
    return Histogram(edges, counts, weights, int((size > limit).sum()))


def factor_map(row_factors: NDArray[Any], column_factors: NDArray[Any]) -> FactorMap | None:
    """Return P√S and Q√S along the first two axes of U Vᵀ = P S Qᵀ; None for rank 1.

    The map does not depend on the gauge of U and V.
    """
    U = np.asarray(row_factors, np.float64)
    V = np.asarray(column_factors, np.float64)
    if U.shape[1] < 2:
        return None
    Qu, Ru = np.linalg.qr(U)
    Qv, Rv = np.linalg.qr(V)
    left, singular, right = np.linalg.svd(Ru @ Rv.T)
    root = np.sqrt(singular[:2])
    total = float(np.square(singular).sum()) or 1.0
    return FactorMap(
        (Qu @ left[:, :2]) * root,
        (Qv @ right[:2].T) * root,
        float(np.square(singular[:2]).sum()) / total,
    )


def points_to_label(
    points: Array,
    texts: Callable[[int], str],
    limits: tuple[Array, Array],
    placed: list[Array],
    labels: int,
    size: tuple[float, float] = LABEL_SIZE,
    order: Index | None = None,
    visible: Array | None = None,
) -> list[int]:
    """Return the points to label, and append the boxes of their labels to those ``placed``.

    A point whose label would cover a placed one, or a visible point, is left out. A label stands
    above its point, on the side where the axes have more space.

    Parameters
    ----------
    points : array (n, 2)
        The points.
    texts : callable
        Gives the label of a point.
    limits : (low, high)
        Smallest and largest coordinates on the axes.
    placed : list of arrays
        Left, lower, right and upper ends of labels, relative to the axes.
    labels : int
        Maximum number of labels.
    size : (float, float), default=LABEL_SIZE
        Width of a character and height of a label, relative to the axes.
    order : array of int, default=None
        The points in the order in which they are considered; None begins with those furthest from
        the mean.
    visible : array (k, 2), default=None
        Points that no label may cover.
    """
    low, high = limits
    extent = np.where(high > low, high - low, 1.0)
    scaled = (points - low) / extent
    kept_free = (np.empty((0, 2)) if visible is None else visible - low) / extent
    if order is None:
        order = np.argsort(-np.hypot(*(scaled - scaled.mean(axis=0)).T), kind="stable")
    chosen: list[int] = []
    for k in order[: OPTIONS.tries * labels]:
        if len(chosen) == labels:
            break
        x, y = scaled[k]
        width = size[0] * (1 + len(texts(int(k))))
        left = x - width if x > 0.5 else x
        box = np.array([left, y, left + width, y + size[1]])
        # the point itself lies on the border
        covered = ((kept_free > box[:2]) & (kept_free < box[2:])).all(axis=1).any()
        if not covered and all(
            (box[:2] >= other[2:]).any() or (box[2:] <= other[:2]).any() for other in placed
        ):
            chosen.append(int(k))
            placed.append(box)
    return chosen


def rank_candidates(source: Any) -> list[ModelCandidate]:
    """Return the candidates of a fitted estimator, or of a sequence of records, by rank.

    An estimator without the attribute ``candidates_``, or with none, has no candidates.
    """
    if isinstance(source, Iterable):
        records: Sequence[Any] = list(source)
    else:
        records = list(getattr(source, "candidates_", None) or ())
    found = [
        ModelCandidate(
            str(one.model),
            int(one.rank),
            float(one.error),
            float(one.standard_error),
            bool(one.chosen),
        )
        for one in records
    ]
    # Sorting is stable: candidates of the same rank, as "center" and "biases", keep their order.
    return sorted(found, key=lambda candidate: candidate.rank)


def reason_of_choice(candidates: Sequence[ModelCandidate]) -> str:
    """Return why a candidate was chosen, in words; empty where none is marked as chosen."""
    chosen = next((one for one in candidates if one.chosen), None)
    if chosen is None:
        return ""
    if len(candidates) == 1:
        return f"No other model was compared with “{chosen.model}”."
    better = [one for one in candidates if one.error < chosen.error]
    if not better:
        return f"“{chosen.model}” has the smallest error."
    names = " and ".join(f"“{one.model}”" for one in better)
    sentences = [f"{names} {'has' if len(better) == 1 else 'have'} a smaller error."]
    are_two = sum(one.rank > 0 for one in candidates) > 1
    if are_two and any(one.rank > 0 for one in better):
        sentences.append(
            "Of two models with factors the evidence decides, which also counts parameters and"
            " noise that differs between rows and columns."
        )
    if chosen.rank == 0 or any(one.rank == 0 for one in better):
        sentences.append(
            f"“{chosen.model}” is the simplest model whose error is that of the best, up to one"
            " standard error."
        )
    return " ".join(sentences)
