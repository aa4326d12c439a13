"""The vocabulary of ids: encoding, look-up, unknown ids, merging of parts."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustmf import Observed
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import (
    Vocabulary,
    as_list,
    compact_ids,
    merge_ids,
    take_ids,
)
from robustmf.data.tables import id_column

TYPES = {
    "float16": (np.array([2.5, -0.0, 0.0, 2.5], np.float16), [1, 0, 0, 1]),
    "wide integers": ([10**15, -(10**15), 3, 3], [2, 0, 1, 1]),
    "beyond 64 bits": ([2**70, -1, 2**63, 2**63 + 1], [3, 0, 1, 2]),
    "text of various lengths": (["b" * 100_000, "", "a\0", "a"], [3, 0, 2, 1]),
    "text that is not Unicode": (["\udcff", "a"], [1, 0]),
    "unsigned": (np.array([2**64 - 1, 5, 2**63], np.uint64), [2, 0, 1]),
    "unsigned, narrow range": (np.array([2**64 - 1, 2**64 - 3], np.uint64), [1, 0]),
    "small integers": (np.array([127, -128, 0], np.int8), [2, 0, 1]),
    "floats": ([0.5, -0.0, 0.0, -3.5], [2, 1, 1, 0]),
    "bool": (np.array([True, False]), [1, 0]),
    "bytes": (np.array([b"b", b"a"]), [1, 0]),
    "dates": (pl.Series([datetime.date(2020, 1, 2), datetime.date(2019, 1, 1)]), [1, 0]),
    "NumPy dates": (np.array(["2020-01-02", "2019-01-01"], "M8[D]"), [1, 0]),
    "decimals": ([Decimal("1.5"), Decimal("0.5")], [1, 0]),
    "tuples": ([("b", 1), ("a", 2), ("b", 1)], [1, 0, 1]),
    "mixed": ([("b", 1), "x", 7, "x"], [0, 1, 2, 1]),
    "equal ids of different types": ([1, 1.0, 2], [0, 0, 1]),
}


@pytest.mark.parametrize("name", TYPES)
def test_ids_of_any_type_are_indexed_in_ascending_order(name):
    ids, expected = TYPES[name]
    observed = Observed.from_triplets(
        row=ids, col=list(range(len(expected))), value=[1.0] * len(expected)
    )
    order = np.argsort(observed.rows.indices)
    assert observed.rows.group_of_entry()[order].tolist() == expected
    given = [ids[k] for k in range(len(expected))]
    assert [observed.row_ids[k] for k in expected] == [
        one.item() if hasattr(one, "item") else one for one in given
    ]


@given(
    st.lists(st.integers(-(2**40), 2**40) | st.integers(-3, 3), min_size=1, max_size=50),
    st.sampled_from([np.int64, np.float64]),
)
@settings(deadline=None, max_examples=60)
def test_encoding_by_counting_and_by_hashing_agrees_with_numpy_unique(values, dtype):
    array = np.array(values, dtype)
    indices, vocabulary = Vocabulary.encode(array, "row")
    unique, inverse = np.unique(array, return_inverse=True)
    assert vocabulary.ids == unique.tolist()
    assert indices.tolist() == inverse.tolist()


def test_indices_of_known_and_unknown_ids():
    vocabulary = Vocabulary(["a", "b", "c"], "row")
    assert vocabulary.indices("b") == 1
    assert vocabulary.indices(["c", "x", "a"]).tolist() == [2, UNKNOWN, 0]
    assert vocabulary.indices(np.array([["a"], ["c"]])).tolist() == [[0], [2]]
    with pytest.raises(TypeError, match=r"row ids were of type str in fit .*got 7 of type int"):
        vocabulary.indices(["a", 7])
    with pytest.raises(ValueError, match="row ids must not be missing, got None at position 1"):
        vocabulary.indices(["a", None])
    assert Vocabulary([("a", 1), ("a", 2)], "row").indices(("a", 2)) == 1, "a tuple is one id"
    assert Vocabulary([1, 2], "column").indices([2.0, np.int8(1)]).tolist() == [1, 0]


@pytest.mark.parametrize("unit", ["M", "D", "h", "s", "us", "ns"])
@pytest.mark.parametrize("form", [np.asarray, list, pl.Series])
def test_times_of_numpy_are_found_in_any_form(unit, form):
    """Those with nanoseconds were integers, and dates in an array were looked up as times."""
    times = np.arange(np.datetime64("2020-01", unit), np.datetime64("2020-01", unit) + 3)
    if form is pl.Series and unit != "ns":
        times = times.astype("M8[us]")
    vocabulary = Vocabulary.encode(id_column(form(times)), "row")[1]
    assert all(isinstance(one, datetime.date) for one in vocabulary.ids)
    for query in (times, list(times), vocabulary.ids):
        assert vocabulary.indices(query).tolist() == [0, 1, 2]
    assert vocabulary.indices(times[1]) == 1
    assert vocabulary.indices([*times, times[0] - 1]).tolist() == [0, 1, 2, UNKNOWN]
    with pytest.raises(ValueError, match="must not be missing"):
        vocabulary.indices(np.array(["NaT"], "M8[s]"))


def test_dates_of_numpy_are_found_among_times():
    vocabulary = Vocabulary([datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 1)], "row")
    assert vocabulary.indices(np.array(["2020-01-01", "2020-01-02"], "M8[D]")).tolist() == [1, 0]


def test_times_that_python_cannot_tell_apart_are_refused():
    times = pa.array([1, 2, 1000], pa.time64("ns"))
    with pytest.raises(ValueError, match="row ids hold times with nanoseconds"):
        Vocabulary.encode(times, "row")
    assert Vocabulary.encode(times[2:], "row")[1].ids == [datetime.time(microsecond=1)]


@pytest.mark.parametrize("part", [None, float("nan"), np.datetime64("NaT"), ("b", None)])
def test_a_tuple_with_a_missing_part_is_missing(part):
    """It could not be looked up, and a model file with it could not be loaded."""
    with pytest.raises(ValueError, match="row ids must not be missing"):
        Vocabulary.encode([("a", 1), ("a", part)], "row")


def test_the_table_for_look_ups_is_built_on_first_use_and_not_pickled():
    vocabulary = Vocabulary([f"id {k}" for k in range(1000)], "row")
    before = pickle.dumps(vocabulary)
    assert vocabulary.indices("id 7") == 7
    assert pickle.dumps(vocabulary) == before
    assert pickle.loads(before).indices(["id 999", "none"]).tolist() == [999, UNKNOWN]


def test_an_extended_vocabulary_appends_unknown_ids():
    vocabulary = Vocabulary(["b", "a"], "row")
    indices, extended = vocabulary.extended(["c", "a", "d"])
    assert indices.tolist() == [2, 1, 3]
    assert extended.ids == ["b", "a", "c", "d"]
    assert vocabulary.ids == ["b", "a"]


@pytest.mark.parametrize(
    "parts", [[[3, 1], [2, 3]], [["b", "a"], ["c", "b"]], [[3, 1], ["c", 3]]], ids=str
)
def test_merged_parts_are_indexed_as_one_column(parts):
    compact = [compact_ids(part) for part in parts]
    indices, ids = merge_ids(compact, "row")
    every = [key for part in parts for key in part]
    assert as_list(take_ids(ids, indices)) == every
    assert len(ids) == len(set(every))


def test_integers_are_compact_and_others_are_not():
    assert compact_ids([1, 2]).dtype == np.int64
    assert compact_ids([1, 2**70]) == [1, 2**70]
    assert compact_ids([True, 2]) == [True, 2]


@pytest.mark.parametrize("ids", [[7, "7"], ["7", 7, "a"], [1.5, "1.5"], [True, "True"]])
def test_an_id_that_was_read_with_two_types_is_refused(ids):
    with pytest.raises(ValueError, match="an id of mixed types; convert the column to one type"):
        Vocabulary.encode(ids, "row")
