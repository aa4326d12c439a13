"""Wide text files: an Arrow column per field, or line by line where there are many fields."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from robustmf.io import MalformedFileError, read_ratings
from robustmf.io.reading import filtered_copy, guess_layout, layout, wide
from robustmf.io.reading.filtered_copy import copy_without_entries
from robustmf.io.reading.options import ReadingOptions
from stress.checks.files_read import limited_memory, many_columns

READERS = {"columns": 4096, "lines": 0}


@pytest.fixture(params=READERS)
def reader(request, monkeypatch):
    options = ReadingOptions(max_arrow_columns=READERS[request.param])
    monkeypatch.setattr(wide, "OPTIONS", options)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_readers_give_the_same_cells(tmp_path, dtype, end):
    lines = ("id,a,b,c", '7,1.5, 2 ,"3"', "", "-8,NA,1e-3,", '"9",-0.1,nan,"4.5"')
    path = tmp_path / "table.csv"
    path.write_bytes(end.join(lines).encode())
    entries = read_ratings(path, wide=True, missing=[3], dtype=dtype)
    assert entries.row_ids == [7, -8, 9]
    assert entries.column_ids == ["a", "b", "c"]
    cells = [[1.5, 2, np.nan], [np.nan, 1e-3, np.nan], [-0.1, np.nan, 4.5]]
    np.testing.assert_array_equal(entries.to_dense(), np.array(cells, dtype))


@pytest.mark.usefixtures("reader")
def test_labels_may_be_quoted_text_of_several_lines(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('name,a,b\n"x, ""y""\nz",1.5,2\nw,1,3\n')
    assert read_ratings(path, wide=True).row_ids == ['x, "y"\nz', "w"]


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("before", ["\n", "\r\n\r\n", "  \n\n"])
@pytest.mark.parametrize("copied_bytes", [3, 1000])
def test_blank_lines_before_the_header_are_ignored(tmp_path, before, copied_bytes, monkeypatch):
    """The header would be a row of the matrix: its names are numbers."""
    monkeypatch.setattr(filtered_copy, "OPTIONS", ReadingOptions(copied_bytes=copied_bytes))
    path = tmp_path / "table.csv"
    lines = [f"{before}id,2001,2002,2003", "a,1.5,2,3", "", "b,4,5,6", "c,7,8,9", ""]
    path.write_text("\n".join(lines), newline="")
    entries = read_ratings(path)
    assert entries.row_ids == ["a", "b", "c"]
    assert entries.column_ids == ["2001", "2002", "2003"]
    out = tmp_path / "out.csv"
    marked = entries.rows.values == 4
    copy_without_entries(path, guess_layout(path), None, entries, marked, out)
    assert out.read_bytes().decode() == path.read_bytes().decode().replace("b,4,", "b,,")
    path.write_text("\n".join(lines).replace("9", "bad"), newline="")
    with pytest.raises(MalformedFileError, match=f"line {before.count(chr(10)) + 5}: value 'bad'"):
        read_ratings(path, wide=True)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"time,a,b\nx,1,2\ny,1,bad\n", "line 3: value 'bad' is not a finite number"),
        (b"time,a,b\nx,1,2\ny,1\n", "line 3: expected 3 fields"),
        (b"time,a,b\nx,1,2\ny,1,\xff\n", "line 3: value"),
        (b"time,a,b\nx,1,2\n\xff,1,3\n", "line 3: row id .* is not UTF-8"),
        (b"id,a,b\n1,1,2\n1.5,1,3\n", "line 3: row id '1.5' is not an integer"),
        (b"time,a,b\n\n", "there are no lines after the header"),
    ],
    ids=["text", "fields", "bytes", "label", "integer", "empty"],
)
def test_both_readers_name_the_line(tmp_path, content, message):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    text_ids = not content.startswith(b"id")
    with pytest.raises(MalformedFileError, match=message):
        read_ratings(path, wide=True, row=0, text_ids=text_ids)


def test_many_columns_take_little_memory(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(many_columns(250_000))
    with limited_memory(600 * 2**20):
        entries = read_ratings(path)
    assert entries.shape == (3, 250_000)
    assert entries.n_entries == 750_000


def test_long_lines_are_sampled_up_to_a_limit(tmp_path, monkeypatch):
    """A hundred lines of a million fields would take gigabytes."""
    path = tmp_path / "table.csv"
    path.write_bytes(many_columns(100))
    monkeypatch.setattr(layout, "OPTIONS", ReadingOptions(sampled_characters=10))
    found = layout._first_lines(layout.Source(path))
    assert len(found) == 2
    assert guess_layout(path).n_fields == 101


@pytest.mark.parametrize("field", ["--1", "9" * 5000])
@pytest.mark.parametrize("place", ["header", "values"])
def test_fields_that_are_no_integers_are_read_or_located(tmp_path, field, place):
    """Neither two signs nor thousands of digits make an integer; Python would not convert them."""
    path = tmp_path / "table.csv"
    rng = np.random.default_rng(0)
    numbers = "".join(",".join(map(str, rng.integers(9, size=7))) + "\n" for _ in range(20))
    line = ",".join([field, *(f"{field}{k}" for k in range(6))]) + "\n"
    path.write_text(line + numbers if place == "header" else numbers + line + numbers)
    with pytest.raises(MalformedFileError, match=re.escape(str(path))):
        read_ratings(path, header=False)
    if place == "header":
        assert read_ratings(path, header=True).shape == (20, 7)


def test_a_line_with_two_signs_is_located(tmp_path):
    path = tmp_path / "table.csv"
    rng = np.random.default_rng(0)
    numbers = "".join(",".join(map(str, rng.integers(9, size=7))) + "\n" for _ in range(20))
    path.write_text("--5,--1,--2,3,4,5,6\n" + numbers)
    with pytest.raises(MalformedFileError, match="line 1: value '--1' is not a finite number"):
        read_ratings(path)
    assert list(read_ratings(path, header=True).column_ids)[:2] == ["--5", "--1"]


def test_ids_with_two_signs_are_text(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("--1,2,3.5\n--2,2,4.5\n-3,1,1.5\n")
    assert list(read_ratings(path).row_ids) == ["--1", "--2", "-3"]


def test_parquet_with_an_index_of_pandas(tmp_path):
    """Arrow writes the index as the last column, so that three sensors were taken for a long table.

    A wide table with times, and a long one whose ids are the index.
    """
    times = pd.date_range("2026-01-01", periods=30, freq="h", name="time")
    cells = np.random.default_rng(0).normal(size=(30, 4)).round(3)
    table = pd.DataFrame(cells, columns=["s0", "s1", "s2", "s3"], index=times)
    table.to_parquet(tmp_path / "wide.parquet")
    found = read_ratings(tmp_path / "wide.parquet")
    assert found.column_ids == ["s0", "s1", "s2", "s3"]
    np.testing.assert_array_equal(found.to_dense(), cells)
    assert found.row_ids == list(times.to_pydatetime())
    long = table.stack().rename("level").rename_axis(["time", "sensor"]).to_frame()
    long.to_parquet(tmp_path / "long.parquet")
    found = read_ratings(tmp_path / "long.parquet")
    assert found.column_ids == ["s0", "s1", "s2", "s3"]
    np.testing.assert_array_equal(found.to_dense(), cells)


def test_a_column_of_text_at_the_end_does_not_make_a_wide_file_long(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 6)).round(3)).add_prefix("s")
    table["remark"] = "good"
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet", index=False)
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(MalformedFileError, match="'s0', which would be a column of ids, holds"):
            read_ratings(tmp_path / name)
    found = read_ratings(tmp_path / "a.csv", wide=True, omit=["remark"])
    assert found.shape == (30, 6)
    assert read_ratings(tmp_path / "a.csv", row="s0", col="s1", value="s2").n_entries == 30
