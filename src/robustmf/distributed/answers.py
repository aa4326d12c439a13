"""Predictions, scores and recommendations for Dask DataFrames, partition by partition.

The factors of a model are in memory, and it is sent to each worker once; or they are Parquet shards
(:class:`ShardedModel`). Then no task has all factors: the ids of a partition are split by block, as
entries were in the fit, and each block looks up its own ids and returns their factors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustmf.answers.recommendations import recommend_fitted
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.dask.loading import ids_by_block
from robustmf.data.columns import id_column
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import SIDE_NAMES, Ids, Side, Vocabulary, as_list, compact_ids, id_type
from robustmf.data.observed import Observed
from robustmf.distributed.shards import Manifest, Shard, read_manifest, read_shard
from robustmf.exceptions import UnknownIdsWarning, warn_user
from robustmf.model import FittedModel
from robustmf.outliers.noise import NoiseModel
from robustmf.outliers.scores import noise_model
from robustmf.outliers.scores import outlier_scores as score_entries
from robustmf.validation import UNBOUNDED, require_integer

Array = NDArray[np.floating[Any]]

#: Users, each with the items that it has seen.
Queries = Mapping[Any, set[Any]]

#: The best items of each user with their scores.
Best = Sequence[Sequence[tuple[Any, Any]]]

_delayed = partial(dask.delayed, pure=False)


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
    _require_columns(pairs, row=row, col=col)
    fitted = _sent(model)
    parts = [_delayed(_predict)(part, fitted, row, col) for part in pairs.to_delayed()]
    return _series(parts, "prediction", model.row_factors_.dtype, pairs)


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
    _require_columns(entries, row=row, col=col, value=value)
    fitted = _sent(model)
    noise = _delayed(noise_model)(fitted)
    parts = [
        _delayed(_score)(part, fitted, noise, row, col, value) for part in entries.to_delayed()
    ]
    return _series(parts, "outlier_score", np.float64, entries)


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
    fitted = _sent(model)
    items = (model.column_ids_ or [0])[:1]

    def rank(queries: Any, meta: Any) -> Any:
        return _delayed(_recommend)(queries, fitted, n, meta)

    return _rankings(rank, users, n, row, seen, col, items)


class ShardedModel:
    """A model fitted with ``Triplets(…, shards=folder)``, which predicts for Dask DataFrames.

    Every worker must be able to read the folder. An incomplete folder or a damaged file raises
    :class:`ModelFileError <robustmf.exceptions.ModelFileError>`.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    folder : Path
    shape : tuple of int
        Rows and columns of the fitted matrix.
    manifest : Manifest
        The parts of the model besides its factors, the noise model, and the size and checksum of
        each file.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # an absolute path: workers may have another working directory
        self.folder = Path(folder).resolve()
        self.manifest = read_manifest(self.folder)
        self.shape = self.manifest.shape
        self._dtype = self.manifest.model.factors.row_factors.dtype

    def __repr__(self) -> str:
        m, n = self.shape
        rank = self.manifest.model.factors.rank
        return f"ShardedModel({os.fspath(self.folder)!r}, {m} x {n}, rank {rank})"

    def predict(self, pairs: Any, *, row: Any, col: Any) -> Any:
        """Predict the pairs of a Dask DataFrame, as :func:`robustmf.backends.dask.predict`."""
        _require_columns(pairs, row=row, col=col)
        task = _delayed(partial(_predict_found, self.manifest))
        parts = [task(part, *self._found(part, row, col)) for part in pairs.to_delayed()]
        return _series(parts, "prediction", self._dtype, pairs)

    def outlier_scores(self, entries: Any, *, row: Any, col: Any, value: Any) -> Any:
        """Score entries, as :func:`robustmf.backends.dask.outlier_scores`.

        All entries are treated as fitted ones.
        """
        _require_columns(entries, row=row, col=col, value=value)
        task = _delayed(partial(_score_found, self.manifest, (row, col, value)))
        parts = [task(part, *self._found(part, row, col)) for part in entries.to_delayed()]
        return _series(parts, "outlier_score", np.float64, entries)

    def recommend(
        self, users: Any, n: int = 10, *, row: Any, seen: Any = None, col: Any = None
    ) -> Any:
        """Recommend columns, exactly, as :func:`robustmf.backends.dask.recommend`."""
        file = next(file for file in self.manifest.files[1] if file.rows)
        items = as_list(read_shard(str(self.folder), file, self._dtype).ids)[:1]

        def rank(queries: Any, meta: Any) -> Any:
            found = self._look_up(0, queries)
            of_block = _delayed(partial(_rank_shard, self.manifest))
            best = [of_block(queries, found, shard, n) for shard in self._shards(1)]
            return _delayed(partial(_merge_ranks, self.manifest))(queries, found, best, n, meta)

        return _rankings(rank, users, n, row, seen, col, items)

    def _found(self, part: Any, *names: Any) -> list[Any]:
        """What the shards contain for the rows and columns of a partition."""
        return [self._look_up(side, part[name]) for side, name in enumerate(names)]

    def _look_up(self, side: int, ids: Any) -> Any:
        """What the shards of a side contain for a column of ids."""
        shards = self._shards(side)
        split = _delayed(_split_ids)(ids, SIDE_NAMES[side], len(shards))
        types = self.manifest.id_types[side]
        parts = [_delayed(_look_up)(split, shard, k, types) for k, shard in enumerate(shards)]
        return _delayed(_assemble)(split, parts)

    def _shards(self, side: int) -> list[Any]:
        read = dask.delayed(read_shard, pure=True)
        return [read(str(self.folder), file, self._dtype) for file in self.manifest.files[side]]


