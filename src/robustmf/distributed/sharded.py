"""Predictions of a model whose factors are Parquet shards, for Dask DataFrames.

No task has all factors: the ids of a partition are split by block, as entries were in the fit; each
block looks up its own ids and returns their factors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import block_of
from robustmf.backends.dask.shards import SIDES, Shard, read_manifest, read_shard
from robustmf.data.factorization import UNKNOWN, Factorization
from robustmf.data.ids import (
    SIDE_NAMES,
    Ids,
    Side,
    Vocabulary,
    as_list,
    compact_ids,
    id_type,
    take_ids,
)
from robustmf.data.observed import Observed
from robustmf.data.ranking import top_n
from robustmf.data.tables import id_column, triplet_columns
from robustmf.distributed.answers import (
    collect,
    empty_series,
    join_seen,
    queries_in,
    ranking_meta,
    ranking_table,
    require_columns,
    warn_of_unknown_users,
)
from robustmf.distributed.noise import noise_of
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]
Facts = Mapping[str, Any]
Queries = Mapping[Any, set[Any]]


@dataclass(frozen=True)
class SplitIds:
    """The ids of one side in a partition, by block.

    ``index`` is the index of each line's id among the distinct ids; ``positions`` are those of the
    ids of each block.
    """

    index: NDArray[Any]
    ids: list[Ids]
    positions: list[NDArray[np.intp]]


@dataclass(frozen=True)
class Found:
    """Factors, biases and counts of ids, zero where an id is unknown."""

    factors: Array
    bias: Array
    counts: NDArray[np.int64]
    known: NDArray[np.bool_]


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
    facts : dict
        The manifest: rank, center, λ, θ, the noise distribution, and the rows and checksum of each
        file.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # an absolute path: workers may have another working directory
        self.folder = Path(folder).resolve()
        self.facts = read_manifest(self.folder)
        self.shape: tuple[int, int] = tuple(self.facts["shape"])

    def __repr__(self) -> str:
        m, n = self.shape
        return f"ShardedModel({os.fspath(self.folder)!r}, {m} x {n}, rank {self.facts['rank']})"

    def predict(self, pairs: Any, *, row: Any, col: Any) -> Any:
        """Predict the pairs of a Dask DataFrame, as :func:`robustmf.backends.dask.predict`."""
        require_columns(pairs, row=row, col=col)
        meta = empty_series("prediction", self.facts["dtype"])
        return self._map_partitions(pairs, partial(_predict, self.facts), (row, col), meta)

    def outlier_scores(self, entries: Any, *, row: Any, col: Any, value: Any) -> Any:
        """Score entries, as :func:`robustmf.backends.dask.outlier_scores`.

        All entries are treated as fitted ones.
        """
        require_columns(entries, row=row, col=col, value=value)
        score = partial(_score, self.facts, (row, col, value))
        meta = empty_series("outlier_score", np.float64)
        return self._map_partitions(entries, score, (row, col), meta)

    def recommend(
        self, users: Any, n: int = 10, *, row: Any, seen: Any = None, col: Any = None
    ) -> Any:
        """Recommend columns, exactly, as :func:`robustmf.backends.dask.recommend`."""
        require_columns(users, row=row)
        require_integer("n", n, 1)
        meta = ranking_meta(users, row, self._one_item())
        frame = users[[row]] if seen is None else join_seen(users, seen, row, col)
        parts = []
        for part in frame.to_delayed():
            queries = _delayed(queries_in)(part, row, None if seen is None else col)
            found = self._look_up(0, _delayed(list)(queries))
            best = [
                _delayed(_rank_shard)(self.facts, queries, found, shard, n)
                for shard in self._shards(1)
            ]
            parts.append(_delayed(_merge_ranks)(self.facts, queries, found, best, n, row, meta))
        return collect(parts, meta, frame)

    def _map_partitions(self, frame: Any, function: Any, names: tuple[Any, Any], meta: Any) -> Any:
        """``function(partition, rows, columns)`` of every partition, with what is found of each."""
        parts = [
            _delayed(function)(
                part,
                *(
                    self._look_up(side, _delayed(_id_column)(part, name))
                    for side, name in enumerate(names)
                ),
            )
            for part in frame.to_delayed()
        ]
        return collect(parts, meta, frame)

    def _look_up(self, side: int, ids: Any) -> Any:
        """What the shards of a side contain for a column of ids."""
        shards = self._shards(side)
        split = _delayed(_split_ids)(ids, SIDE_NAMES[side], len(shards))
        types = self.facts["id_types"][side]
        parts = [_delayed(_look_up)(split, shard, k, types) for k, shard in enumerate(shards)]
        return _delayed(_assemble)(split, parts)

    def _shards(self, side: int) -> list[Any]:
        from dask import delayed  # noqa: PLC0415 - Dask is an extra

        read = delayed(read_shard, pure=True)
        files = self.facts["files"][SIDES[side]]
        return [read(str(self.folder), file, self.facts["dtype"]) for file in files]

    def _one_item(self) -> list[Any]:
        """The id of one column."""
        file = next(file for file in self.facts["files"]["columns"] if file["rows"])
        return as_list(read_shard(str(self.folder), file, self.facts["dtype"]).ids)[:1]


def _delayed(function: Any) -> Any:
    from dask import delayed  # noqa: PLC0415 - Dask is an extra

    return delayed(function, pure=False)


def _id_column(frame: Any, name: Any) -> Any:
    return id_column(frame[name])


def _split_ids(ids: Any, side: Side, n_blocks: int) -> SplitIds:
    if not len(ids):
        none = np.empty(0, np.intp)
        return SplitIds(none, [[]] * n_blocks, [none] * n_blocks)
    index, vocabulary = Vocabulary.encode(ids, side)
    distinct = compact_ids(vocabulary.ids)
    block = block_of(distinct, n_blocks)
    positions = [np.flatnonzero(block == k) for k in range(n_blocks)]
    return SplitIds(index, [take_ids(distinct, one) for one in positions], positions)


def _look_up(split: SplitIds, shard: Shard, block: int, types: Sequence[str]) -> Found:
    ids = as_list(split.ids[block])
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

    return Found(take(shard.factors), take(shard.bias), take(shard.counts), known)


def _assemble(split: SplitIds, parts: Sequence[Found]) -> Found:
    """What the blocks have found, line by line."""
    order = np.concatenate(split.positions)
    inverse = np.empty(len(order), np.intp)
    inverse[order] = np.arange(len(order))
    lines = inverse[split.index]
    names = ("factors", "bias", "counts", "known")
    return Found(*(np.concatenate([getattr(one, name) for one in parts])[lines] for name in names))


def _bounds(facts: Facts) -> tuple[float, float]:
    low, high = facts["bounds"] or (-np.inf, np.inf)
    return low, high


def _predict_lines(facts: Facts, rows: Found, columns: Found) -> Array:
    """One prediction per line."""
    model = Factorization(rows.factors, columns.factors, facts["center"], rows.bias, columns.bias)
    i, j = (np.where(one.known, np.arange(len(one.known)), UNKNOWN) for one in (rows, columns))
    return np.clip(model.predict_pairs(i, j, fallback=facts["median"]), *_bounds(facts))


def _predict(facts: Facts, frame: Any, rows: Found, columns: Found) -> Any:
    import pandas as pd  # noqa: PLC0415 - imported in the worker

    values: Array = np.empty(0, facts["dtype"])
    if len(frame):
        values = _predict_lines(facts, rows, columns)
    return pd.Series(values, index=frame.index, name="prediction")


def _score(
    facts: Facts, names: tuple[Any, Any, Any], frame: Any, rows: Found, columns: Found
) -> Any:
    import pandas as pd  # noqa: PLC0415 - imported in the worker

    if not len(frame):
        return pd.Series(np.empty(0), index=frame.index, name="outlier_score")
    row, col, value = triplet_columns(frame, *names)
    Observed.from_triplets(row=row, col=col, value=value)  # raises for entries that are not valid
    unknown = ~(rows.known & columns.known)
    if unknown.any():
        raise ValueError(
            f"the data have {int(unknown.sum())} entries in rows or columns that the fit did not "
            "know; leave them out"
        )
    noise = noise_of(facts, rows.factors, columns.factors, rows.counts, columns.counts)
    lines = np.arange(len(frame))
    residual = value - _predict_lines(facts, rows, columns)
    deviations = noise.deviations(lines, lines, np.ones(len(frame), bool))
    scores = noise.distribution.two_sided(residual / deviations)
    return pd.Series(scores, index=frame.index, name="outlier_score")


def _rank_shard(
    facts: Facts, queries: Queries, users: Found, shard: Shard, n: int
) -> list[list[tuple[Any, float]]]:
    """The n best unseen columns of one block for each user, without the user's bias."""
    if not queries or not len(shard.factors):
        return [[] for _ in queries]
    offsets = shard.bias + shard.bias.dtype.type(facts["center"] or 0.0)
    n_ranked = min(n + max(map(len, queries.values())), len(offsets))
    ranked = top_n(users.factors, shard.factors, offsets, n_ranked, None)
    ids = as_list(shard.ids)
    best = []
    for indices, scores, seen in zip(
        ranked.items.tolist(), ranked.scores, queries.values(), strict=True
    ):
        pairs = zip(indices, scores, strict=True)
        best.append([(ids[k], float(score)) for k, score in pairs if ids[k] not in seen][:n])
    return best


def _merge_ranks(
    facts: Facts,
    queries: Queries,
    users: Found,
    best: Sequence[Sequence[Sequence[tuple[Any, float]]]],
    n: int,
    row: Any,
    meta: Any,
) -> Any:
    """The n best columns of all blocks, as a table."""
    ranked = users.known | (facts["center"] is not None)
    warn_of_unknown_users(int((~ranked).sum()), len(ranked))
    lines: list[tuple[Any, int, Any, float]] = []
    for k, user in enumerate(queries):
        if not ranked[k]:
            continue
        candidates = [one for of_block in best for one in of_block[k]]
        try:
            candidates.sort(key=lambda one: (-one[1], one[0]))
        except TypeError:  # ids without an order: equal predictions stay in the order of the blocks
            candidates.sort(key=lambda one: -one[1])
        for position, (item, score) in enumerate(candidates[:n], 1):
            prediction = float(np.clip(score + users.bias[k], *_bounds(facts)))
            lines.append((user, position, item, prediction))
    return ranking_table(lines, row, meta)
