"""Hashes of ids: equal for equal ids, different for different ones, the same in every process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest

from robustmf.data.hashing import hash_ids


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, np.int32(1), np.float64(1.0), Decimal(1)],
        [-3, -3.0, Decimal("-3.0")],
        [(1, 2.0), (1.0, 2)],
        [
            datetime(2020, 1, 2, 12, tzinfo=UTC),
            datetime(2020, 1, 2, 14, tzinfo=timezone(timedelta(hours=2))),
        ],
    ],
    ids=str,
)
def test_equal_ids_have_equal_hashes(equal):
    assert len(set(equal)) == 1
    assert len({int(hash_ids([key])[0]) for key in equal}) == 1


def test_different_ids_have_different_hashes():
    keys = [
        0,
        1,
        -1,
        0.5,
        "a",
        "b",
        "",
        b"a",
        (1, "a"),
        ("a", 1),
        datetime(2020, 1, 2),
        1.5,
        "1.5x",
    ]
    assert len(set(hash_ids(keys).tolist())) == len(keys)


def test_arrays_and_lists_of_integers_have_the_same_hashes():
    keys = [0, 1, -5, 2**62]
    np.testing.assert_array_equal(hash_ids(np.array(keys)), hash_ids(keys))


def test_hashes_are_those_of_earlier_releases():
    """They select the entries that are held out, also when a fit is resumed."""
    assert [hex(value) for value in hash_ids([0, 7, "Dune", 0.5]).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x63cbe1e459320dd7",
        "0xcaada662a9f0883f",
        "0x330ba5e565fe3869",
    ]
