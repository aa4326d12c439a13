"""Answers of a model whose factors are Parquet shards: over Dask DataFrames, and never with all factors in one place.

A partition's ids are cut by the block that they belong to, as entries were in the fit; each block looks up its own and sends back the
factors of these alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.answers import (
    collected,
    ranking,
    ranking_sample,
    require_columns,
    seen_by_user,
    series,
    warn_of_strangers,
    with_seen,
)
from robustmf.backends.dask.noise import noise_of
from robustmf.backends.dask.shards import SIDES, Shard, read_manifest, read_shard
from robustmf.data.factorization import UNKNOWN, Factorization
from robustmf.data.hashing import hash_ids
from robustmf.data.ids import Ids, Vocabulary, as_list, compact_ids, id_type, take_ids
from robustmf.data.observed import Observed
from robustmf.data.ranking import top_n
from robustmf.data.tables import id_column, triplet_columns
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Asked:
    """The ids of one side in a partition: the number of each line's id, and of each block the ids and numbers that it is asked for."""

    numbers: NDArray[Any]
    ids: list[Ids]
    places: list[NDArray[np.intp]]


@dataclass(frozen=True)
class Found:
    """What is known of ids: factors, biases and entries in the fit (0 where an id is not known), and which are known."""

    factors: Array
    bias: Array
    counts: NDArray[np.int64]
    known: NDArray[np.bool_]


