"""Files of ratings as text and Parquet: layouts, guessing, errors."""

from __future__ import annotations

import bz2
import gc
import gzip
import time
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustmf.io import MalformedFileError, Source, guess_layout, read_ratings
from robustmf.io.reading.filtered_copy import copy_without_entries
from robustmf.io.reading.options import ReadingOptions
from robustmf.io.reading.pairs import Known, read_pairs
from robustmf.io.reading.parquet import _page_bytes, read_table

DENSE = [[2, 3, 0], [0, 1, 0.5]]

TEXTS = {
    "comma with header": (
        "userId,movieId,rating,timestamp\n30,7,1,99\n10,3,2,99\n10,7,3,99\n30,9,0.5,99\n"
    ),
    "tab": "30\t7\t1\t99\n10\t3\t2\t99\n10\t7\t3\t99\n30\t9\t0.5\t99\n",
    "MovieLens": "30::7::1::99\n10::3::2::99\n10::7::3::99\n30::9::0.5::99\n",
    "semicolon, shuffled columns": (
        'rating;"item";when;user\n1;7;x;30\n2;3;x;10\n3;7;x;10\n0.5;9;x;30\n'
    ),
    "space, Windows, no last newline": "30 7 1\r\n10 3 2\r\n10 7 3\r\n30 9 0.5",
    "bar with empty lines": "30|7|1|\n\n10|3|2|\n10|7|3|\n\n30|9|0.5|\n",
    "byte order mark": "\ufeffuser_id,item_id,score\n30,7,1\n10,3,2\n10,7,3\n30,9,0.5\n",
    "spaces in fields": "user, item, rating\n30, 7, 1\n10, 3, 2\n10, 7, 3\n30, 9, 0.5\n",
}


