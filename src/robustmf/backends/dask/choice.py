"""Which entries are set aside, on a cluster: those that one machine would choose. Row and column blocks agree by the hashes of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import Gathered
from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.medians import of_ranks
from robustmf.data.hashing import Hashes, hash_ids
from robustmf.data.holdout import (
    entry_keys,
    holdout_size,
    largest_keys,
    mark_retained,
    seeded,
    select_up_to,
)


def chosen(
    connection: Connection, gathered: Sequence[Sequence[Any]], places: Sequence[Sequence[Sequence[Any]]],
    fraction: float, n_entries: int, seed: int,
) -> list[list[Any]]:  # fmt: skip
    """For every block of both sides a future of which of its entries are set aside.

    ``places`` say where the ids that each block wants stand in the blocks of the other side.
    """
    submit = connection.submit
    keys = [
        [submit(_keys, block, side, seed) for block in of_side]
        for side, of_side in enumerate(gathered)
    ]
    largest = [
        [submit(_largest, *block) for block in zip(*of_side, strict=True)]
        for of_side in zip(gathered, keys, strict=True)
    ]
    marked = []
    for side, others in ((0, largest[1]), (1, largest[0])):
        met = [
            [submit(_at, other, at) for other, at in zip(others, of_block, strict=True)]
            for of_block in places[side]
        ]
        blocks = zip(gathered[side], keys[side], largest[side], met, strict=True)
        marked.append([submit(_marked, *block) for block in blocks])
    (last,) = of_ranks(
        connection,
        marked[0],
        np.dtype(np.uint64),
        lambda _: [holdout_size(fraction, n_entries) - 1],
    )
    return [[submit(select_up_to, of_block, last) for of_block in of_side] for of_side in marked]


def _keys(block: Gathered, side: int, seed: int) -> Hashes:
    codes = [hash_ids(block.ids), np.concatenate([hash_ids(ids) for ids in block.wanted])]
    codes[side] = seeded(codes[side], seed)
    return entry_keys(block.rows, codes[0], codes[1], block.weights)


def _largest(block: Gathered, keys: Hashes) -> Hashes:
    return largest_keys(keys, block.rows.group_of_entry(), len(block.rows))


def _at(values: Hashes, places: NDArray[np.int32]) -> Hashes:
    return values[places]


def _marked(
    block: Gathered, keys: Hashes, own_largest: Hashes, other_largest: Sequence[Hashes]
) -> Hashes:
    found = keys.copy()
    mark_retained(found, block.rows, own_largest, np.concatenate(other_largest))
    return found