# --- Dask collections ---


def _require_columns(frame: Any, **names: Any) -> None:
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


def _sent(model: Any) -> Any:
    """The fitted model as one key of the graph, not a copy in every task."""
    return _delayed(model._model(), traverse=False)


def _series(parts: list[Any], name: str, dtype: Any, frame: Any) -> Any:
    """Delayed partitions as a Dask Series with the divisions of ``frame``."""
    divisions = frame.divisions if frame.known_divisions else None
    meta = pd.Series([], name=name, dtype=dtype)
    return dd.from_delayed(parts, meta=meta, divisions=divisions, verify_meta=False)


def _rankings(
    rank: Callable[[Any, Any], Any], users: Any, n: int, row: Any, seen: Any, col: Any, items: Any
) -> Any:
    """The result of :func:`recommend`; ``items`` is a sequence of the items' type.

    ``rank`` makes a delayed table from delayed queries and an empty table.
    """
    require_integer("n", n, 1)
    queries = _queries(users, row, seen, col)
    columns = {
        "position": pd.Series([], dtype="int64"),
        "item": pd.Series(items).iloc[:0],
        "prediction": pd.Series([], dtype="float64"),
    }
    meta = pd.DataFrame({row: users._meta[row]} | columns)
    return dd.from_delayed([rank(one, meta) for one in queries], meta=meta, verify_meta=False)


def _queries(users: Any, row: Any, seen: Any, col: Any) -> list[Any]:
    """Delayed queries for each partition of users."""
    _require_columns(users, row=row)
    task = _delayed(_queries_in)
    frame = users[[row]]
    if seen is None:
        return [task(part, row) for part in frame.to_delayed()]
    _require_columns(seen, row=row, col=col)
    frame = frame.drop_duplicates()
    # an inner join: missing items of a left join would convert integers to floats, which round
    pairs = frame.merge(seen[[row, col]], on=row).astype({row: frame.dtypes[row]})
    # partitions by the same hash of the same column: a user's items are where the user is
    n = frame.npartitions + pairs.npartitions
    frame, pairs = (one.shuffle(on=row, npartitions=n) for one in (frame, pairs))
    partitions = zip(frame.to_delayed(), pairs.to_delayed(), strict=True)
    return [task(part, row, of_part, col) for part, of_part in partitions]


def _queries_in(frame: Any, row: Any, pairs: Any = None, col: Any = None) -> Queries:
    """The users of a partition, each with its items among the pairs of users and items."""
    queries: Queries = {user: set() for user in frame[row].tolist()}
    if pairs is not None:
        for user, item in zip(pairs[row].tolist(), pairs[col].tolist(), strict=True):
            queries[user].add(item)
    return queries


# --- Tasks on a partition, with a model in memory ---


def _predict(frame: Any, model: FittedModel, row: Any, col: Any) -> Any:
    values = model.predict(frame[row].tolist(), frame[col].tolist())
    return pd.Series(values, index=frame.index, name="prediction")


def _score(
    frame: Any, model: FittedModel, noise: NoiseModel, row: Any, col: Any, value: Any
) -> Any:
    if not len(frame):
        return pd.Series(np.empty(0), index=frame.index, name="outlier_score")
    entries: Any = Observed.from_triplets(frame, row=row, col=col, value=value)
    scores = score_entries(model, entries, rows="fitted", attacks=False, noise=noise)
    return entries.form.entries(scores, "outlier_score", entries)  # in the order of the frame


def _recommend(queries: Queries, model: FittedModel, n: int, meta: Any) -> Any:
    """The n best columns per user, as a table."""
    if queries and not model.factors.has_bias:
        known = model.indices("row", list(queries), "users") != UNKNOWN
        _warn_of_unknown_users(known)
        items = zip(queries.items(), known.tolist(), strict=True)
        queries = dict(query for query, is_known in items if is_known)
    if not queries:
        return meta
    return _ranking_table(queries, _best_unseen(queries, model, n), meta)


def _best_unseen(queries: Queries, model: FittedModel, n: int) -> Best:
    """The n best columns of each user, after the seen ones are removed from as many more."""
    n_ranked = min(n + max(map(len, queries.values())), model.shape[1])
    ranked = recommend_fitted(model, list(queries), n_ranked, exclude_seen=False)
    return [
        [
            (item, score)
            for item, score in zip(items, scores, strict=True)
            if item not in seen and not np.isnan(score)
        ][:n]
        for items, scores, seen in zip(*ranked, queries.values(), strict=True)
    ]


