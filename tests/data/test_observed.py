"""Observed entries: conversion of every accepted format, and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from robustmf import Observed
from robustmf.data.observed import as_observed


@st.composite
def coordinates(draw):
    m = draw(st.integers(1, 12))
    n = draw(st.integers(1, 12))
    positions = draw(st.lists(st.integers(0, m * n - 1), min_size=1, max_size=60, unique=True))
    i, j = np.divmod(np.array(positions), n)
    return i, j, np.arange(1.0, len(positions) + 1), (m, n)


@given(coordinates())
@settings(deadline=None, max_examples=60)
def test_rows_and_columns_hold_the_same_entries(entries):
    i, j, v, shape = entries
    observed = Observed.from_indices(i, j, v, shape)
    dense = np.full(shape, np.nan)
    dense[i, j] = v
    rows = observed.rows
    columns = observed.columns
    assert np.array_equal(rows.values, dense[~np.isnan(dense)])
    assert np.array_equal(columns.values, dense.T[~np.isnan(dense.T)])
    assert np.array_equal(columns.values, rows.values[observed.column_order])
    assert np.array_equal(dense[rows.group_of_entry(), rows.indices], rows.values)
    assert np.array_equal(dense[columns.indices, columns.group_of_entry()], columns.values)
    assert rows.pointers.dtype == columns.pointers.dtype == np.int64
    assert rows.indices.dtype == columns.indices.dtype == np.int32
    assert observed.transposed.shape == shape[::-1]
    assert observed.transposed.columns is rows


@pytest.mark.parametrize(
    "make", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.lil_array]
)
def test_sparse_formats_agree(make):
    dense = np.array([[1.0, 0, 2], [0, 0, 3]])
    observed = Observed.from_sparse(make(dense))
    assert observed.rows.values.tolist() == [1, 2, 3]
    assert observed.rows.indices.tolist() == [0, 2, 2]


def test_stored_zeros_are_observed_and_others_are_missing():
    X = sp.csr_array((np.array([0.0, 4.0]), (np.array([0, 1]), np.array([1, 0]))), shape=(2, 2))
    assert Observed.from_sparse(X).rows.values.tolist() == [0.0, 4.0]
    assert Observed.from_dense(np.array([[np.nan, 0.0], [4.0, np.nan]])).rows.values.tolist() == [
        0.0,
        4.0,
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("int8", "float64"),
        ("uint64", "float64"),
        ("float16", "float32"),
        ("bool", "float64"),
        (">f4", "float32"),
        ("longdouble", "float64"),
    ],
)
def test_precision(given, kept):
    observed = Observed.from_dense(np.ones((2, 3)).astype(given))
    assert observed.dtype == np.dtype(kept)
    assert observed.dtype.isnative


def test_input_is_not_modified_nor_aliased():
    i = np.array([1, 0])
    j = np.array([0, 1])
    v = np.array([5.0, 6.0])
    for array in (i, j, v):
        array.flags.writeable = False
    observed = Observed.from_indices(i, j, v)
    assert not np.shares_memory(observed.rows.values, v)


def test_triplets_with_ids_of_any_type():
    observed = Observed.from_triplets(
        row=["ann", ("b", 1), 7, "ann"], col=np.array(["x", "y", "x", "z"]), value=[1, 2, 3, 4]
    )
    assert observed.row_ids == ["ann", ("b", 1), 7]
    assert observed.column_ids == ["x", "y", "z"]
    np.testing.assert_array_equal(observed.to_sparse().toarray(), [[1, 0, 4], [0, 2, 0], [3, 0, 0]])


def test_triplets_from_tables():
    frame = pd.DataFrame({"user": [30, 10, 10], "item": ["b", "a", "b"], "stars": [1.0, 2.0, 3.0]})
    for table in (frame, frame.to_dict("list")):
        observed = Observed.from_triplets(table, row="user", col="item", value="stars")
        assert observed.row_ids == [10, 30]
        np.testing.assert_array_equal(observed.to_sparse().toarray(), [[2, 3], [0, 1]])
    with pytest.raises(
        ValueError,
        match=r"col='movie' is not a column of the data; it has \['user', 'item', 'stars'\]",
    ):
        Observed.from_triplets(frame, row="user", col="movie", value="stars")


def test_duplicates_by_policy():
    i = [0, 0, 1, 0]
    j = [1, 1, 0, 1]
    v = np.array([1.0, 2.0, 9.0, 6.0])
    with pytest.raises(ValueError, match=r"duplicate entry at row 0, column 1 .*duplicates='last'"):
        Observed.from_indices(i, j, v)
    assert Observed.from_indices(i, j, v, duplicates="last").rows.values.tolist() == [6.0, 9.0]
    mean = Observed.from_indices(i, j, v, duplicates="mean")
    assert mean.rows.values.tolist() == [3.0, 9.0]
    assert mean.columns.values.tolist() == [9.0, 3.0]
    with pytest.raises(ValueError, match="duplicates must be"):
        Observed.from_indices(i, j, v, duplicates="first")


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: Observed.from_indices([0], [0], [np.inf]),
            ValueError,
            "values must be finite, got inf",
        ),
        (
            lambda: Observed.from_indices([0], [0], [np.nan]),
            ValueError,
            "values must be finite, got nan",
        ),
        (
            lambda: Observed.from_dense([[1, -np.inf]]),
            ValueError,
            "values must be finite, got -inf",
        ),
        (
            lambda: Observed.from_indices([0, 5], [0, 0], [1, 2], (3, 3)),
            ValueError,
            r"rows must lie in 0 … 2 .*got 5",
        ),
        (
            lambda: Observed.from_indices([0, 1], [0, -1], [1, 2], (3, 3)),
            ValueError,
            r"columns must lie in 0 … 2 .*got -1",
        ),
        (
            lambda: Observed.from_indices([0.0], [0], [1]),
            TypeError,
            "rows must be an array of integers, got dtype float64",
        ),
        (lambda: Observed.from_indices([0], [0, 1], [1]), ValueError, "of the same length"),
        (
            lambda: Observed.from_indices(np.array([], int), np.array([], int), []),
            ValueError,
            "shape",
        ),
        (lambda: Observed.from_dense(np.zeros((0, 4))), ValueError, "must have rows and columns"),
        (
            lambda: Observed.from_dense([[np.nan, np.nan]]),
            ValueError,
            "at least one observed entry",
        ),
        (
            lambda: Observed.from_sparse(sp.csr_array((3, 3))),
            ValueError,
            "at least one observed entry",
        ),
        (lambda: Observed.from_dense([1.0, 2.0]), ValueError, "2D array"),
        (lambda: Observed.from_dense(np.zeros((2, 2, 2))), ValueError, "2D array"),
        (lambda: Observed.from_dense([[1 + 2j]]), ValueError, "Complex data not supported"),
        (
            lambda: Observed.from_dense([["a", "b"]]),
            TypeError,
            "X must hold real numbers, got dtype <U1",
        ),
        (
            lambda: Observed.from_dense(np.array([[object()]])),
            TypeError,
            "X must hold real numbers",
        ),
        (
            lambda: Observed.from_dense(np.array([["2020-01-01"]], "M8[D]")),
            TypeError,
            "X must hold real numbers",
        ),
        (
            lambda: Observed.from_triplets(row=[1, None], col=[1, 2], value=[1, 2]),
            ValueError,
            "row ids must not be missing",
        ),
        (
            lambda: Observed.from_triplets(row=[1.0, np.nan], col=[1, 2], value=[1, 2]),
            ValueError,
            "row ids must not be missing",
        ),
        (
            lambda: Observed.from_triplets(row=[[1], [2]], col=[1, 2], value=[1, 2]),
            TypeError,
            "row ids must be hashable",
        ),
    ],
)
def test_bad_input_is_refused_by_name(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_masked_entries_are_missing_and_block_formats_are_refused():
    masked = np.ma.masked_equal(np.array([[1.0, -3.0], [2.0, 4.0]]), -3.0)
    assert as_observed(masked).rows.values.tolist() == [1.0, 2.0, 4.0]
    with pytest.raises(ValueError, match="bsr format, which stores zeros that were not observed"):
        as_observed(sp.bsr_array(np.eye(4), blocksize=(2, 2)))


def test_select_and_with_values():
    observed = Observed.from_dense([[1.0, 2.0], [np.nan, 3.0]])
    kept = observed.select(np.array([True, False, True]))
    assert kept.rows.values.tolist() == [1.0, 3.0]
    assert kept.shape == (2, 2)
    assert kept.rows.pointers.tolist() == [0, 1, 2]
    assert observed.with_values([7.0, 8.0, 9.0]).to_sparse().toarray().tolist() == [[7, 8], [0, 9]]
    with pytest.raises(ValueError, match="one number per entry"):
        observed.with_values([1.0])


def test_as_observed_accepts_what_fit_accepts():
    observed = Observed.from_dense([[1.0]])
    assert as_observed(observed) is observed
    assert as_observed(sp.csr_array([[1.0]])).n_entries == 1
    assert as_observed([[1.0, 2.0]]).n_entries == 2
    assert "1 x 1, 1 entries, 100.00 % observed" in repr(observed)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.csr_matrix])
@pytest.mark.parametrize(
    ("name", "position", "value", "message"),
    [
        ("indptr", 2, 10**7, "non-decreasing"),
        ("indptr", 4, 10**6, "index pointer"),
        ("indptr", 0, 3, "start with 0"),
        ("indices", 1, 10**6, "indices must be < 4"),
        ("indices", 1, -5, "indices must be >= 0"),
    ],
)
def test_inconsistent_sparse_matrices_are_refused(make, name, position, value, message):
    """SciPy would follow the pointers out of bounds."""
    X = make(np.eye(4))
    getattr(X, name)[position] = value
    with pytest.raises(ValueError, match=f"X is an inconsistent cs[rc] matrix: .*{message}"):
        Observed.from_sparse(X)


def test_lists_of_unequal_lengths_are_refused():
    """SciPy would fill the missing values with what is in memory."""
    X = sp.lil_array(np.arange(16.0).reshape(4, 4))
    assert Observed.from_sparse(X).n_entries == 15
    X.data[1] = X.data[1][:-1]
    with pytest.raises(ValueError, match="X is an inconsistent lil matrix"):
        Observed.from_sparse(X)
    X = sp.lil_array(np.eye(4))
    X._shape = (8, 4)
    with pytest.raises(ValueError, match="X is an inconsistent lil matrix"):
        Observed.from_sparse(X)


@pytest.mark.parametrize("name", ["data", "row", "col"])
def test_coordinates_of_unequal_lengths_are_refused(name):
    X = sp.coo_array(np.eye(4))
    setattr(X, name, getattr(X, name)[:-1])
    with pytest.raises(ValueError, match=r"length|size"):
        Observed.from_sparse(X)


def test_the_check_of_a_sparse_matrix_does_not_modify_it():
    X = sp.csr_array(np.eye(4))
    X.data = np.append(X.data, 7.0)
    X.indices = np.append(X.indices, 0).astype(X.indices.dtype)
    arrays = (X.data, X.indices, X.indptr)
    assert Observed.from_sparse(X).n_entries == 4
    assert all(a is b for a, b in zip(arrays, (X.data, X.indices, X.indptr), strict=True))


@pytest.mark.parametrize(
    "key",
    [
        slice(1, 3),
        [2, 0],
        np.array([True, False, True]),
        (np.array([1]), ...),
        (slice(0, 2), slice(None)),
    ],
    ids=["slice", "list", "mask", "with ellipsis", "with slice"],
)
def test_rows_are_selected_as_by_numpy(key):
    X = np.array([[1.0, np.nan, 2], [np.nan, 3, 4], [5, 6, np.nan]])
    observed = Observed.from_dense(pd.DataFrame(X, index=["a", "b", "c"], columns=["x", "y", "z"]))
    some = observed[key]
    dense = np.full(some.shape, np.nan)
    dense[some.rows.group_of_entry(), some.rows.indices] = some.rows.values
    np.testing.assert_array_equal(dense, X[key])
    rows = key[0] if isinstance(key, tuple) else key
    assert some.row_ids == np.array(["a", "b", "c"])[rows].tolist()
    assert some.column_ids == ["x", "y", "z"]
    with pytest.raises(TypeError, match="rows must be selected"):
        observed[0]
