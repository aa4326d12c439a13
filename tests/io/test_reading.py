"""Files of ratings: what is read, what is guessed, what is refused and in which words."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from robustmf.io.reading import MalformedFileError, Source, guess_layout, read_ratings
from robustmf.io.reading.grouped import GroupedForm, read_grouped

DENSE = [[2, 3, 0], [0, 1, 0.5]]

TEXTS = {
    "comma with header": "userId,movieId,rating,timestamp\n30,7,1,99\n10,3,2,99\n10,7,3,99\n30,9,0.5,99\n",
    "tab": "30\t7\t1\t99\n10\t3\t2\t99\n10\t7\t3\t99\n30\t9\t0.5\t99\n",
    "MovieLens": "30::7::1::99\n10::3::2::99\n10::7::3::99\n30::9::0.5::99\n",
    "semicolon, shuffled columns": 'rating;"item";when;user\n1;7;x;30\n2;3;x;10\n3;7;x;10\n0.5;9;x;30\n',
    "space, Windows, no last newline": "30 7 1\r\n10 3 2\r\n10 7 3\r\n30 9 0.5",
    "bar with empty lines": "30|7|1|\n\n10|3|2|\n10|7|3|\n\n30|9|0.5|\n",
    "a mark of the byte order": "\ufeffuser_id,item_id,score\n30,7,1\n10,3,2\n10,7,3\n30,9,0.5\n",
    "spaces in fields": "user, item, rating\n30, 7, 1\n10, 3, 2\n10, 7, 3\n30, 9, 0.5\n",
}


def written(tmp_path, text, name="ratings.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_read_without_being_told_how(tmp_path, kind):
    ratings = read_ratings(written(tmp_path, TEXTS[kind]))
    assert ratings.row_ids == [10, 30]
    assert ratings.column_ids == [3, 7, 9]
    np.testing.assert_array_equal(ratings.to_sparse().toarray(), DENSE)


def test_what_was_guessed_can_be_said(tmp_path):
    path = written(tmp_path, TEXTS["semicolon, shuffled columns"])
    layout = guess_layout(path)
    assert (
        str(layout)
        == "semicolon-separated, header; row=user (integer), col=item (integer), value=rating"
    )
    assert read_ratings(path, layout).shape == (2, 3)
    assert (
        str(guess_layout(written(tmp_path, "a::b::3\n")))
        == "'::'-separated, no header; row=field 1 (text), col=field 2 (text), value=field 3"
    )


def test_what_is_given_is_not_guessed(tmp_path):
    path = written(tmp_path, "a,b,c,d\n1,5,10,3\n2,6,20,4\n")
    by_name = read_ratings(path, row="c", col="a", value="d", dtype="float32")
    assert by_name.row_ids == [10, 20]
    assert by_name.dtype == np.float32
    assert read_ratings(path, row=2, col=0, value=3).column_ids == [1, 2]
    odd = written(tmp_path, "1/2,5\n1/3,4\n", "odd.txt")
    with pytest.raises(MalformedFileError, match="no delimiter gives three fields"):
        read_ratings(odd)
    with pytest.raises(
        ValueError, match="delimiter must be one character, perhaps repeated, got delimiter='ab'"
    ):
        read_ratings(odd, delimiter="ab")
    dated = written(tmp_path, "u1,i1,2020-01-01,5\nu2,i1,2020-01-02,4\n", "dated.csv")
    assert read_ratings(dated, value=3).n_entries == 2
    with pytest.raises(
        MalformedFileError, match="line 1: value '2020-01-01' is not a finite number"
    ):
        read_ratings(dated)
    numbered = written(tmp_path, "1,2,3\n4,5,6\n", "numbered.csv")
    assert read_ratings(numbered, header=True).n_entries == 1
    assert read_ratings(numbered, text_ids=True).row_ids == ["1", "4"]


def test_text_ids_are_kept_as_they_stand(tmp_path):
    ratings = read_ratings(written(tmp_path, 'user,item,rating\n007,"tt,01",4\n7,ü,5\n'))
    assert ratings.row_ids == ["007", "7"]
    assert ratings.column_ids == ["tt,01", "ü"]
    big = read_ratings(written(tmp_path, "9223372036854775807,1,4\n-5,2,5\n"))
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,rating\n1,2,3\n1,2\n", r"line 3: expected 3 fields, as in the first line, got 2 in '1,2'; correct or remove the line"),
        ("1::2::3\n1::2::3::4\n", "line 2: expected 3 fields, .* got 4"),
        ("1::2::3\n\n1:2:3:4:5\n", "line 3: expected 3 fields, .* got 1"),
        ("1::2::3\n1:x:2::3\n", "line 2: expected 3 fields, .* got 2"),
        ("1,2,3\n\n\n1,3,three\n", "line 4: value 'three' is not a finite number"),
        ("1,2,3\n1,3,\n", "line 2: value '' is not a finite number; correct or remove the line"),
        ("1;2;3,5\n1;3;4,5\n", "line 1: value '3,5' is not a finite number; numbers are written with a point"),
        ('1,2,3\n1,3,"1,234.5"\n', "line 2: value '1,234.5' is not a finite number; numbers are written with a point and nothing between"),
        ("1,2,3\n1,3,\x004\x00\n", "the file looks like UTF-16: convert it, e.g. with iconv -f UTF-16 -t UTF-8"),
        ("1,2,3\n1,3,nan\n", "line 2: value 'nan' is not a finite number"),
        ("1,2,3\n1,3,-inf\n", "line 2: value '-inf' is not a finite number"),
        ("1::2::3\n1::3::\n", "line 2: value '' is not a finite number"),
        ("1,2,3\n" * 200 + "x,2,3\n", "line 201: row id 'x' is not an integer like the first ones; .* pass text_ids=True"),
        ("1,2,3\n" * 200 + "99999999999999999999,2,3\n", "line 201: row id '9+' is not an integer"),
        ("1,2,3\n" * 200 + "1,,3\n", "line 201: column id '' is not an integer"),
        (b"a,b,3\na,\xff,3\n", r"line 2: column id '.*' is not UTF-8; convert the file"),
        ("1,2,3\n" * 200 + "+1,2,3\n", "line 201: row id '.1' is not an integer"),
        ("1,2,3\n1,3,1_0\n", "line 2: value '1_0' is not a finite number"),
        ("1,2,3\n1,3,٣\n", "line 2: value '٣' is not a finite number"),
        ("1,2,3\n1,2," + "9" * 200_000 + "x\n", "line 2: expected 3 fields"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("user,item,rating\n", "a header but no line below it"),
        ("1,2,3\n1,2,4\n", r"duplicate entry \(row id 1, column id 2, values 3.0 and 4.0\); pass duplicates='last' or 'mean'"),
    ],
)  # fmt: skip
def test_malformed_text_is_named_by_file_and_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(MalformedFileError, match=message) as caught:
        read_ratings(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_wrong_names_and_duplicates(tmp_path):
    path = written(tmp_path, "user,item,rating\n1,2,3\n1,2,5\n")
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
    with pytest.raises(MalformedFileError, match="not a Parquet file that can be read"):
        read_ratings(path)
    with pytest.raises(FileNotFoundError, match=r"no\.parquet not found"):
        read_ratings(tmp_path / "no.parquet")


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_npz(tmp_path, form):
    path = tmp_path / "m.npz"
    matrix = sp.coo_array((np.array([1.0, 0.0, 2.0]), ([0, 1, 1], [2, 0, 1])), shape=(2, 4))
    sp.save_npz(path, matrix.asformat(form))
    ratings = read_ratings(path)
    assert ratings.shape == (2, 4)
    assert ratings.rows.values.tolist() == [1.0, 0.0, 2.0]
    assert ratings.rows.indices.tolist() == [2, 0, 1]


def npz_with(path, **arrays):
    """An npz of raw members: what save_npz would never write."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            if isinstance(array, bytes):
                archive.writestr(f"{name}.npy", array)
                continue
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=True)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    return path


