"""Predictions of a fitted model for Dask DataFrames, partition by partition.

The model is sent to each worker once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Observed
from robustmf.exceptions import UnknownIdsWarning, warn_user


def predict(model: Any, pairs: Any, *, row: Any, col: Any) -> Any:
    """Predict the pairs of a Dask DataFrame.

    Parameters
    ----------
    model : RobustMF
        A fitted estimator.
    pairs : Dask DataFrame
    row, col : str
        The columns of ids (or indices, if the fit had no ids); see
        :meth:`RobustMF.predict <robustmf.RobustMF.predict>`.

    Returns
    -------
    Dask Series
        The predictions, with the index and the divisions of ``pairs``.
    """
    require_columns(pairs, row=row, col=col)
    meta = empty_series("prediction", factors_of(model).row_factors.dtype)
    return _map_partitions(pairs, _predict, model, row, col, meta=meta)


def outlier_scores(model: Any, entries: Any, *, row: Any, col: Any, value: Any) -> Any:
    """Score every entry of a Dask DataFrame; small scores are suspicious.

    Parameters
    ----------
    model : RobustMF
        A fitted estimator. If it was fitted on a cluster, all entries are treated as fitted ones.
    entries : Dask DataFrame
        Entries of the fit, or others of its rows and columns. Missing and non-finite values, and
        duplicates within a partition, raise an error.
    row, col, value : str
        The columns of ids and values; see
        :meth:`RobustMF.outlier_scores <robustmf.RobustMF.outlier_scores>`.

    Returns
    -------
    Dask Series
        The scores, with the index and the divisions of ``entries``.
    """
    require_columns(entries, row=row, col=col, value=value)
    factors_of(model)
    meta = empty_series("outlier_score", np.float64)
    return _map_partitions(entries, _score, model, row, col, value, meta=meta)


def recommend(
    model: Any, users: Any, n: int = 10, *, row: Any, seen: Any = None, col: Any = None
) -> Any:
    """Recommend columns for each row of a Dask DataFrame of users.

    Parameters
    ----------
    model : RobustMF
        A fitted estimator.
    users : Dask DataFrame
    n : int, default=10
        Recommendations per user.
    row : str
        The column of ids in ``users`` (and in ``seen``).
    seen : Dask DataFrame, default=None
        Pairs to exclude, with the columns ``row`` and ``col``: usually the triplets of the fit. It
        is joined with the users by ``row``.
    col : str, default=None
        The column of item ids in ``seen``.

    Returns
    -------
    Dask DataFrame
        With the columns ``row``, position, item and prediction.

    Notes
    -----
    Unknown users get the columns with the largest biases. A model without biases cannot rank
    columns for them, and they are absent from the result. The warning
    (:class:`UnknownIdsWarning <robustmf.exceptions.UnknownIdsWarning>`) is issued where the
    partition is computed: on a cluster it is in the log of the worker.
    """
    require_columns(users, row=row)
    factors_of(model)
    meta = ranking_meta(users, row, (model.column_ids_ or [0])[:1])
    if seen is None:
        return _map_partitions(users[[row]], _recommend, model, n, row, None, meta, meta=meta)
    queries = join_seen(users, seen, row, col)
    return _map_partitions(queries, _recommend, model, n, row, col, meta, meta=meta)


def factors_of(model: Any) -> Any:
    """The factors of a fitted estimator; raises if they are not in memory."""
    return model._model().factors


def require_columns(frame: Any, **names: Any) -> None:
    """Raise unless ``frame`` is a Dask DataFrame with these columns."""
    if not hasattr(frame, "map_partitions"):
        raise TypeError(
            f"a Dask DataFrame is required, got {type(frame).__name__}; the methods of the model "
            "accept tables in memory"
        )
    for role, name in names.items():
        if name not in frame.columns:
            raise ValueError(
                f"{role}={name!r} is not a column of the data; it has {list(frame.columns)}"
            )


def empty_series(name: str, dtype: Any) -> Any:
    """An empty series, the metadata of a result."""
    import pandas as pd  # noqa: PLC0415 - installed with Dask DataFrames

    return pd.Series([], name=name, dtype=dtype)


def ranking_meta(users: Any, row: Any, items: Any) -> Any:
    """An empty result of :func:`recommend`; ``items`` is a sequence of the items' type."""
    import pandas as pd  # noqa: PLC0415 - installed with Dask DataFrames

    columns = {
        "position": pd.Series([], dtype="int64"),
        "item": pd.Series(items).iloc[:0],
        "prediction": pd.Series([], dtype="float64"),
    }
    return pd.DataFrame({row: users._meta[row]} | columns)


def ranking_table(lines: list[tuple[Any, int, Any, float]], row: Any, meta: Any) -> Any:
    """Tuples (user, position, item, prediction) as a table like ``meta``."""
    import pandas as pd  # noqa: PLC0415 - imported in the worker

    if not lines:  # pandas could not infer the types of the columns
        return meta
    return pd.DataFrame(lines, columns=list(meta.columns)).astype(
        {row: meta[row].dtype, "position": "int64", "prediction": "float64"}
    )


