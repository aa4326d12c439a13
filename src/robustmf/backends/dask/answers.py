"""What a fitted model answers over Dask DataFrames, partition by partition; the model is sent to each worker once."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustmf.data.factorization import UNKNOWN
from robustmf.data.observed import Observed
from robustmf.exceptions import UnknownIdsWarning, warn_user


def predict(model: Any, pairs: Any, *, row: Any, col: Any) -> Any:
    """Predictions for the pairs of a Dask DataFrame: a Dask Series beside it, with its index and divisions.

    ``row`` and ``col`` name the columns of ids (or numbers, where the fit had none); see
    :meth:`RobustMF.predict <robustmf.RobustMF.predict>`.
    """
    require_columns(pairs, row=row, col=col)
    model._model()
    return mapped(
        pairs, _predicted, model, row, col, meta=series("prediction", model.row_factors_.dtype)
    )


def outlier_scores(model: Any, entries: Any, *, row: Any, col: Any, value: Any) -> Any:
    """A score for every entry of a Dask DataFrame, small where it is suspicious: a Dask Series beside it.

    The entries are those of the fit, or others at its rows and columns; see
    :meth:`RobustMF.outlier_scores <robustmf.RobustMF.outlier_scores>`. For a model that was fitted on a cluster all of them are taken for
    entries of the fit. Values that are missing or not finite are refused, and places that a partition has twice.
    """
    require_columns(entries, row=row, col=col, value=value)
    model._model()
    return mapped(
        entries, _scored, model, row, col, value, meta=series("outlier_score", np.float64)
    )


def recommend(
    model: Any, users: Any, n: int = 10, *, row: Any, seen: Any = None, col: Any = None
) -> Any:
    """The n best columns for each row of a Dask DataFrame of users: a Dask DataFrame with the columns row, place, item and prediction.

    Parameters
    ----------
    row : str
        The column of ids in ``users`` (and in ``seen``).
    seen : Dask DataFrame, optional
        Pairs to leave out, with the columns ``row`` and ``col``: as a rule the triplets of the fit. It is joined with the users by ``row``.

    Notes
    -----
    Users that the fit did not know get the columns with the highest biases. A model without biases has nothing to rank columns by for
    them: they have no lines in the answer, however the users are cut into partitions. The warning (:class:`UnknownIdsWarning
    <robustmf.exceptions.UnknownIdsWarning>`) is given where the partition is worked on: on a cluster in the log of the worker.
    """
    require_columns(users, row=row)
    model._model()
    sample = ranking_sample(users, row, (model.column_ids_ or [0])[:1])
    if seen is None:
        return mapped(users[[row]], _recommended, model, n, row, sample, meta=sample)
    return mapped(
        with_seen(users, seen, row, col),
        _recommended_unseen,
        model,
        n,
        row,
        col,
        sample,
        meta=sample,
    )


def ranking_sample(users: Any, row: Any, some_items: Any) -> Any:
    """An empty table of the kind that :func:`recommend` gives."""
    import pandas as pd  # noqa: PLC0415 - whoever has a Dask DataFrame has it

    columns = {
        "place": pd.Series([], dtype="int64"),
        "item": pd.Series(some_items).iloc[:0],
        "prediction": pd.Series([], dtype="float64"),
    }
    return pd.DataFrame({row: users._meta[row]} | columns)


def with_seen(users: Any, seen: Any, row: Any, col: Any) -> Any:
    """Each user with each item that it has seen, and once alone; all lines of a user in one partition. :func:`seen_by_user` reads it.

    A left join would leave gaps beside users without items, and make floats, which round, of integers. So the lines of users alone hold
    some value of the items' type, and one more column tells them apart.
    """
    import dask.dataframe as dd  # noqa: PLC0415 - an extra
    from dask.dataframe.utils import meta_nonempty  # noqa: PLC0415 - as above

    require_columns(seen, row=row, col=col)
    once, some = users[[row]].drop_duplicates(), meta_nonempty(seen._meta[[col]])[col].iloc[:1]
    pairs = once.merge(seen[[row, col]], on=row)
    parts = [
        frame.map_partitions(_marked, row, col, item, meta=_marked(frame._meta, row, col, item))
        for frame, item in ((pairs, None), (once, some))
    ]
    return dd.concat(parts).shuffle(on=row)


def _marked(frame: Any, row: Any, col: Any, some: Any) -> Any:
    """Pairs of a user and an item, or users alone (beside some item), with the column that says which."""
    import pandas as pd  # noqa: PLC0415 - in the worker

    items = (
        frame[col]
        if some is None
        else pd.Series(some.iloc[[0] * len(frame)].array, index=frame.index)
    )
    return pd.DataFrame({row: frame[row], col: items, _mark(row, col): some is None})


def _mark(row: Any, col: Any) -> str:
    """A name that neither column has."""
    return f"{row!r} has seen {col!r}"


def seen_by_user(frame: Any, row: Any, col: Any) -> dict[Any, set[Any]]:
    """The users of a partition of :func:`with_seen`, each with its items."""
    seen: dict[Any, set[Any]] = {user: set() for user in frame[row].tolist()}
    for user, item, is_seen in zip(
        frame[row].tolist(), frame[col].tolist(), frame[_mark(row, col)].tolist(), strict=True
    ):
        if is_seen:
            seen[user].add(item)
    return seen


def warn_of_strangers(unknown: int, users: int) -> None:
    """Say that users are left out of an answer, where there are any."""
    if unknown:
        warn_user(
            f"{unknown} of the {users} users of a partition are unknown, and a model without biases has nothing to rank columns by for "
            "them: they have no lines in the answer; fit with bias=True, or leave them out",
            UnknownIdsWarning,
        )


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
    return dd.from_delayed(
        parts, meta=meta, divisions=frame.divisions if beside else None, verify_meta=False
    )


def require_columns(frame: Any, **names: Any) -> None:
    """Refuse what is not a Dask DataFrame with these columns."""
    if not hasattr(frame, "map_partitions"):
        raise TypeError(
            f"a Dask DataFrame is needed, got {type(frame).__name__}; the methods of the model take tables in memory"
        )
    for role, name in names.items():
        if name not in frame.columns:
            raise ValueError(
                f"{role}={name!r} is not a column of the data; it has {list(frame.columns)}"
            )


def _predicted(frame: Any, model: Any, row: Any, col: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - in the worker

    values = (
        model.predict(frame[row].tolist(), frame[col].tolist())
        if len(frame)
        else np.empty(0, model.row_factors_.dtype)
    )
    return pd.Series(values, index=frame.index, name="prediction")


def _scored(frame: Any, model: Any, row: Any, col: Any, value: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - in the worker

    if not len(frame):
        return pd.Series(np.empty(0), index=frame.index, name="outlier_score")
    entries = Observed.from_triplets(frame, row=row, col=col, value=value)
    scores = model.outlier_scores(entries)
    # from the order of rows and columns back to that of the frame
    order = np.lexsort(
        (_numbers(entries.column_ids, frame[col]), _numbers(entries.row_ids, frame[row]))
    )
    placed = np.empty(len(frame))
    placed[order] = scores
    return pd.Series(placed, index=frame.index, name="outlier_score")


def _numbers(ids: Any, column: Any) -> Any:
    place = {key: k for k, key in enumerate(ids)}
    return [place[key] for key in column.tolist()]


def _recommended(frame: Any, model: Any, n: int, row: Any, sample: Any) -> Any:
    users = frame[row].tolist()
    return _ranked(model, [(user, set()) for user in users], n, row, sample)


def _recommended_unseen(frame: Any, model: Any, n: int, row: Any, col: Any, sample: Any) -> Any:
    return _ranked(model, list(seen_by_user(frame, row, col).items()), n, row, sample)


def _ranked(
    model: Any, questions: list[tuple[Any, set[Any]]], n: int, row: Any, sample: Any
) -> Any:
    """For users, each with what it has seen, the n best of what is left when that is taken out of that many more."""
    if not model.has_bias_ and questions:
        known = model._numbers("row", [user for user, _ in questions], "users") != UNKNOWN
        warn_of_strangers(int((~known).sum()), len(known))
        questions = [
            question
            for question, is_known in zip(questions, known.tolist(), strict=True)
            if is_known
        ]
    lines: list[tuple[Any, int, Any, float]] = []
    most = n + max((len(seen) for _, seen in questions), default=0)
    items, scores = (
        model.recommend([user for user, _ in questions], most, exclude_seen=False)
        if questions
        else ((), ())
    )
    for (user, seen), ranked, values in zip(questions, items, scores, strict=True):
        left = [
            (item, score)
            for item, score in zip(ranked, values, strict=True)
            if item not in seen and not np.isnan(score)
        ]
        lines += [
            (user, place, item, float(score)) for place, (item, score) in enumerate(left[:n], 1)
        ]
    return ranking(lines, row, sample)


def ranking(lines: list[tuple[Any, int, Any, float]], row: Any, sample: Any) -> Any:
    """Lines of user, place, item and prediction as a table."""
    import pandas as pd  # noqa: PLC0415 - in the worker

    if not lines:  # pandas could not tell of what type the columns are
        return sample
    return pd.DataFrame(lines, columns=list(sample.columns)).astype(
        {row: sample[row].dtype, "place": "int64", "prediction": "float64"}
    )
