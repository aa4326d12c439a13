"""Matrices in npz and Matrix Market files."""

from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from robustmf.io import MalformedFileError, read_ratings


def write_file(tmp_path, text, name="ratings.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


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
    """An npz file of arbitrary members, which save_npz would not write."""
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


def test_malicious_npz_files_are_refused(tmp_path):
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
        MalformedFileError,
        match=r"data\.npy claims 1e\+12 numbers of float64, which does not agree with its",
    ):
        read_ratings(npz_with(path, **{**good, "data": header_of((10**12,)) + bytes(64)}))
    with pytest.raises(MalformedFileError, match=r"data\.npy claims .* numbers of object"):
        read_ratings(npz_with(path, **{**good, "data": np.array([1, "x"], object)}))
    for wrong in (
        {"indptr": np.array([0, 10**6, 2])},
        {"indices": np.array([0, 7])},
        {"indptr": np.array([0, 2])},
        {"format": np.array(b"xyz")},
        {"format": np.array(3)},
        {"indices": np.array([0.0, 1.5])},
        {"indptr": np.array([0, 1, 2 + 1j])},
        {"data": header_of((2,)).replace(b"}", b" ")},
        {"data": header_of((2,)).replace(b"{", b"  ")},
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


def test_an_encrypted_member_of_an_npz_file_is_refused(tmp_path):
    path = tmp_path / "matrix.npz"
    sp.save_npz(path, sp.csr_array(np.eye(3)))
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(MalformedFileError, match="encrypted"):
        read_ratings(path)


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
        (
            "1000000 1000000 1000000000000\n1 1 1.0\n",
            r"claims at least 6e\+12 bytes of text, but the file has",
        ),
        ("1000 1000 50000\n1 1 1.0\n", r"claims at least 3e\+05 bytes of text"),
        ("2 2 2\n1 1 1.0\n", r"m\.mtx: "),
        ("2 2 2\n1 1 1.0\n1 x 2.0\n", r"m\.mtx, line 4: expected 3 number\(s\), got '1 x 2\.0'"),
        ("2 2 1\n3 1 1.0\n", r"m\.mtx: "),
        ("2 2 1\n0 1 1.0\n", r"m\.mtx: entry 1 is at row 0, column 1, which are not from 1 to 2"),
        ("2 2 1\n1 1 nan\n", "values must be finite"),
        ("2 2 2\n1 1 1.0\n1 1 2.0\n", "duplicate entry"),
        ("2000000000 2 1\n1 1 1.0\n", "a shape of 2000000000 x 2 for 1 entries"),
        ("100000000 1 1\n1 1 1.0\n", "a shape of 100000000 x 1 for 1 entries"),
        ("1 1000001 1\n1 1 1.0\n", "a shape of 1 x 1000001 for 1 entries"),
    ],
)
def test_errors_in_matrix_market_files_are_located(tmp_path, body, message):
    path = write_file(tmp_path, "%%MatrixMarket matrix coordinate real general\n" + body, "m.mtx")
    with pytest.raises(MalformedFileError, match=message) as caught:
        read_ratings(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("form", ["coordinate", "array"])
def test_matrix_market_formats_agree_with_scipy(tmp_path, form, kind):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, (4, 4)).astype(float)
    X = {"general": X, "symmetric": X + X.T, "skew-symmetric": X - X.T}[kind]
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(path, sp.coo_array(X) if form == "coordinate" else X, symmetry=kind)
    assert kind in path.read_text().splitlines()[0]
    np.testing.assert_array_equal(read_ratings(path).to_sparse().toarray(), X)


def test_matrix_market_patterns_are_ones_and_complex_matrices_are_refused(tmp_path):
    path = write_file(
        tmp_path,
        "%%MatrixMarket matrix coordinate pattern general\n% two\n2 2 2\n1 2\n\n2 1\n",
        "m.mtx",
    )
    assert read_ratings(path).to_sparse().toarray().tolist() == [[0, 1], [1, 0]]
    path = write_file(
        tmp_path, "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "m.mtx"
    )
    with pytest.raises(
        MalformedFileError,
        match=r"m\.mtx, line 1: 'complex' is not one of real, double, integer, pattern",
    ):
        read_ratings(path)


@pytest.mark.parametrize("end", [*range(1, 90, 3), -2, -3])
def test_a_truncated_matrix_market_file_is_an_error(tmp_path, end):
    text = (
        "%%MatrixMarket matrix coordinate real general\n%\n6 5 4\n"
        "1 1 6.7E-1\n1 2 4.2E-1\n5 4 9.8E-1\n6 3 2.997118905373848E-1\n"
    )
    path = write_file(tmp_path, text[:end], "m.mtx")
    with pytest.raises(MalformedFileError, match=r"m\.mtx"):
        read_ratings(path)