def write_file(tmp_path, text, name="ratings.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("kind", TEXTS)
def test_the_layout_of_text_is_guessed(tmp_path, kind):
    ratings = read_ratings(write_file(tmp_path, TEXTS[kind]))
    assert ratings.row_ids == [10, 30]
    assert ratings.column_ids == [3, 7, 9]
    np.testing.assert_array_equal(ratings.to_sparse().toarray(), DENSE)


def test_the_guessed_layout_is_printable(tmp_path):
    path = write_file(tmp_path, TEXTS["semicolon, shuffled columns"])
    layout = guess_layout(path)
    assert (
        str(layout)
        == "semicolon-separated, header; row=user (integer), col=item (integer), value=rating"
    )
    assert read_ratings(path, layout).shape == (2, 3)
    assert (
        str(guess_layout(write_file(tmp_path, "a::b::3\n")))
        == "'::'-separated, no header; row=field 1 (text), col=field 2 (text), value=field 3"
    )


def test_given_parts_of_the_layout_are_not_guessed(tmp_path):
    path = write_file(tmp_path, "a,b,c,d\n1,5,10,3\n2,6,20,4\n")
    by_name = read_ratings(path, row="c", col="a", value="d", dtype="float32")
    assert by_name.row_ids == [10, 20]
    assert by_name.dtype == np.float32
    assert read_ratings(path, row=2, col=0, value=3).column_ids == [1, 2]
    odd = write_file(tmp_path, "1/2,5\n1/3,4\n", "odd.txt")
    with pytest.raises(MalformedFileError, match="no delimiter gives three fields"):
        read_ratings(odd)
    with pytest.raises(
        ValueError,
        match="delimiter must be one character, which may be repeated, got delimiter='ab'",
    ):
        read_ratings(odd, delimiter="ab")
    dated = write_file(tmp_path, "u1,i1,2020-01-01,5\nu2,i1,2020-01-02,4\n", "dated.csv")
    assert read_ratings(dated, value=3).n_entries == 2
    with pytest.raises(
        MalformedFileError, match="line 1: value '2020-01-01' is not a finite number"
    ):
        read_ratings(dated)
    numbered = write_file(tmp_path, "1,2,3\n4,5,6\n", "numbered.csv")
    assert read_ratings(numbered, header=True).n_entries == 1
    assert read_ratings(numbered, text_ids=True).row_ids == ["1", "4"]


def test_text_ids_are_not_changed(tmp_path):
    ratings = read_ratings(write_file(tmp_path, 'user,item,rating\n007,"tt,01",4\n7,ü,5\n'))
    assert ratings.row_ids == ["007", "7"]
    assert ratings.column_ids == ["tt,01", "ü"]
    big = read_ratings(write_file(tmp_path, "9223372036854775807,1,4\n-5,2,5\n"))
    assert big.row_ids == [-5, 2**63 - 1]


def test_compressed_text_and_members_of_archives(tmp_path):
    text = TEXTS["MovieLens"].encode()
    packed = tmp_path / "ratings.dat.gz"
    packed.write_bytes(gzip.compress(text))
    assert read_ratings(packed).shape == (2, 3)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/ratings.dat", text + b"1::2::x::3\n")
    inside = Source(tmp_path / "all.zip", "in/ratings.dat")
    with pytest.raises(
        MalformedFileError,
        match=r"all\.zip/in/ratings\.dat, line 5: value 'x' is not a finite number",
    ):
        read_ratings(inside)


def test_archives_are_closed(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("ratings.csv", "1,2,3\n")
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        assert read_ratings(Source(tmp_path / "all.zip", "ratings.csv")).n_entries == 1
        with pytest.raises(MalformedFileError, match="the archive has no such member"):
            read_ratings(Source(tmp_path / "all.zip", "other.csv"))
        gc.collect()
    assert issued == []


def test_damaged_statistics_of_a_parquet_file_do_not_end_the_process(tmp_path):
    """Arrow would end it as soon as the metadata of a single column are read."""
    path = tmp_path / "r.parquet"
    table = pa.table({"user": ["a", "b", "a"], "item": [1, 1, 2], "rating": [1.0, 2.0, 3.5]})
    pq.write_table(table, path)
    read_ratings(path)

    def column(*_):
        raise AssertionError("metadata of a column were read")

    metadata = SimpleNamespace(
        num_row_groups=2, row_group=lambda k: SimpleNamespace(total_byte_size=5, column=column)
    )
    assert _page_bytes(metadata) == 10


def test_columns_of_a_parquet_file_with_the_same_name(tmp_path):
    path = tmp_path / "r.parquet"
    columns = [pa.array([1, 2]), pa.array([3, 4]), pa.array([0.5, 1.5])]
    table = pa.Table.from_arrays([*columns, columns[1]], names=["user", "item", "rating", "item"])
    pq.write_table(table, path)
    with pytest.raises(MalformedFileError, match=r"r\.parquet: has 2 columns 'item'; rename one"):
        read_ratings(path)
    known = Known({1, 2}, True)
    pairs = read_pairs(path, (known, known))
    assert (pairs.rows, pairs.cols) == ([1, 2], [3, 4])
    assert pairs.table.column_names == table.column_names


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("user,item,rating\na,x,1\na,y,\nb,x,NaN\nc,z,2\n", {}),
        ("a::x::1\na::y::\nb::x::\nc::z::2\n", {}),
        ("user;item;rating\na;x;1,0\na;y;-\nb;x;?\nc;z;2,0\n", {}),
        ("user,item,rating\na,x,1\na,y,99\nb,x,99.0\nc,z,2\n", {"missing": [99]}),
        ("user;item;rating\na;x;1,0\na;y;-9,5\nb;x;-9,50\nc;z;2,0\n", {"missing": [-9.5]}),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_line_without_a_value_is_no_entry(tmp_path, text, given, dtype):
    """As in a table of pandas; its ids are not those of the matrix."""
    found = read_ratings(write_file(tmp_path, text), dtype=dtype, **given)
    assert (found.row_ids, found.column_ids) == (["a", "c"], ["x", "z"])
    assert found.to_sparse().toarray().tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize("code", [None, 99.0])
def test_a_line_of_parquet_without_a_value_is_no_entry(tmp_path, code):
    values = pa.array([1.0, code, None, 2.0])
    table = pa.table({"user": ["a", "a", "b", "c"], "item": ["x", "y", "x", "z"], "rating": values})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read_ratings(tmp_path / "a.parquet", missing=[] if code is None else [code])
    assert (found.row_ids, found.column_ids) == (["a", "c"], ["x", "z"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "user,item,rating\n1,2,3\n1,2\n",
            "line 3: expected 3 fields, as in the first line, got 2 in '1,2'; "
            "correct or remove the line",
        ),
        ("1::2::3\n1::2::3::4\n", "line 2: expected 3 fields, .* got 4"),
        ("1::2::3\n\n1:2:3:4:5\n", "line 3: expected 3 fields, .* got 1"),
        ("1::2::3\n1:x:2::3\n", "line 2: expected 3 fields, .* got 2"),
        ("1,2,3\n\n\n1,3,three\n", "line 4: value 'three' is not a finite number"),
        ("1,2,3\n1,3,x\n", "line 2: value 'x' is not a finite number; correct or remove the line"),
        (
            "1;2;3.000,5\n1;3;4.000,5\n",
            "line 1: value '3.000,5' is not a finite number; write numbers without thousands",
        ),
        (
            '1,2,3\n1,3,"1,234.5"\n',
            "line 2: value '1,234.5' is not a finite number; write numbers without thousands",
        ),
        (
            "1,2,3\n1,3,\x004\x00\n",
            "the file looks like UTF-16: convert it, e.g. with iconv -f UTF-16 -t UTF-8",
        ),
        ("1,2,3\n1,3,nan\n1,4,inf\n", "line 3: value 'inf' is not a finite number"),
        ("a,b,3\na,,3\n", "line 2: column id '' is missing; correct or remove the line"),
        ("a,b,3\n,c,\n", "line 2: row id '' is missing; correct or remove the line"),
        ("a,b,\na,c,NA\n", "no line has a value"),
        ("1,2,3\n1,3,-inf\n", "line 2: value '-inf' is not a finite number"),
        ("1::2::3\n1::3::\n1::4::NA\n", "line 3: value 'NA' is not a finite number"),
        ("1::2::3\n1:NA:3::4\n", "line 2: expected 3 fields, .* got 2"),
        (
            "1,2,3\n" * 200 + "x,2,3\n",
            "line 201: row id 'x' is not an integer as the first ids are; .* pass text_ids=True",
        ),
        ("1,2,3\n" * 200 + "99999999999999999999,2,3\n", "line 201: row id '9+' is not an integer"),
        ("1,2,3\n" * 200 + "9" * 5000 + ",2,3\n", "line 201: row id '9+...' is not an integer"),
        ("," * 1_000_001, "line 1: 1,000,002 fields, more than the 1,000,000 that are read"),
        ("1,2,3\n" * 200 + "1,,3\n", "line 201: column id '' is not an integer"),
        (b"a,b,3\na,\xff,3\n", r"line 2: column id '.*' is not UTF-8; convert the file"),
        ("1,2,3\n" * 200 + "+1,2,3\n", "line 201: row id '.1' is not an integer"),
        ("1,2,3\n1,3,1_0\n", "line 2: value '1_0' is not a finite number"),
        ("1,2,3\n1,3,٣\n", "line 2: value '٣' is not a finite number"),
        ("1,2,3\n1,2," + "9" * 200_000 + "x\n", "line 2: expected 3 fields"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("user,item,rating\n", "no lines after the header"),
        (
            "1,2,3\n1,2,4\n",
            r"duplicate entry \(row id 1, column id 2, values 3.0 and 4.0\); "
            "pass duplicates='last' or 'mean'",
        ),
    ],
)
def test_malformed_text_is_named_by_file_and_line(tmp_path, text, message):
    path = write_file(tmp_path, text)
    with pytest.raises(MalformedFileError, match=message) as caught:
        read_ratings(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_wrong_names_and_duplicates(tmp_path):
    path = write_file(tmp_path, "user,item,rating\n1,2,3\n1,2,5\n")
    with pytest.raises(
        ValueError,
        match=r"value='stars' is not a column; the header names \['user', 'item', 'rating'\]",
    ):
        read_ratings(path, value="stars")
    with pytest.raises(ValueError, match="value=3 is not a position from 0 to 2"):
        read_ratings(path, value=3)
    with pytest.raises(ValueError, match="row, col and value must be three columns"):
        read_ratings(path, row="item")
    with pytest.raises(ValueError, match="columns have names only with header=True"):
        read_ratings(path, value="rating", header=False)
    with pytest.raises(ValueError, match="dtype must be 'float64' or 'float32'"):
        read_ratings(path, dtype="int8")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv not found"):
        read_ratings(tmp_path / "nowhere.csv")
    assert read_ratings(path, duplicates="mean").rows.values.tolist() == [4.0]
    assert read_ratings(path, duplicates="last").rows.values.tolist() == [5.0]


def test_parquet(tmp_path):
    path = tmp_path / "r.parquet"
    table = {
        "when": [1, 2, 3, 4],
        "userId": [30, 10, 10, 30],
        "movieId": ["b", "a", "b", "c"],
        "rating": np.array([1, 2, 3, 0.5], np.float32),
    }
    pq.write_table(pa.table(table), path, row_group_size=2)
    ratings = read_ratings(path)
    assert ratings.column_ids == ["a", "b", "c"]
    np.testing.assert_array_equal(ratings.to_sparse().toarray(), DENSE)
    assert ratings.dtype == np.float64
    assert read_ratings(path, dtype="float32").dtype == np.float32
    assert read_ratings(path, row="when").shape == (4, 3)
    with pytest.raises(ValueError, match=r"col='film' is not a column; the header names \['when'"):
        read_ratings(path, col="film")
    pq.write_table(pa.table({"u": [1, None], "i": [1, 2], "r": [1.0, 2.0]}), path)
    with pytest.raises(
        MalformedFileError, match=r"r\.parquet: row ids must not be missing, got None at position 1"
    ):
        read_ratings(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(MalformedFileError, match="not a readable Parquet file"):
        read_ratings(path)
    with pytest.raises(FileNotFoundError, match=r"no\.parquet not found"):
        read_ratings(tmp_path / "no.parquet")


def test_pairs_of_a_model_with_integers_are_integers(tmp_path):
    path = write_file(tmp_path, "user,item\n1,2\n3,x\n")
    known = (Known({1, 3}, True), Known({2}, True))
    with pytest.raises(MalformedFileError, match="line 3: the id 'x' is not an integer as those"):
        read_pairs(path, known)


def test_a_parquet_file_of_many_columns_is_read_in_linear_time(tmp_path):
    """The names of all columns were listed once per column: 30 s for 20,000 of them."""
    n = 10_000
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({f"c{k}": [1.5, 2.5] for k in range(n)}), path)
    started = time.process_time()
    assert read_table(Source(path)).shape == (2, n)
    assert time.process_time() - started < 3


def test_blank_lines_before_the_header_of_a_long_file_are_ignored(tmp_path):
    path = tmp_path / "ratings.dat"
    for delimiter in (",", "::"):
        lines = ["", "", "user,item,rating", "a,x,1", "b,y,2"]
        path.write_text("\n".join(lines).replace(",", delimiter))
        entries = read_ratings(path)
        assert entries.row_ids == ["a", "b"]
        kept = tmp_path / "kept.dat"
        marked = np.array([True, False])
        copy_without_entries(path, guess_layout(path), None, entries, marked, kept)
        assert kept.read_text() == path.read_text().replace(f"a{delimiter}x{delimiter}1\n", "")


@pytest.mark.parametrize("first", [2**63, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_are_guessed_to_be_text(tmp_path, first):
    path = tmp_path / "ratings.csv"
    path.write_text(f"user,item,rating\n{first},1,2\n7,{2**63 - 1},3\n")
    entries = read_ratings(path)
    assert set(entries.row_ids) == {"7", str(first)}
    assert entries.column_ids == [1, 2**63 - 1]


def test_errors_of_decompression_name_the_file(tmp_path):
    text = b"user,film,stars\n" + b"".join(b"%d,%d,3\n" % (k, k) for k in range(999))
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(text)[:-30])
    with pytest.raises(
        MalformedFileError, match=r"a\.csv\.gz: the compressed data are damaged or truncated"
    ):
        read_ratings(packed)
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writing:
        writing.writestr("ratings.csv", text)
    whole = archive.read_bytes()
    for damaged in (whole[1:], whole[:40] + b"?" * 20 + whole[60:], whole[:-10]):
        archive.write_bytes(damaged)
        with pytest.raises(
            MalformedFileError,
            match=r"a\.zip/ratings\.csv: the compressed data are damaged or truncated",
        ):
            read_ratings(Source(archive, "ratings.csv"))
    archive.write_bytes(whole)
    with pytest.raises(MalformedFileError, match="the archive has no such member"):
        read_ratings(Source(archive, "other.csv"))


def test_parquet_with_an_implausible_size_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table(
            {
                "user": pa.repeat(1, 10**6),
                "item": pa.repeat(1, 10**6),
                "rating": pa.repeat(1.0, 10**6),
            }
        ),
        path,
    )
    monkeypatch.setattr("robustmf.io.reading.source.OPTIONS", ReadingOptions(small_size=10**6))
    with pytest.raises(
        MalformedFileError, match=r"a\.parquet: claims at least 2\.4e\+07 bytes of ids and values"
    ):
        read_ratings(path)


def test_parquet_with_a_long_id_that_is_repeated_is_refused(tmp_path):
    """The id is stored once: 100 kB of file stand for 4 GB of text."""
    path = tmp_path / "a.parquet"
    n = 20_000
    users = pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), ["x" * 200_000])
    table = pa.table({"u": users, "i": np.arange(n), "r": np.ones(n)})
    pq.write_table(table, path, store_schema=False)
    assert path.stat().st_size < 400_000
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(MalformedFileError, match=r"claims at least 4e\+09 bytes of text"):
        read_ratings(path)
    if peak is not None:
        assert pa.default_memory_pool().max_memory() < max(peak, before + 10**8)
    with pytest.raises(MalformedFileError, match=r"claims at least 4e\+09 bytes of text"):
        read_pairs(path, (Known(set(), False), Known(range(n), True)))


def test_parquet_beyond_a_lower_limit_is_refused(tmp_path, monkeypatch):
    """As above with a limit so low that the text could be expanded."""
    options = ReadingOptions(small_size=100_000, max_compression=2)
    monkeypatch.setattr("robustmf.io.reading.source.OPTIONS", options)
    path = tmp_path / "a.parquet"
    n = 1_000
    for length in (50, 500):
        users = pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), ["x" * length])
        table = pa.table({"u": users, "i": np.arange(n), "r": np.ones(n)})
        pq.write_table(table, path, store_schema=False)
        if length == 50:
            assert read_ratings(path).n_entries == n
        else:
            with pytest.raises(MalformedFileError, match=r"claims at least 5e\+05 bytes of text"):
                read_ratings(path)