class ShardedModel:
    """A model fitted with ``Triplets(…, shards=folder)``: its answers over Dask DataFrames.

    Every worker must see the folder. A folder that is not complete, or a file in it that is not as it was written, is refused by name.

    Attributes
    ----------
    folder : Path
    shape : tuple of int
        Rows and columns of the fit.
    facts : dict
        The manifest: rank, center, λ, θ, the law of the noise, and of each file its rows and checksum.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()  # workers may have another working directory
        self.facts = read_manifest(self.folder)
        self.shape: tuple[int, int] = tuple(self.facts["shape"])

    def __repr__(self) -> str:
        m, n = self.shape
        return f"ShardedModel({os.fspath(self.folder)!r}, {m} x {n}, rank {self.facts['rank']})"

    def predict(self, pairs: Any, *, row: Any, col: Any) -> Any:
        """As :func:`robustmf.backends.dask.predict`; unknown ids as in :meth:`RobustMF.predict <robustmf.RobustMF.predict>`."""
        require_columns(pairs, row=row, col=col)
        return self._over(
            pairs,
            partial(_predicted, self.facts),
            (row, col),
            series("prediction", self.facts["dtype"]),
        )

    def outlier_scores(self, entries: Any, *, row: Any, col: Any, value: Any) -> Any:
        """As :func:`robustmf.backends.dask.outlier_scores`, with the same checks: all entries are taken for entries of the fit."""
        require_columns(entries, row=row, col=col, value=value)
        return self._over(
            entries,
            partial(_scored, self.facts, (row, col, value)),
            (row, col),
            series("outlier_score", np.float64),
        )

    def recommend(
        self, users: Any, n: int = 10, *, row: Any, seen: Any = None, col: Any = None
    ) -> Any:
        """As :func:`robustmf.backends.dask.recommend`: exact, a block of columns at a time."""
        from dask import delayed  # noqa: PLC0415 - an extra

        require_columns(users, row=row)
        require_integer("n", n, 1)
        shards, sample = self._shards(1), ranking_sample(users, row, self._some_items())
        frame = users[[row]] if seen is None else with_seen(users, seen, row, col)
        task = partial(delayed, pure=False)
        parts = []
        for part in frame.to_delayed():
            questions = task(_questions)(part, row, col if seen is not None else None)
            found = self._found(0, task(_users)(questions))
            best = [task(_best)(self.facts, questions, found, shard, n) for shard in shards]
            parts.append(task(_merged)(self.facts, questions, found, best, n, row, sample))
        return collected(parts, sample, frame)

    def _over(self, frame: Any, answer: Any, names: tuple[Any, Any], meta: Any) -> Any:
        """``answer(partition, rows found, columns found)`` of every partition."""
        from dask import delayed  # noqa: PLC0415 - an extra

        task = partial(delayed, pure=False)
        parts = [
            task(answer)(
                part,
                *(self._found(side, task(_column)(part, name)) for side, name in enumerate(names)),
            )
            for part in frame.to_delayed()
        ]
        return collected(parts, meta, frame)

    def _found(self, side: int, ids: Any) -> Any:
        """What the shards know of a column of ids."""
        from dask import delayed  # noqa: PLC0415 - an extra

        task, shards = partial(delayed, pure=False), self._shards(side)
        asked = task(_routed)(ids, ("row", "col")[side], len(shards))
        answers = [
            task(_looked_up)(asked, shard, k, self.facts["kinds"][side])
            for k, shard in enumerate(shards)
        ]
        return task(_assembled)(asked, answers)

    def _shards(self, side: int) -> list[Any]:
        from dask import delayed  # noqa: PLC0415 - an extra

        files = self.facts["files"][SIDES[side]]
        return [
            delayed(read_shard, pure=True)(str(self.folder), file, self.facts["dtype"])
            for file in files
        ]

    def _some_items(self) -> list[Any]:
        """One id of a column."""
        file = next(file for file in self.facts["files"]["columns"] if file["rows"])
        return as_list(read_shard(str(self.folder), file, self.facts["dtype"]).ids)[:1]


def _column(frame: Any, name: Any) -> Any:
    return id_column(frame[name])


def _routed(ids: Any, role: str, blocks: int) -> Asked:
    if not len(ids):
        return Asked(np.empty(0, np.intp), [[]] * blocks, [np.empty(0, np.intp)] * blocks)
    numbers, vocabulary = Vocabulary.encode(ids, role)
    known = compact_ids(vocabulary.ids)
    block_of = hash_ids(known) % np.uint64(blocks)
    places = [np.flatnonzero(block_of == block) for block in range(blocks)]
    return Asked(numbers, [take_ids(known, place) for place in places], places)


def _looked_up(asked: Asked, shard: Shard, block: int, kinds: Sequence[str]) -> Found:
    ids = as_list(asked.ids[block])
    place = np.fromiter((shard.place.get(key, UNKNOWN) for key in ids), np.intp, count=len(ids))
    known = place != UNKNOWN
    for k in np.flatnonzero(~known).tolist():
        if id_type(ids[k]).__name__ not in kinds:
            raise TypeError(
                f"ids were of type {' or '.join(kinds)} in fit, got {ids[k]!r} of type {type(ids[k]).__name__}"
            )
    factors, bias, counts = (
        _at(array, place, known) for array in (shard.factors, shard.bias, shard.counts)
    )
    return Found(factors, bias, counts, known)


def _at(array: NDArray[Any], place: NDArray[np.intp], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Rows of an array by their places; zeros where these are not known."""
    out = np.zeros((len(place), *array.shape[1:]), array.dtype)
    out[known] = array[place[known]]
    return out


def _assembled(asked: Asked, answers: Sequence[Found]) -> Found:
    """What the blocks know, line by line."""
    order = np.concatenate(asked.places)
    back = np.empty(len(order), np.intp)
    back[order] = np.arange(len(order))
    place = back[asked.numbers]
    return Found(
        *(
            np.concatenate([getattr(one, name) for one in answers])[place]
            for name in ("factors", "bias", "counts", "known")
        )
    )


def _at_lines(facts: dict[str, Any], rows: Found, columns: Found) -> Array:
    """One prediction a line."""
    factors = Factorization(rows.factors, columns.factors, facts["center"], rows.bias, columns.bias)
    i, j = (np.where(side.known, np.arange(len(side.known)), UNKNOWN) for side in (rows, columns))
    predicted = factors.predict_pairs(i, j, fallback=facts["median"])
    return np.clip(predicted, *(facts["bounds"] or (-np.inf, np.inf)))