def _ranking_table(queries: Queries, best: Best, meta: Any) -> Any:
    """The best items of each user as a table with the columns of ``meta``."""
    lines = [
        (user, position, item, float(score))
        for user, of_user in zip(queries, best, strict=True)
        for position, (item, score) in enumerate(of_user, 1)
    ]
    if not lines:  # pandas could not infer the types of the columns
        return meta
    types = meta.dtypes.drop("item").to_dict()
    return pd.DataFrame(lines, columns=list(meta.columns)).astype(types)


def _warn_of_unknown_users(known: NDArray[np.bool_]) -> None:
    """Warn of users that are absent from a result, if there are any."""
    if not known.all():
        warn_user(
            f"{int((~known).sum())} of the {len(known)} users of a partition are unknown, and a "
            "model without biases cannot rank columns for them: they are absent from the result; "
            "fit with bias=True, or leave them out",
            UnknownIdsWarning,
        )


# --- Tasks on a partition, with shards ---


@dataclass(frozen=True)
class Found(Shard):
    """The distinct ids of one side in a partition; all are zero where an id is not ``known``.

    ``place`` is the index of each row's id among them.
    """

    known: NDArray[np.bool_]
    place: NDArray[np.intp]

    @property
    def index(self) -> NDArray[np.intp]:
        """The index of each row's id, ``UNKNOWN`` where it is unknown."""
        return np.where(self.known[self.place], self.place, UNKNOWN)


#: The distinct ids of one side in a partition by block, and the place of each row's id in them.
Split = tuple[list[Ids], NDArray[np.intp]]


def _split_ids(ids: Any, side: Side, n_blocks: int) -> Split:
    index, vocabulary = Vocabulary.encode(id_column(ids) if len(ids) else [], side)
    by_block, position = ids_by_block(compact_ids(vocabulary.ids), n_blocks)
    return by_block, position[index]


def _look_up(split: Split, shard: Shard, block: int, types: Sequence[str]) -> Any:
    """Factors, biases and counts of the ids of a block, and which of them are known."""
    ids = as_list(split[0][block])
    index = np.fromiter((shard.index_of.get(key, UNKNOWN) for key in ids), np.intp, count=len(ids))
    known = index != UNKNOWN
    for k in np.flatnonzero(~known).tolist():
        if id_type(ids[k]).__name__ not in types:
            raise TypeError(
                f"ids were of type {' or '.join(types)} in fit, got {ids[k]!r} of type "
                f"{type(ids[k]).__name__}"
            )

    def take(array: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((len(index), *array.shape[1:]), array.dtype)
        out[known] = array[index[known]]
        return out

    return take(shard.factors), take(shard.bias), take(shard.counts), known


def _assemble(split: Split, parts: Sequence[Any]) -> Found:
    """What the blocks have found."""
    ids, place = split
    arrays = (np.concatenate(of_blocks) for of_blocks in zip(*parts, strict=True))
    every = [key for of_block in ids for key in as_list(of_block)]
    factors, bias, counts, known = arrays
    return Found(every, factors, bias, counts, known, place)


def _predict_found(manifest: Manifest, frame: Any, rows: Found, columns: Found) -> Any:
    values = manifest.model_of(rows, columns).predict_pairs(rows.index, columns.index)
    return pd.Series(values, index=frame.index, name="prediction")


def _score_found(
    manifest: Manifest, names: tuple[Any, Any, Any], frame: Any, rows: Found, columns: Found
) -> Any:
    unknown = (rows.index == UNKNOWN) | (columns.index == UNKNOWN)
    if unknown.any():
        raise ValueError(
            f"the data have {int(unknown.sum())} entries in rows or columns that the fit did not "
            "know; leave them out"
        )
    sides = (rows, columns)
    return _score(frame, manifest.model_of(*sides), manifest.noise_of(*sides), *names)


@one_blas_thread()
def _rank_shard(manifest: Manifest, queries: Queries, users: Found, shard: Shard, n: int) -> Best:
    """The n best unseen columns of one block for each user, without the user's bias."""
    if not queries or not len(shard.factors):
        return [[] for _ in queries]
    # clipped predictions, and rounded sums with the bias, may be equal
    users = replace(users, bias=np.zeros_like(users.bias))
    model = replace(manifest.model_of(users, shard), bounds=UNBOUNDED)
    return _best_unseen(queries, model, n)


def _merge_ranks(
    manifest: Manifest, queries: Queries, users: Found, blocks: Sequence[Best], n: int, meta: Any
) -> Any:
    """The n best columns of all blocks, as a table."""
    model = manifest.model
    ranked = users.known[users.place] | model.factors.has_bias
    _warn_of_unknown_users(ranked)
    best: list[list[tuple[Any, Any]]] = []
    for k, bias in enumerate(users.bias[users.place]):
        candidates = [one for block in blocks for one in block[k] if ranked[k]]
        candidates.sort(key=lambda one: (-one[1], one[0]))
        scores = model.clip(np.array([score + bias for _, score in candidates[:n]]))
        best.append([(item, score) for (item, _), score in zip(candidates, scores, strict=False)])
    return _ranking_table(queries, best, meta)