@pytest.mark.parametrize("stored_as", [pa.string(), pa.large_string(), pa.binary(), None])
def test_strings_of_a_parquet_file_keep_their_type(tmp_path, stored_as):
    """Strings are read as distinct values and indices; the table has the types of the file."""
    path = tmp_path / "a.parquet"
    users = pa.array(["é", "b", "é", "c"])
    users = users.dictionary_encode() if stored_as is None else users.cast(stored_as)
    more = pa.array([["x"], None, [], ["y", "z"]])
    table = pa.table({"user": users, "item": [1, 1, 2, 2], "rating": [1.0, 2, 3, 4], "more": more})
    table = table.replace_schema_metadata({"key": "value"})
    pq.write_table(table, path, row_group_size=2)
    table = pq.ParquetFile(path).read()
    assert read_table(Source(path)).equals(table, check_metadata=True)
    assert read_table(Source(path), ["item", "user"], [1]).equals(table.select([1, 0])[2:])
    row_ids = read_ratings(path).row_ids
    assert sorted(row_ids) == sorted(set(users.to_pylist()))


def test_a_null_id_of_a_parquet_file_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    users = pa.array(["a", None, "b"])
    pq.write_table(pa.table({"user": users, "item": [1, 2, 3], "rating": [1.0, 2, 3]}), path)
    with pytest.raises(MalformedFileError, match="row ids must not be missing"):
        read_ratings(path)