def header_of(shape, descr="<f8"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def test_npz_traps_are_refused(tmp_path):
    good = {
        "format": np.array(b"csr"),
        "shape": np.array([2, 3]),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 2]),
        "data": np.ones(2),
    }
    path = tmp_path / "m.npz"
    assert read_ratings(npz_with(path, **good)).n_entries == 2
    with pytest.raises(
        MalformedFileError, match=r"data\.npy claims 1e\+12 numbers of float64, not what its"
    ):
        read_ratings(npz_with(path, **{**good, "data": header_of((10**12,)) + bytes(64)}))
    with pytest.raises(MalformedFileError, match=r"data\.npy claims .* numbers of object"):
        read_ratings(npz_with(path, **{**good, "data": np.array([1, "x"], object)}))
    for wrong in (
        {"indptr": np.array([0, 10**6, 2])},
        {"indices": np.array([0, 7])},
        {"indptr": np.array([0, 2])},
        {"format": np.array(b"xyz")},
    ):
        with pytest.raises(MalformedFileError, match=r"m\.npz: "):
            read_ratings(npz_with(path, **{**good, **wrong}))
    far = {
        "format": np.array(b"coo"),
        "shape": np.array([2 * 10**9, 2]),
        "row": np.array([1]),
        "col": np.array([1]),
        "data": np.ones(1),
    }
    with pytest.raises(MalformedFileError, match="a shape of 2000000000 x 2 for 1 entries"):
        read_ratings(npz_with(path, **far))
    path.write_bytes(b"not a zip")
    with pytest.raises(MalformedFileError, match=r"m\.npz: "):
        read_ratings(path)
    with pytest.raises(FileNotFoundError, match=r"no\.npz not found"):
        read_ratings(tmp_path / "no.npz")