def join_seen(users: Any, seen: Any, row: Any, col: Any) -> Any:
    """Each user with each of its items, and once alone; all rows of a user in one partition.

    A left join would leave missing values for users without items, and convert integers to floats,
    which round. So the item beside a user alone is arbitrary, and a further column marks the pairs.
    :func:`queries_in` reads the result.
    """
    import dask.dataframe as dd  # noqa: PLC0415 - Dask is an extra
    from dask.dataframe.utils import meta_nonempty  # noqa: PLC0415 - as above

    require_columns(seen, row=row, col=col)
    alone = users[[row]].drop_duplicates()
    pairs = alone.merge(seen[[row, col]], on=row)
    item = meta_nonempty(seen._meta[[col]])[col].iloc[:1]
    parts = [
        frame.map_partitions(_mark, row, col, filler, meta=_mark(frame._meta, row, col, filler))
        for frame, filler in ((pairs, None), (alone, item))
    ]
    return dd.concat(parts).shuffle(on=row)


def _mark(frame: Any, row: Any, col: Any, filler: Any) -> Any:
    """Pairs, or users alone beside the item ``filler``, with the column that marks pairs."""
    import pandas as pd  # noqa: PLC0415 - imported in the worker

    if filler is None:
        items = frame[col]
    else:
        items = pd.Series(filler.iloc[[0] * len(frame)].array, index=frame.index)
    return pd.DataFrame({row: frame[row], col: items, _mark_name(row, col): filler is None})


def _mark_name(row: Any, col: Any) -> str:
    """A name that differs from both."""
    return f"{row!r} has seen {col!r}"


def queries_in(frame: Any, row: Any, col: Any) -> dict[Any, set[Any]]:
    """The users of a partition, each with its items; without ``col``, of a table of users."""
    users = frame[row].tolist()
    queries: dict[Any, set[Any]] = {user: set() for user in users}
    if col is not None:
        marks = frame[_mark_name(row, col)].tolist()
        for user, item, is_pair in zip(users, frame[col].tolist(), marks, strict=True):
            if is_pair:
                queries[user].add(item)
    return queries


def warn_of_unknown_users(unknown: int, total: int) -> None:
    """Warn of users that are absent from a result, if there are any."""
    if unknown:
        warn_user(
            f"{unknown} of the {total} users of a partition are unknown, and a model without "
            "biases cannot rank columns for them: they are absent from the result; fit with "
            "bias=True, or leave them out",
            UnknownIdsWarning,
        )


def _map_partitions(frame: Any, function: Any, model: Any, *arguments: Any, meta: Any) -> Any:
    """``function(partition, model, *arguments)`` of every partition.

    The model is one key of the graph, not a copy in every task.
    """
    from dask import delayed  # noqa: PLC0415 - Dask is an extra

    shared = delayed(model, pure=False, traverse=False)
    task = delayed(function, pure=False)
    return collect([task(part, shared, *arguments) for part in frame.to_delayed()], meta, frame)


def collect(parts: list[Any], meta: Any, frame: Any) -> Any:
    """Delayed partitions as a Dask collection; a series has the divisions of ``frame``."""
    import dask.dataframe as dd  # noqa: PLC0415 - Dask is an extra

    divisions = frame.divisions if frame.known_divisions and meta.ndim == 1 else None
    return dd.from_delayed(parts, meta=meta, divisions=divisions, verify_meta=False)


def _predict(frame: Any, model: Any, row: Any, col: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - imported in the worker

    values = np.empty(0, model.row_factors_.dtype)
    if len(frame):
        values = model.predict(frame[row].tolist(), frame[col].tolist())
    return pd.Series(values, index=frame.index, name="prediction")


def _score(frame: Any, model: Any, row: Any, col: Any, value: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - imported in the worker

    scores = np.empty(len(frame))
    if len(frame):
        entries = Observed.from_triplets(frame, row=row, col=col, value=value)
        i = Vocabulary(entries.row_ids or (), "row").indices(frame[row].tolist())
        j = Vocabulary(entries.column_ids or (), "column").indices(frame[col].tolist())
        # entries are in row order, the scores in the order of the frame
        scores[np.lexsort((j, i))] = model.outlier_scores(entries)
    return pd.Series(scores, index=frame.index, name="outlier_score")


def _recommend(frame: Any, model: Any, n: int, row: Any, col: Any, meta: Any) -> Any:
    """The n best columns per user, after the seen ones are removed from as many more."""
    queries: Mapping[Any, set[Any]] = queries_in(frame, row, col)
    users = list(queries)
    if not model.has_bias_ and users:
        known = model._model().indices("row", users, "users") != UNKNOWN
        warn_of_unknown_users(int((~known).sum()), len(known))
        users = [user for user, is_known in zip(users, known.tolist(), strict=True) if is_known]
    lines: list[tuple[Any, int, Any, float]] = []
    if users:
        n_ranked = n + max(len(queries[user]) for user in users)
        items, scores = model.recommend(users, n_ranked, exclude_seen=False)
        for user, ranked, values in zip(users, items, scores, strict=True):
            best = [
                (item, float(score))
                for item, score in zip(ranked, values, strict=True)
                if item not in queries[user] and not np.isnan(score)
            ]
            lines += [(user, position, *one) for position, one in enumerate(best[:n], 1)]
    return ranking_table(lines, row, meta)
