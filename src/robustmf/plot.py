"""Plots of fitted models with Matplotlib (extra ``plot``).

Every function takes a fitted model, draws into ``ax`` (by default into a new figure) and returns
the Axes, so that titles, limits and colors can be changed afterwards.
"""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from robustmf.data.sampling import evenly_spaced
from robustmf.outliers import scores as scores_of
from robustmf.outliers.cleaning import bad_entries
from robustmf.report import quantities
from robustmf.report.charts import MISSING
from robustmf.report.names import tick
from robustmf.report.quantities import Grid
from robustmf.validation import require_integer, require_positive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from robustmf.data.observed import Observed

__all__ = [
    "cleaning",
    "column_scores",
    "factor_map",
    "rank_candidates",
    "residuals",
    "row_scores",
    "weights",
]

_BLUE = "#2f81c9"
_ORANGE = "#e0702b"
_RED = "#c92a2a"
_GRAY = "#8a8a8a"

#: Scores below this are drawn at this value: smaller ones are no more informative.
_SMALLEST_SCORE = 1e-8

#: Number of labels along an axis of a heat map.
_TICKS = 6


def residuals(model: Any, X: Any = None, *, bins: int = 101, ax: Axes | None = None) -> Axes:
    """Draw the distribution of the residuals, the scale θ of the loss and the weights.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : as in ``fit``, default=None
        Entries of the fitted matrix; None is those of the fit.
    bins : int, default=101
        Number of bins.
    ax : matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    Axes
        With the number of entries on a logarithmic axis. The weight of a residual in the fit is
        drawn on a second axis on the right. Residuals outside the range are counted in the
        outermost bins. Where the noise differs between rows or columns (``row_scales_``,
        ``column_scales_``), residuals are divided by both scales, as in the fit.

    Examples
    --------
    >>> from robustmf import RobustMF, plot
    >>> from robustmf.datasets import make_synthetic
    >>> model = RobustMF(rank=5, random_state=0).fit(make_synthetic(100, random_state=0).train)
    >>> plot.residuals(model).get_xlabel()
    'residual'
    """
    check_is_fitted(model)
    require_integer("bins", bins, 1)
    found = np.asarray(model._model().scaled_residuals(_entries(model, X)), np.float64)
    histogram = quantities.residual_histogram(model.loss_, found, bins)
    ax = _axes(ax)
    ax.stairs(histogram.counts, histogram.edges, fill=True, color=_BLUE, alpha=0.85)
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    title = f"Residuals of {len(found):,} entries"
    if histogram.beyond:
        title += f"\n({histogram.beyond:,} beyond the range)"
    has_scales = model.model_.scales is not None
    xlabel = "residual / scale of its row and column" if has_scales else "residual"
    ax.set(xlabel=xlabel, ylabel="entries", title=title)
    if model.loss_.has_scale:
        theta = float(model.theta_)
        for k, position in enumerate((-theta, theta)):
            label = f"±θ = {theta:.3g}" if k == 0 else None
            ax.axvline(position, color=_GRAY, linestyle="--", linewidth=1, label=label)
    right = ax.twinx()
    right.plot(histogram.centers, histogram.weights, color=_ORANGE, label="weight")
    right.set(ylim=(0, 1.05), yticks=[0, 0.5, 1], ylabel="weight in the fit")
    right.spines["right"].set_visible(True)
    handles = [*ax.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    right.legend(handles=handles, loc="upper right")
    return ax


def weights(model: Any, X: Any = None, *, max_side: int = 400, ax: Axes | None = None) -> Axes:
    """Draw the weights of the entries in the fit over the table: dark cells are outliers.

    Weights of the cleaned table, ``plot.weights(model, model.clean(X, replace=True).data)``, are
    close to 1.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : as in ``fit``, default=None
        Entries of the fitted matrix; None is those of the fit.
    max_side : int, default=400
        A table with more rows or columns is drawn by the mean weight of blocks of cells.
    ax : matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    Axes
        A heat map from 0 to 1, gray where nothing is observed.
    """
    check_is_fitted(model)
    observed = _entries(model, X)
    found = np.asarray(model._model().entry_weights(observed), np.float64)
    grid = _grid(observed, max_side)
    ax = _axes(ax)
    image = _heat_map(ax, grid, grid.means(found), observed, vmin=0, vmax=1)
    ax.figure.colorbar(image, ax=ax, label=_with_missing("weight in the fit", image))
    ax.set_title("Weights of the entries")
    return ax


def cleaning(
    model: Any,
    X: Any = None,
    *,
    at_most: float = 0.001,
    attacks: bool = False,
    max_side: int = 400,
    axes: Sequence[Axes] | None = None,
) -> NDArray[Any]:
    """Draw the table before and after cleaning, with the bad cells marked.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : as in ``fit``, default=None
        Entries of the fitted matrix; None is those of the fit.
    at_most : float, default=0.001
        Entries with a score up to this are bad, as in :meth:`robustmf.RobustMF.clean`.
    attacks : bool, default=False
        Whether scores consider rows and columns, as there.
    max_side : int, default=400
        A table with more rows or columns is drawn by the means of blocks of cells; a block is
        marked if one of its entries is bad.
    axes : sequence of two matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    ndarray of two Axes
        Before and after, in the same colors; missing cells are gray.
    """
    check_is_fitted(model)
    observed = _entries(model, X)
    is_bad, predicted = bad_entries(
        model._model(), observed, rows="fitted", at_most=at_most, attacks=attacks
    )
    values = np.asarray(observed.rows.values, np.float64)
    grid = _grid(observed, max_side)
    before = grid.means(values)
    after = grid.means(np.where(is_bad, predicted, values))
    low, high = np.nanquantile(after, [0.01, 0.99])
    if axes is None:
        figure = _pyplot().figure(figsize=(9, 4), layout="constrained")
        axes = list(figure.subplots(1, 2, sharex=True, sharey=True))
    if len(axes) != 2:
        raise ValueError(f"axes must be two Axes, got {len(axes)}")
    for ax, cells in zip(axes, (before, after), strict=True):
        image = _heat_map(ax, grid, cells, observed, vmin=low, vmax=high)
    axes[0].figure.colorbar(
        image, ax=list(axes), label=_with_missing("value", image), extend="both"
    )
    i, j = np.nonzero(grid.marked(is_bad))
    height, width = grid.blocks
    axes[0].scatter(
        (j + 0.5) * width - 0.5,
        (i + 0.5) * height - 0.5,
        s=14,
        marker="s",
        facecolors="none",
        edgecolors=_RED,
        linewidths=0.9,
    )
    axes[0].set_title(f"Before: {int(is_bad.sum()):,} bad cells")
    axes[1].set_title("After")
    return np.array(axes, object)


def rank_candidates(model: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the errors of the models that were compared, of entries predicted from the others.

    Parameters
    ----------
    model : RobustMF, or sequence of candidates
        A fitted model; or its attribute ``candidates_``, objects with the
        attributes ``model``, ``rank``, ``error``, ``standard_error`` and ``chosen``.
    ax : matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    Axes
        Errors with one standard error, the chosen candidate marked, and why it was chosen. If the
        fit compared fewer than two models, a text states it.
    """
    if hasattr(model, "fit"):
        check_is_fitted(model)
    candidates = quantities.rank_candidates(model)
    ax = _axes(ax)
    ax.set_title("Models compared")
    reason = quantities.reason_of_choice(candidates)
    if len(candidates) < 2:
        ax.text(
            0.5,
            0.5,
            textwrap.fill(reason or "no models were compared", 40),
            ha="center",
            va="center",
            transform=ax.transAxes,
        )
        ax.set(xticks=[], yticks=[])
        return ax
    positions = np.arange(len(candidates))
    errors = [candidate.error for candidate in candidates]
    bars = [candidate.standard_error for candidate in candidates]
    ax.errorbar(positions, errors, bars, color=_BLUE, marker="o", capsize=3, linewidth=1)
    chosen = [k for k, candidate in enumerate(candidates) if candidate.chosen]
    ax.plot(
        chosen,
        [errors[k] for k in chosen],
        linestyle="none",
        marker="o",
        markersize=12,
        markerfacecolor="none",
        markeredgecolor=_ORANGE,
        markeredgewidth=2,
        label="chosen",
    )
    names = [candidate.model.replace(" and ", "\nand ") for candidate in candidates]
    ax.set_xticks(positions, names, parse_math=False)
    ax.set_ylabel("error of predicted entries")
    characters = int(1.1 / _label_size(ax)[0])
    ax.set_xlabel(textwrap.fill(reason, max(characters, 20)), fontsize="small", parse_math=False)
    if chosen:
        ax.legend()
    return ax


def factor_map(model: Any, *, labels: int = 12, ax: Axes | None = None) -> Axes:
    """Draw rows and columns along the first two principal axes of the predictions.

    A row has large predictions for the columns in its direction. The map does not depend on the
    basis in which the factors are given.

    Parameters
    ----------
    model : RobustMF
        A fitted model of rank 2 or more.
    labels : int, default=12
        The largest number of rows, and of columns, that are labelled: those furthest from the
        mean, unless the label would cover another one or a point.
    ax : matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    Axes
    """
    check_is_fitted(model)
    require_integer("labels", labels, 0)
    found = quantities.factor_map(model.row_factors_, model.column_factors_)
    if found is None:
        raise ValueError(f"a map needs two factors, got a model of rank {model.rank_}")
    ax = _axes(ax)
    everything = np.vstack([found.rows, found.columns])
    limits = (everything.min(axis=0), everything.max(axis=0))
    size = _label_size(ax)
    middle = (limits[0][0] + limits[1][0]) / 2
    placed: list[NDArray[np.float64]] = []
    for points, ids, side, color, marker in (
        (found.rows, model.row_ids_, "rows", _BLUE, "o"),
        (found.columns, model.column_ids_, "columns", _ORANGE, "D"),
    ):
        x, y = points.T
        ax.scatter(x, y, s=14, color=color, marker=marker, alpha=0.7, label=side, linewidths=0)
        named = partial(_label, ids)
        for k in quantities.points_to_label(
            points, named, limits, placed, labels, size, visible=everything
        ):
            _annotate(ax, named(k), points[k], middle, color)
    ax.axhline(0, color=_GRAY, linewidth=0.5)
    ax.axvline(0, color=_GRAY, linewidth=0.5)
    title = f"Factor map:\n{found.share:.0%} of the sum of squares"
    ax.set(xlabel="first axis", ylabel="second axis", title=title)
    ax.legend()
    return ax


def row_scores(
    model: Any,
    X: Any = None,
    *,
    rows: Literal["fitted", "new"] = "fitted",
    top: int = 15,
    at_most: float = 0.01,
    ax: Axes | None = None,
) -> Axes:
    """Draw the scores of the most suspicious rows as bars, the worst on top.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : table, matrix or None, default=None
        As in :meth:`robustmf.RobustMF.row_scores`.
    rows : {"fitted", "new"}, default="fitted"
        As there.
    top : int, default=15
        Number of rows.
    at_most : float, default=0.01
        Scores up to this are drawn in red.
    ax : matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    Axes
        Scores on a logarithmic axis: a longer bar is more suspicious.
    """
    check_is_fitted(model)
    require_integer("top", top, 1)
    require_positive("at_most", at_most)
    scores, ids = _group_scores(model, X, "row", rows)
    worst = np.argsort(scores, kind="stable")[:top][::-1]
    drawn = np.maximum(scores[worst], _SMALLEST_SCORE)
    ax = _axes(ax)
    # A bar extends from 1 to the score on a reversed axis, so that a smaller score is longer.
    ax.barh(
        np.arange(len(worst)),
        drawn - 1,
        left=1,
        color=[_RED if score <= at_most else _BLUE for score in drawn],
    )
    ax.set_xscale("log")
    ax.set_xlim(1, min(at_most, float(drawn.min())) / 2)
    ax.axvline(at_most, color=_GRAY, linestyle="--", linewidth=1)
    ax.set_yticks(np.arange(len(worst)), [_label(ids, int(k)) for k in worst], parse_math=False)
    ax.set_xlabel("score: share of clean rows\nthat are as bad or worse")
    ax.set_title("Most suspicious rows")
    return ax


def column_scores(
    model: Any,
    X: Any = None,
    *,
    rows: Literal["fitted", "new"] = "fitted",
    labels: int = 5,
    at_most: float = 0.01,
    ax: Axes | None = None,
) -> Axes:
    """Draw the scores of all columns in their order; the lowest points are most suspicious.

    Parameters
    ----------
    model : RobustMF
        A fitted model.
    X : table, matrix or None, default=None
        As in :meth:`robustmf.RobustMF.column_scores`.
    rows : {"fitted", "new"}, default="fitted"
        As there.
    labels : int, default=5
        The number of columns with a score up to ``at_most`` that are labelled, the worst first,
        unless the label would cover another one.
    at_most : float, default=0.01
        Scores up to this are drawn in red.
    ax : matplotlib Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    Axes
    """
    check_is_fitted(model)
    require_integer("labels", labels, 0)
    require_positive("at_most", at_most)
    scores, ids = _group_scores(model, X, "column", rows)
    drawn = np.maximum(scores, _SMALLEST_SCORE)
    positions = np.arange(len(drawn))
    bad = drawn <= at_most
    ax = _axes(ax)
    ax.vlines(positions, drawn, 1, color=np.where(bad, _RED, _BLUE), linewidth=0.8)
    ax.scatter(positions, drawn, s=12, color=np.where(bad, _RED, _BLUE), zorder=3)
    ax.axhline(at_most, color=_GRAY, linestyle="--", linewidth=1)
    ax.set_yscale("log")
    ax.set_ylim(min(at_most, float(drawn.min())) / 3, 1.2)
    points = np.column_stack([positions, np.log(drawn)])
    bottom, top = np.log(ax.get_ylim())
    limits = (np.array([0.0, bottom]), np.array([len(drawn) - 1.0, top]))
    order = np.argsort(drawn, kind="stable")[: bad.sum()]
    named = partial(_label, ids)
    for k in quantities.points_to_label(points, named, limits, [], labels, _label_size(ax), order):
        _annotate(ax, named(k), (k, drawn[k]), len(drawn) / 2)
    _set_ticks(ax, "x", len(drawn), ids)
    ax.set(ylabel="score", title="Scores over the columns")
    return ax


def _pyplot() -> Any:
    """Import ``matplotlib.pyplot``, a package of the extra ``plot``."""
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an extra
    except ImportError:
        raise ImportError("plots need Matplotlib: pip install 'robustmf[plot]'") from None
    return plt


def _axes(ax: Axes | None) -> Axes:
    """Return the given Axes, or those of a new figure."""
    return _pyplot().subplots(layout="constrained")[1] if ax is None else ax


def _entries(model: Any, X: Any) -> Observed:
    """Return the entries of X, or those of the fit."""
    fitted = model._model()
    if X is None:
        return fitted.fitted_entries()
    return fitted.locate(X)[0]


def _group_scores(
    model: Any, X: Any, side: str, rows: Literal["fitted", "new"]
) -> tuple[NDArray[np.float64], Sequence[Hashable] | None]:
    """Return the scores of rows or columns and their ids."""
    entries = model._entries(X, rows)
    function = scores_of.row_scores if side == "row" else scores_of.column_scores
    found = function(model._model(), entries, rows=rows)
    if side == "column":
        return found, model.column_ids_
    return found, model.row_ids_ if rows == "fitted" else entries.row_ids


def _grid(observed: Observed, max_side: int) -> Grid:
    require_integer("max_side", max_side, 1)
    entries = observed.rows
    return Grid.of(entries.group_of_entry(), entries.indices, observed.shape, max_side)


def _heat_map(
    ax: Axes, grid: Grid, cells: NDArray[np.float64], observed: Observed, **options: Any
) -> AxesImage:
    """Draw the cells of a grid in the coordinates of the table, with its labels."""
    m, n = observed.shape
    bottom = grid.shape[0] * grid.blocks[0] - 0.5
    right = grid.shape[1] * grid.blocks[1] - 0.5
    image = ax.imshow(
        cells,
        cmap=_pyplot().get_cmap("viridis").with_extremes(bad=np.divide(MISSING, 255)),
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, right, bottom, -0.5),
        **options,
    )
    ax.set_xlim(-0.5, n - 0.5)
    ax.set_ylim(m - 0.5, -0.5)
    _set_ticks(ax, "x", n, observed.column_ids)
    _set_ticks(ax, "y", m, observed.row_ids)
    return image


def _with_missing(label: str, image: AxesImage) -> str:
    """The label of a color bar, which names the color of missing cells where there are some."""
    is_missing = np.ma.getmaskarray(np.ma.asarray(image.get_array()))
    return f"{label} (gray: missing)" if is_missing.any() else label


def _set_ticks(ax: Axes, axis: str, size: int, ids: Sequence[Hashable] | None) -> None:
    """Label some rows or columns by their ids."""
    positions = evenly_spaced(size, _TICKS)
    texts = [_label(ids, int(k)) for k in positions]
    if axis == "y":
        ax.set_yticks(positions, texts, parse_math=False)
    else:
        rotated = max(map(len, texts)) > 4
        ax.set_xticks(
            positions,
            texts,
            parse_math=False,
            rotation=30 if rotated else 0,
            ha="right" if rotated else "center",
        )


def _annotate(ax: Axes, text: str, point: Any, middle: float, color: str | None = None) -> None:
    """Write a label beside a point, on the side where the axes have more space."""
    is_right = bool(point[0] > middle)
    ax.annotate(
        text,
        (point[0], point[1]),
        xytext=(-4 if is_right else 4, 3),
        textcoords="offset points",
        ha="right" if is_right else "left",
        fontsize="small",
        color=color,
        parse_math=False,
    )


def _label_size(ax: Axes) -> tuple[float, float]:
    """Return the width of a character and the height of a label, relative to the data's range."""
    pixels = _pyplot().rcParams["font.size"] * 0.833 * ax.figure.dpi / 72  # "small"
    # The axes are 1.1 times as long as the range of the data.
    return 1.1 * 0.66 * pixels / ax.bbox.width, 1.1 * 1.5 * pixels / ax.bbox.height


def _label(ids: Sequence[Hashable] | None, k: int) -> str:
    """Return an id as a short text, without characters that control its direction."""
    return tick(k if ids is None else ids[k])
