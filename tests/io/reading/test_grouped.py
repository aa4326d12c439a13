"""Files of ratings listed by groups: Netflix and Yahoo music."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.io import MalformedFileError, Source
from robustmf.io.reading.grouped import GroupedForm, read_grouped
from robustmf.io.reading.options import ReadingOptions

NETFLIX = GroupedForm(":", ",", (1, 5))
MUSIC = GroupedForm("|", "\t", (0, 100))


def write_file(tmp_path, text, name="ratings.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_groups_without_ratings_are_refused(tmp_path):
    with pytest.raises(MalformedFileError, match="the file has no ratings"):
        read_grouped([Source(write_file(tmp_path, "1:\n2:\n"))], NETFLIX)


def test_grouped_files(tmp_path, monkeypatch):
    first = write_file(
        tmp_path, "1:\n7,3,2005-09-06\r\n2649429,5,2005-05-13\n\n2:\n7,4,2005-09-06\n", "a.txt"
    )
    second = write_file(tmp_path, "17770:\n500,1,2003-01-01\n7,2,2003-01-01", "b.txt")
    for size in (16 * 2**20, 7):
        monkeypatch.setattr(
            "robustmf.io.reading.grouped.OPTIONS", ReadingOptions(grouped_bytes=size)
        )
        ratings = read_grouped([Source(first), Source(second)], NETFLIX)
        assert ratings.row_ids == [7, 500, 2649429]
        assert ratings.column_ids == [1, 2, 17770]
        np.testing.assert_array_equal(
            ratings.to_sparse().toarray(), [[3, 4, 2], [0, 0, 1], [5, 0, 0]]
        )
        assert ratings.dtype == np.float32
        with pytest.raises(
            ValueError, match="dtype must be 'float64' or 'float32', got dtype='int8'"
        ):
            read_grouped([Source(first)], NETFLIX, "int8")
        music = read_grouped(
            [
                Source(
                    write_file(tmp_path, "0|2\n5\t90\n3\t0\t12\t10:00:00\n4|1\n5\t100\n", "c.txt")
                )
            ],
            MUSIC,
            "float64",
        )
        assert music.column_ids == [0, 4]
        assert music.rows.values.tolist() == [0.0, 90.0, 100.0]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        (
            NETFLIX,
            "1:\n7,3,x\nseven,3,x\n",
            "line 3: 'seven,3,x' is not a rating: expected '7:' or '7,5', digits only; correct",
        ),
        (NETFLIX, "1:\n7,3,x\n7;3\n", "line 3: '7;3' is not a rating"),
        (NETFLIX, "1:\n7\n", "line 2: '7' is not a rating"),
        (NETFLIX, "1:\n7,\n", "line 2: '7,' is not a rating"),
        (NETFLIX, "1:x\n", "line 1: '1:x' is not a rating"),
        (NETFLIX, "1:\n7,3.5,x\n", "line 2: '7,3.5,x' is not a rating"),
        (NETFLIX, "1:\n99999999999,3\n", "line 2: '99999999999,3' is not a rating"),
        (NETFLIX, "1:\n3000000000,3\n", "line 2: '3000000000,3' is not a rating"),
        (NETFLIX, "1:\n7,6,x\n", "line 2: the rating in '7,6,x' is not within 1 … 5"),
        (
            NETFLIX,
            "\n7,3,x\n",
            "line 2: '7,3,x' is a rating before any line such as '1:'; the beginning of the file",
        ),
        (NETFLIX, "", "the file has no ratings"),
        (NETFLIX, b"1:\n7,3,x\n\xff\xfe\n", "line 3: .* is not a rating"),
        (
            MUSIC,
            "1|2\n7\t3\n8\t4\n2|3\n7\t3\n",
            "its last group announces 3 ratings, but 1 follow; the file is truncated",
        ),
        (MUSIC, "1|2\n7\t3\n2|1\n7\t3\n", "group 1 announces 2 ratings, but 1 follow"),
    ],
)
@pytest.mark.parametrize("size", [16 * 2**20, 5])
def test_errors_in_grouped_files_are_located(tmp_path, monkeypatch, form, text, message, size):
    monkeypatch.setattr("robustmf.io.reading.grouped.OPTIONS", ReadingOptions(grouped_bytes=size))
    path = write_file(tmp_path, text, "x.txt")
    with pytest.raises(
        MalformedFileError,
        match=message
        if size > 5 or "group 1" not in message
        else "announces 2 ratings, but 1 follow",
    ):
        read_grouped([Source(path)], form)


def test_duplicates_in_grouped_files_are_named(tmp_path):
    path = write_file(tmp_path, "1:\n7,3,x\n5:\n9,1,x\n7,2,x\n9,4,x\n")
    with pytest.raises(
        MalformedFileError,
        match=r"duplicate entry at row 9, column 5 \(values 1.0 and 4.0\); remove one",
    ) as caught:
        read_grouped([Source(path)], NETFLIX)
    assert str(path) in str(caught.value)
