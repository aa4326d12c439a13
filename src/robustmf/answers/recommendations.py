"""Rankings of columns: recommendations for fitted and new rows, and similar columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.answers.tables import ReadRows, per_query, ranked_lines, rows_in_order
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import is_missing
from robustmf.data.observed import Observed, nothing_observed
from robustmf.data.ranking import Excluded, Ranked, observed_pairs, similar_columns, top_n
from robustmf.data.table_form import NO_NAMES, ids_or_numbers
from robustmf.data.tables import is_mapping
from robustmf.exceptions import RatingScaleWarning, UnknownIdsWarning, warn_user
from robustmf.model import FittedModel
from robustmf.validation import require_indices, require_integer

Array = NDArray[np.floating[Any]]


def recommend(
    model: FittedModel, users: Any, n: int, ratings: Any, read: ReadRows, *, exclude_seen: bool
) -> Any:
    """The best columns of fitted or new rows; see :meth:`robustmf.RobustMF.recommend`."""
    if (users is None) == (ratings is None):
        raise ValueError("recommend must have either users or ratings, got both or neither")
    if ratings is None:
        ranked = recommend_fitted(model, users, n, exclude_seen=exclude_seen)
        return per_query(users, *_names(model), ranked, "prediction")
    if getattr(ratings, "ndim", None) == 1 and hasattr(ratings, "to_dict"):
        ratings = ratings.to_dict()
    if is_mapping(ratings):
        observed = _rated(model, ratings)
        items, scores = _recommend_new(model, observed, n, exclude_seen=exclude_seen)
        return Ranked(items[0], scores[0])
    observed = read(ratings)
    ranked = _recommend_new(model, observed, n, exclude_seen=exclude_seen)
    if isinstance(ratings, Observed) or observed.form is None:
        return ranked
    order, ids = rows_in_order(ratings, observed.to_host())
    ranked = Ranked(*(of_rows[order] for of_rows in ranked))
    ids = ids_or_numbers(ids, len(ranked.items))
    row, item = _names(model)
    return ranked_lines(observed.form, row, ids, item, ranked, "prediction")


def _names(model: FittedModel) -> tuple[Any, Any]:
    """The names of a column of rows and of one of columns: those of the fitted long table."""
    names = model.form.names if model.form is not None else NO_NAMES
    return names.row or "row", names.col or "item"


@one_blas_thread()
def recommend_fitted(model: FittedModel, users: Any, n: int, *, exclude_seen: bool) -> Ranked:
    """The n columns with the highest predictions for each of the given rows of the fit."""
    require_integer("n", n, 1)
    i = model.indices("row", users, "users")
    flat = i.ravel()
    factors = model.factors
    is_unknown = flat == UNKNOWN
    is_unranked = np.zeros_like(is_unknown) if factors.has_bias else is_unknown
    _warn_of_unranked(is_unranked, "are unknown")
    if factors.has_bias:
        model.warn_of_unknown(
            users, i, "row", "the columns with the highest biases are recommended to them"
        )
    zero = factors.row_factors.dtype.type(0)
    U = np.where(is_unknown[:, None], zero, factors.row_factors[flat])
    row_bias = np.where(is_unknown, zero, factors.row_bias[flat])
    seen = observed_pairs(model.fitted_entries().rows, flat) if exclude_seen else None
    ranked = _ranked(model, U, row_bias, is_unranked, n, seen)
    return Ranked(*(of_rows.reshape(*i.shape, n) for of_rows in ranked))


@one_blas_thread()
def _recommend_new(model: FittedModel, X: Observed, n: int, *, exclude_seen: bool) -> Ranked:
    """The n columns with the highest predictions for each of some new rows."""
    require_integer("n", n, 1)
    observed = model.new_rows(X)
    T = model.fold_in(observed)
    entries = observed.to_host().rows
    _warn_of_bounds(model, entries.values)
    has_bias = model.factors.has_bias
    is_unranked = np.zeros(len(T), bool) if has_bias else entries.counts == 0
    _warn_of_unranked(is_unranked, "have no known rating")
    rank = model.factors.rank
    row_bias = T[:, rank] if has_bias else np.zeros(len(T), T.dtype)
    seen = observed_pairs(entries, np.arange(len(T))) if exclude_seen else None
    return _ranked(model, T[:, :rank], row_bias, is_unranked, n, seen)


def _ranked(
    model: FittedModel,
    U: Array,
    row_bias: Array,
    is_unranked: NDArray[np.bool_],
    n: int,
    seen: Excluded | None,
) -> Ranked:
    """The n columns with the highest predictions for rows with these factors and biases."""
    factors = model.factors
    indices, scores = top_n(U, factors.column_factors, factors.column_offsets, int(n), seen)
    scores += row_bias[:, None]
    indices[is_unranked] = UNKNOWN
    scores[is_unranked] = np.nan
    return Ranked(_column_labels(model, indices), model.clip(scores))


def _column_labels(model: FittedModel, indices: NDArray[np.intp]) -> NDArray[Any]:
    """Columns by their ids, where there are any."""
    if model.column_ids is None:
        return indices
    ids = np.empty(len(model.column_ids) + 1, object)
    ids[:-1] = model.column_ids  # the last element is None, where UNKNOWN = −1 points
    labels: NDArray[Any] = ids[indices]
    return labels


def _rated(model: FittedModel, ratings: Mapping[Hashable, float]) -> Observed:
    """One new row with these values, by column ids, or by numbers where the fit had no ids.

    Missing values, as in a row of a wide table, are left out.
    """
    ratings = {key: value for key, value in ratings.items() if not is_missing(value)}
    shape = (1, model.shape[1])
    if not ratings:
        return nothing_observed(shape, model.factors.row_factors.dtype)
    values = list(ratings.values())
    if model.column_ids is not None:
        return Observed.from_triplets(row=[0] * len(values), col=list(ratings), value=values)
    j = require_indices("ratings", np.asarray(list(ratings)), model.shape[1])
    return Observed.from_indices(np.zeros_like(j), j, values, shape)


def _warn_of_bounds(model: FittedModel, ratings: Array) -> None:
    """Warn of ratings outside of the scale of the fit."""
    low, high = model.bounds
    outside = ratings[(ratings < low) | (ratings > high)]
    if len(outside):
        warn_user(
            f"{len(outside)} of {len(ratings)} ratings, such as {outside[0]:g}, are outside of the "
            f"scale of the fit, bounds_=({low:g}, {high:g}): give them on this scale",
            RatingScaleWarning,
        )


def _warn_of_unranked(is_unranked: NDArray[np.bool_], reason: str) -> None:
    """Warn of users without recommendations; raise if no user has any."""
    unranked = int(is_unranked.sum())
    if not unranked:
        return
    message = (
        f"{unranked} of {len(is_unranked)} users {reason}, and a model without biases cannot rank "
        "columns for them"
    )
    if unranked == len(is_unranked):
        raise ValueError(f"{message}; fit with bias=True, or give users of the fit")
    warn_user(
        f"{message}: their recommendations are empty; fit with bias=True, or leave them out",
        UnknownIdsWarning,
    )


@one_blas_thread()
def similar_items(model: FittedModel, items: Any, n: int) -> Any:
    """The n columns most similar to each of the given ones."""
    require_integer("n", n, 1)
    j = model.indices("column", items, "items")
    flat = j.ravel()
    unknown = np.flatnonzero(flat == UNKNOWN)
    lookup = model.vocabulary("column")
    if len(unknown) and lookup is not None:
        first = lookup.keys(items)[int(unknown[0])]
        others = "" if len(unknown) == 1 else f" and {len(unknown) - 1} more unknown id(s)"
        raise ValueError(f"items must be known to the fit, got {first!r}{others}")
    V = model.factors.column_factors
    if not V.any():
        raise ValueError(
            "the model has no factors: it consists of a center and biases, so that no "
            "similarity is defined"
        )
    if not V[flat].any(axis=1).all():
        raise ValueError(
            "items must have entries in the fit: the factors of one of them are zero, "
            "so that no similarity is defined"
        )
    indices, scores = similar_columns(model.factors.row_factors, V, flat, int(n))
    found = (_column_labels(model, indices), scores)
    ranked = Ranked(*(of_columns.reshape(*j.shape, n) for of_columns in found))
    _, item = _names(model)
    return per_query(items, item, f"similar {item}", ranked, "similarity")