def _predicted(facts: dict[str, Any], frame: Any, rows: Found, columns: Found) -> Any:
    import pandas as pd  # noqa: PLC0415 - in the worker

    values = _at_lines(facts, rows, columns) if len(frame) else np.empty(0, facts["dtype"])
    return pd.Series(values, index=frame.index, name="prediction")


def _scored(
    facts: dict[str, Any], names: tuple[Any, Any, Any], frame: Any, rows: Found, columns: Found
) -> Any:
    import pandas as pd  # noqa: PLC0415 - in the worker

    if not len(frame):
        return pd.Series(np.empty(0), index=frame.index, name="outlier_score")
    values = _checked_values(frame, *names)
    unknown = ~(rows.known & columns.known)
    if unknown.any():
        raise ValueError(
            f"the data have {int(unknown.sum())} entries in rows or columns that the fit did not know; leave them out"
        )
    noise, every = (
        noise_of(facts, rows.factors, columns.factors, rows.counts, columns.counts),
        np.arange(len(frame)),
    )
    residual = values - _at_lines(facts, rows, columns)
    scores = noise.distribution.two_sided(
        residual / noise.deviations(every, every, np.ones(len(frame), bool))
    )
    return pd.Series(scores, index=frame.index, name="outlier_score")


def _checked_values(frame: Any, row: Any, col: Any, value: Any) -> NDArray[Any]:
    """The values, line by line, of entries that could be fitted to: none missing or not finite, no place twice."""
    rows, columns, values = triplet_columns(frame, row, col, value)
    Observed.from_triplets(row=rows, col=columns, value=values)
    return values


def _questions(frame: Any, row: Any, col: Any) -> dict[Any, set[Any]]:
    """The users of a partition, each with the items that it has seen."""
    return (
        {user: set() for user in frame[row].tolist()}
        if col is None
        else seen_by_user(frame, row, col)
    )


def _users(questions: dict[Any, set[Any]]) -> list[Any]:
    return list(questions)


def _best(
    facts: dict[str, Any], questions: dict[Any, set[Any]], found: Found, shard: Shard, n: int
) -> list[list[tuple[Any, float]]]:
    """Of each user the n best columns of one block that it has not seen, without its own bias."""
    if not questions or not len(shard.factors):
        return [[] for _ in questions]
    shifts = shard.bias + shard.bias.dtype.type(facts["center"] or 0.0)
    most = n + max(map(len, questions.values()))
    ranked, ids = (
        top_n(found.factors, shard.factors, shifts, min(most, len(shifts)), None),
        as_list(shard.ids),
    )
    return [
        [
            (ids[k], float(score))
            for k, score in zip(numbers, scores, strict=True)
            if ids[k] not in seen
        ][:n]
        for numbers, scores, seen in zip(
            ranked.items.tolist(), ranked.scores, questions.values(), strict=True
        )
    ]


def _merged(
    facts: dict[str, Any], questions: dict[Any, set[Any]], found: Found, best: Sequence[Any], n: int, row: Any, sample: Any
) -> Any:  # fmt: skip
    """The n best of all blocks, as lines of a table."""
    answered = found.known | (facts["center"] is not None)
    warn_of_strangers(int((~answered).sum()), len(answered))
    lines: list[tuple[Any, int, Any, float]] = []
    low, high = facts["bounds"] or (-np.inf, np.inf)
    for k, user in enumerate(questions):
        if not answered[k]:
            continue
        every = [one for of_block in best for one in of_block[k]]
        try:
            every.sort(key=lambda one: (-one[1], one[0]))
        except (
            TypeError
        ):  # ids that cannot be compared: equal predictions stay in the order of the blocks
            every.sort(key=lambda one: -one[1])
        for place, (item, score) in enumerate(every[:n], 1):
            lines.append((user, place, item, float(np.clip(score + found.bias[k], low, high))))
    return ranking(lines, row, sample)