@pytest.mark.parametrize("kind", ["csv.gz", "mtx.gz", "zip"])
def test_compressed_text_that_is_implausibly_long_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("robustmf.io.reading.source.OPTIONS", ReadingOptions(small_size=10**5))
    text = {
        "mtx.gz": b"%%MatrixMarket matrix coordinate real general\n% " + b"a" * 10**6,
    }.get(kind, b"user,item,rating\n" + b"1,1,1\n" * 200_000)
    path = tmp_path / f"a.{kind}"
    source = Source(path)
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("ratings.csv", text)
        source = Source(path, "ratings.csv")
    else:
        path.write_bytes(gzip.compress(text))
    with pytest.raises(MalformedFileError, match=r"decompresses to more than .* decompress it"):
        read_ratings(source)


def test_the_name_of_a_source_includes_the_member():
    assert str(Source(Path("a.zip"), "b/c.dat")) == "a.zip/b/c.dat"


def test_formats_are_recognized_by_content(tmp_path):
    text = b"user,item,rating\n1,1,3\n1,2,4\n2,1,5\n"
    for name, packed in (
        ("a.csv", gzip.compress(text)),
        ("b.csv", bz2.compress(text)),
        ("c.csv.gz", text),
        ("d.bz2", gzip.compress(text)),
    ):
        (tmp_path / name).write_bytes(packed)
        assert read_ratings(tmp_path / name).n_entries == 3, name
    archive, parquet, pdf = (tmp_path / name for name in ("archive.csv", "parquet.csv", "pdf.csv"))
    with zipfile.ZipFile(archive, "w") as writing:
        writing.writestr("ratings.csv", text)
    pq.write_table(pa.table({"user": [1, 2], "item": [1, 2], "rating": [3.0, 4.0]}), parquet)
    pdf.write_bytes(b"%PDF-1.7\n" + text)
    for path, reason in (
        (archive, "a zip archive or a spreadsheet"),
        (parquet, "a Parquet file"),
        (pdf, "a PDF file"),
    ):
        with pytest.raises(MalformedFileError, match=rf"{path.name}: {reason}, not text"):
            read_ratings(path)
    # text may begin with the signature of another format
    assert (
        read_ratings(
            write_file(tmp_path, "PAR1001,A,3\nPAR1002,A,4\nPK,B,1\n", "ids.csv")
        ).n_entries
        == 3
    )