def test_matrix_market(tmp_path):
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(
        path, sp.coo_array((np.array([1.0, 0.0, 2.5]), ([0, 1, 1], [2, 0, 1])), shape=(2, 4))
    )
    ratings = read_ratings(path)
    assert ratings.rows.values.tolist() == [1.0, 0.0, 2.5]
    path.with_suffix(".mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_ratings(path.with_suffix(".mtx.gz")).n_entries == 3
    scipy.io.mmwrite(path, np.arange(6.0).reshape(2, 3))
    assert read_ratings(path).n_entries == 6, "every entry of an array is observed"
    with pytest.raises(FileNotFoundError, match=r"no\.mtx not found"):
        read_ratings(tmp_path / "no.mtx")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1000000 1000000 1000000000000\n1 1 1.0\n", r"claims at least 6e\+12 bytes of text, but the file has"),
        ("2 2 2\n1 1 1.0\n", r"m\.mtx: "),
        ("2 2 2\n1 1 1.0\n1 x 2.0\n", r"m\.mtx, line 4: expected 3 number\(s\), got '1 x 2\.0'"),
        ("2 2 1\n3 1 1.0\n", r"m\.mtx: "),
        ("2 2 1\n1 1 nan\n", "values must be finite"),
        ("2 2 2\n1 1 1.0\n1 1 2.0\n", "duplicate entry"),
        ("2000000000 2 1\n1 1 1.0\n", "a shape of 2000000000 x 2 for 1 entries"),
    ],
)  # fmt: skip
def test_matrix_market_faults_are_named(tmp_path, body, message):
    path = written(tmp_path, "%%MatrixMarket matrix coordinate real general\n" + body, "m.mtx")
    with pytest.raises(MalformedFileError, match=message) as caught:
        read_ratings(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("form", ["coordinate", "array"])
def test_matrix_market_of_every_kind_is_read_as_scipy_does(tmp_path, form, kind):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, (4, 4)).astype(float)
    X = {"general": X, "symmetric": X + X.T, "skew-symmetric": X - X.T}[kind]
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(path, sp.coo_array(X) if form == "coordinate" else X, symmetry=kind)
    assert kind in path.read_text().splitlines()[0]
    np.testing.assert_array_equal(read_ratings(path).to_sparse().toarray(), X)


def test_matrix_market_patterns_are_ones_and_complex_ones_are_refused(tmp_path):
    path = written(
        tmp_path,
        "%%MatrixMarket matrix coordinate pattern general\n% two\n2 2 2\n1 2\n\n2 1\n",
        "m.mtx",
    )
    assert read_ratings(path).to_sparse().toarray().tolist() == [[0, 1], [1, 0]]
    path = written(
        tmp_path, "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "m.mtx"
    )
    with pytest.raises(
        MalformedFileError,
        match=r"m\.mtx, line 1: 'complex' is not one of real, double, integer, pattern",
    ):
        read_ratings(path)


@pytest.mark.parametrize("end", [*range(1, 90, 3), -2, -3])
def test_a_matrix_market_file_cut_anywhere_is_an_error_and_not_the_end_of_the_process(
    tmp_path, end
):
    text = "%%MatrixMarket matrix coordinate real general\n%\n6 5 4\n1 1 6.7E-1\n1 2 4.2E-1\n5 4 9.8E-1\n6 3 2.997118905373848E-1\n"
    path = written(tmp_path, text[:end], "m.mtx")
    with pytest.raises(MalformedFileError, match=r"m\.mtx"):
        read_ratings(path)


def test_damaged_compression_names_the_file(tmp_path):
    text = b"user,film,stars\n" + b"".join(b"%d,%d,3\n" % (k, k) for k in range(999))
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(text)[:-30])
    with pytest.raises(
        MalformedFileError, match=r"a\.csv\.gz: the compressed data are damaged or cut short"
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
            match=r"a\.zip/ratings\.csv: the compressed data are damaged or cut short",
        ):
            read_ratings(Source(archive, "ratings.csv"))
    archive.write_bytes(whole)
    with pytest.raises(MalformedFileError, match="the archive has no such member"):
        read_ratings(Source(archive, "other.csv"))


