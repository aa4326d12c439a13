"""What a fitted model answers over Dask DataFrames, partition by partition; the model is sent to each worker once."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustmf.observed import Observed


def predict(model: Any, pairs: Any, *, row: Any, col: Any) -> Any:
    """Predictions for the pairs of a Dask DataFrame: a Dask Series beside it, with its index and divisions.

    ``row`` and ``col`` name the columns of ids (or numbers, where the fit had none); see
    :meth:`RobustMF.predict <robustmf.RobustMF.predict>`.
    """
    require_columns(pairs, row=row, col=col)
    model._require_factors()
    return mapped(pairs, _predicted, model, row, col, meta=series("prediction", model.row_factors_.dtype))


def outlier_scores(model: Any, entries: Any, *, row: Any, col: Any, value: Any) -> Any:
    """A score for every entry of a Dask DataFrame, small where it is suspicious: a Dask Series beside it.

    The entries are those of the fit, or others at its rows and columns; see
    :meth:`RobustMF.outlier_scores <robustmf.RobustMF.outlier_scores>`. For a model that was fitted on a cluster all of them are taken for
    entries of the fit.
    """
    require_columns(entries, row=row, col=col, value=value)
    model._require_factors()
    return mapped(entries, _scored, model, row, col, value, meta=series("outlier_score", np.float64))


def recommend(model: Any, users: Any, n: int = 10, *, row: Any, seen: Any = None, col: Any = None) -> Any:
    """The n best columns for each row of a Dask DataFrame of users: a Dask DataFrame with the columns row, place, item and prediction.

    Parameters
    ----------
    row : str
        The column of ids in ``users`` (and in ``seen``).
    seen : Dask DataFrame, optional
        Pairs to leave out, with the columns ``row`` and ``col``: as a rule the triplets of the fit. It is joined with the users by ``row``.
    """
    require_columns(users, row=row)
    model._require_factors()
    sample = ranking_sample(users, row, (model.column_ids_ or [0])[:1])
    if seen is None:
        return mapped(users[[row]], _recommended, model, n, row, meta=sample)
    return mapped(with_seen(users, seen, row, col), _recommended_unseen, model, n, row, col, meta=sample)


def ranking_sample(users: Any, row: Any, some_items: Any) -> Any:
    """An empty table of the kind that :func:`recommend` gives."""
    import pandas as pd  # noqa: PLC0415 - whoever has a Dask DataFrame has it

    columns = {"place": pd.Series([], dtype="int64"), "item": pd.Series(some_items).iloc[:0], "prediction": pd.Series([], dtype="float64")}
    return pd.DataFrame({row: users._meta[row]} | columns)


def with_seen(users: Any, seen: Any, row: Any, col: Any) -> Any:
    """Each user once with each item that it has seen, all those of a user in one partition."""
    require_columns(seen, row=row, col=col)
    return users[[row]].drop_duplicates().merge(seen[[row, col]], on=row, how="left").shuffle(on=row)


def series(name: str, dtype: Any) -> Any:
    """An empty series, to say of which kind a result is."""
    import pandas as pd  # noqa: PLC0415 - whoever has a Dask DataFrame has it

    return pd.Series([], name=name, dtype=dtype)


def mapped(frame: Any, function: Any, model: Any, *arguments: Any, meta: Any) -> Any:
    """``function(partition, model, *arguments)`` of every partition; the model is one key of the graph, not a copy in every task."""
    from dask import delayed  # noqa: PLC0415 - an extra

    sent, task = delayed(model, pure=False, traverse=False), delayed(function, pure=False)
    return collected([task(part, sent, *arguments) for part in frame.to_delayed()], meta, frame)


def collected(parts: list[Any], meta: Any, frame: Any) -> Any:
    """Delayed partitions as a Dask collection, with the divisions of a frame that they stand beside."""
    import dask.dataframe as dd  # noqa: PLC0415 - an extra

    beside = frame.known_divisions and meta.ndim == 1
    return dd.from_delayed(parts, meta=meta, divisions=frame.divisions if beside else None, verify_meta=False)


def require_columns(frame: Any, **names: Any) -> None:
    """Refuse what is not a Dask DataFrame with these columns."""
    if not hasattr(frame, "map_partitions"):
        raise TypeError(f"a Dask DataFrame is needed, got {type(frame).__name__}; the methods of the model take tables in memory")
    for role, name in names.items():
        if name not in frame.columns:
            raise ValueError(f"{role}={name!r} is not a column of the data; it has {list(frame.columns)}")


def _predicted(frame: Any, model: Any, row: Any, col: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - in the worker

    values = model.predict(frame[row].tolist(), frame[col].tolist()) if len(frame) else np.empty(0, model.row_factors_.dtype)
    return pd.Series(values, index=frame.index, name="prediction")


def _scored(frame: Any, model: Any, row: Any, col: Any, value: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - in the worker

    if not len(frame):
        return pd.Series(np.empty(0), index=frame.index, name="outlier_score")
    entries = Observed.from_triplets(frame, row=row, col=col, value=value)
    scores = model.outlier_scores(entries)
    # from the order of rows and columns back to that of the frame
    order = np.lexsort((_numbers(entries.column_ids, frame[col]), _numbers(entries.row_ids, frame[row])))
    placed = np.empty(len(frame))
    placed[order] = scores
    return pd.Series(placed, index=frame.index, name="outlier_score")


def _numbers(ids: Any, column: Any) -> Any:
    place = {key: k for k, key in enumerate(ids)}
    return [place[key] for key in column.tolist()]


def _recommended(frame: Any, model: Any, n: int, row: Any) -> Any:
    return _ranked(model, frame[row].tolist(), [()] * len(frame), n, row, frame)


def _recommended_unseen(frame: Any, model: Any, n: int, row: Any, col: Any) -> Any:
    seen: dict[Any, list[Any]] = {}
    for user, item in zip(frame[row].tolist(), frame[col].tolist(), strict=True):
        seen.setdefault(user, []).append(item)
    return _ranked(model, list(seen), list(seen.values()), n, row, frame)


def _ranked(model: Any, users: list[Any], seen: Any, n: int, row: Any, frame: Any) -> Any:
    """The n best of what is left when each user's seen items are taken out of that many more."""
    import pandas as pd  # noqa: PLC0415 - in the worker

    lines: list[tuple[Any, int, Any, float]] = []
    most = n + max(map(len, seen), default=0)
    items, scores = model.recommend(users, most, exclude_seen=False) if users else ((), ())
    for user, out, ranked, values in zip(users, seen, items, scores, strict=True):
        gone = set(out)
        left = [(item, score) for item, score in zip(ranked, values, strict=True) if item not in gone and not np.isnan(score)]
        lines += [(user, place, item, float(score)) for place, (item, score) in enumerate(left[:n], 1)]
    found = pd.DataFrame(lines, columns=[row, "place", "item", "prediction"])
    return found.astype({row: frame[row].dtype, "place": "int64", "prediction": "float64"})