def test_parquet_that_claims_too_much_or_is_no_text_is_refused(tmp_path, monkeypatch):
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
    monkeypatch.setattr("robustmf.io.reading.plausible._GIGABYTE", 10**6)
    with pytest.raises(
        MalformedFileError, match=r"a\.parquet: claims at least 2\.4e\+07 bytes of ids and values"
    ):
        read_ratings(path)


def test_groups_without_ratings_are_no_ratings(tmp_path):
    with pytest.raises(MalformedFileError, match="no ratings in it"):
        read_grouped([Source(written(tmp_path, "1:\n2:\n"))], NETFLIX)


NETFLIX = GroupedForm(":", ",", (1, 5))
MUSIC = GroupedForm("|", "\t", (0, 100))


def test_grouped_files(tmp_path, monkeypatch):
    first = written(
        tmp_path, "1:\n7,3,2005-09-06\r\n2649429,5,2005-05-13\n\n2:\n7,4,2005-09-06\n", "a.txt"
    )
    second = written(tmp_path, "17770:\n500,1,2003-01-01\n7,2,2003-01-01", "b.txt")
    for size in (16 * 2**20, 7):
        monkeypatch.setattr("robustmf.io.reading.grouped._BYTES_AT_ONCE", size)
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
            [Source(written(tmp_path, "0|2\n5\t90\n3\t0\t12\t10:00:00\n4|1\n5\t100\n", "c.txt"))],
            MUSIC,
            "float64",
        )
        assert music.column_ids == [0, 4]
        assert music.rows.values.tolist() == [0.0, 90.0, 100.0]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        (NETFLIX, "1:\n7,3,x\nseven,3,x\n", "line 3: 'seven,3,x' is no rating: expected '7:' or '7,5', digits only; correct"),
        (NETFLIX, "1:\n7,3,x\n7;3\n", "line 3: '7;3' is no rating"),
        (NETFLIX, "1:\n7\n", "line 2: '7' is no rating"),
        (NETFLIX, "1:\n7,\n", "line 2: '7,' is no rating"),
        (NETFLIX, "1:x\n", "line 1: '1:x' is no rating"),
        (NETFLIX, "1:\n7,3.5,x\n", "line 2: '7,3.5,x' is no rating"),
        (NETFLIX, "1:\n99999999999,3\n", "line 2: '99999999999,3' is no rating"),
        (NETFLIX, "1:\n3000000000,3\n", "line 2: '3000000000,3' is no rating"),
        (NETFLIX, "1:\n7,6,x\n", "line 2: the rating in '7,6,x' is not within 1 … 5"),
        (NETFLIX, "\n7,3,x\n", "line 2: '7,3,x' is a rating before any line like '1:'; the beginning of the file is missing"),
        (NETFLIX, "", "no ratings in it"),
        (NETFLIX, b"1:\n7,3,x\n\xff\xfe\n", "line 3: .* is no rating"),
        (MUSIC, "1|2\n7\t3\n8\t4\n2|3\n7\t3\n", "its last group announces 3 ratings, but 1 follow; the file is cut short"),
        (MUSIC, "1|2\n7\t3\n2|1\n7\t3\n", "group 1 announces 2 ratings, but 1 follow"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [16 * 2**20, 5])
def test_grouped_faults_are_named_by_line(tmp_path, monkeypatch, form, text, message, size):
    monkeypatch.setattr("robustmf.io.reading.grouped._BYTES_AT_ONCE", size)
    path = written(tmp_path, text, "x.txt")
    with pytest.raises(
        MalformedFileError,
        match=message
        if size > 5 or "group 1" not in message
        else "announces 2 ratings, but 1 follow",
    ):
        read_grouped([Source(path)], form)


def test_grouped_duplicates_are_named(tmp_path):
    path = written(tmp_path, "1:\n7,3,x\n5:\n9,1,x\n7,2,x\n9,4,x\n")
    with pytest.raises(
        MalformedFileError,
        match=r"duplicate entry at row 9, column 5 \(values 1.0 and 4.0\); remove one",
    ) as caught:
        read_grouped([Source(path)], NETFLIX)
    assert str(path) in str(caught.value)


def test_a_source_says_its_name():
    assert str(Source(Path("a.zip"), "b/c.dat")) == "a.zip/b/c.dat"


def test_what_a_file_is_counts_and_not_what_it_is_called(tmp_path):
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
    # text may begin as another kind does
    assert (
        read_ratings(written(tmp_path, "PAR1001,A,3\nPAR1002,A,4\nPK,B,1\n", "ids.csv")).n_entries
        == 3
    )
