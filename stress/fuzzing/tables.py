"""Files of entries: delimited text, Matrix Market, npz, Parquet, ratings by groups, pairs."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp

from robustmf import Observed
from robustmf.io.reading import Source, guess_layout, read_ratings
from robustmf.io.reading.filtered_copy import copy_without_entries
from robustmf.io.reading.grouped import GroupedForm, read_grouped
from robustmf.io.reading.pairs import Known, read_pairs
from robustmf.io.reading.parquet import parquet_columns
from stress.fuzzing.damage import damaged_bytes
from stress.fuzzing.target import Target

_RATINGS = b"user,film,stars\n" + b"".join(
    b"u%d,f%d,%d\n" % (k % 7, k % 5, k % 5) for k in range(9)
)


def table_targets() -> dict[str, Target]:
    """All kinds of files of entries by name."""
    return {
        "text": Bytes("a.csv", _texts, read_text),
        "wide text": Bytes("a.csv", _wide_texts, read_text),
        "compressed text": Bytes("a.csv.gz", _compressed_texts, read_text),
        "member of an archive": Archive("a.zip", _archives, read_member),
        "Matrix Market": Bytes("a.mtx", _matrix_market_files, read_matrix),
        "npz": Archive("a.npz", _npz_files, read_matrix),
        "npz, bytes": Bytes("a.npz", _npz_bytes, read_matrix),
        "Parquet": Tables("a.parquet", read_parquet_entries),
        "Parquet, bytes": Bytes("a.parquet", _parquet_files, read_parquet_entries),
        "pairs": Bytes("a.csv", _pairs, read_text_pairs),
        "pairs, Parquet": Tables("a.parquet", read_text_pairs),
        "ratings by groups": Bytes("a.txt", _groups, read_groups),
    }


@dataclass
class Bytes:
    """Files that are changed as bytes."""

    file: str
    valid: Callable[[], list[bytes]]
    read: Callable[[Path], None]

    def seeds(self) -> list[bytes]:
        """Valid files."""
        return self.valid()

    def damaged(self, rng: np.random.Generator, one: bytes, other: bytes) -> bytes:
        """A copy with changed bytes."""
        return damaged_bytes(rng, one, other)

    def content(self, one: bytes) -> bytes:
        """The bytes, compressed for a quarter of the files with this ending."""
        if not self.file.endswith(".gz"):
            return one
        return (gzip.compress, bz2.compress, bytes, gzip.compress)[len(one) % 4](one)


@dataclass
class Archive:
    """Zip archives, whose members are changed; directory and checksums are valid."""

    file: str
    valid: Callable[[], list[dict[str, bytes]]]
    read: Callable[[Path], None]

    def seeds(self) -> list[dict[str, bytes]]:
        """Valid archives."""
        return self.valid()

    def damaged(
        self, rng: np.random.Generator, one: dict[str, bytes], other: dict[str, bytes]
    ) -> dict[str, bytes]:
        """A copy in which a member is changed, missing or taken from another archive."""
        changed = dict(one)
        name = str(rng.choice(sorted(changed))) if changed else "data.npy"
        how = int(rng.integers(8))
        if how == 0:
            changed.pop(name, None)
        elif how == 1:
            changed |= {name: other[name]} if name in other else {}
        elif how == 2:
            members = list(other.values()) or [b""]
            changed[name] = members[int(rng.integers(len(members)))]
        elif how <= 4 and name.endswith(".npy"):
            changed[name] = _npy(_other_array(rng, changed.get(name, b"")))
        else:
            changed[name] = damaged_bytes(rng, changed.get(name, b""), b"".join(other.values()))
        return changed

    def content(self, one: dict[str, bytes]) -> bytes:
        """The archive."""
        return _zipped(one)


def _other_array(rng: np.random.Generator, member: bytes) -> np.ndarray[Any, Any]:
    """An array of another type, shape or value than the one in a member."""
    try:
        array = np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)
    except Exception:  # a member that was damaged before
        array = np.arange(3)
    how = int(rng.integers(6))
    if how == 0:
        names = ["<f4", "<i8", "<i4", "|u1", "|b1", "<c16", "<U3", "|S3", "<M8[D]", "<f2", ">i4"]
        with np.errstate(all="ignore"), suppress(ValueError, TypeError):
            return array.astype(names[int(rng.integers(len(names)))])
    if how == 1:
        return array.reshape(-1)[: int(rng.integers(array.size + 1))]
    if how == 2:
        return np.repeat(array, int(rng.integers(1, 50)))
    if how == 3 and array.size and array.dtype.kind in "iuf":
        changed = array.copy()
        values = [-1, 0, 1, 2, 100, 1000]
        with np.errstate(all="ignore"):
            changed.flat[int(rng.integers(array.size))] = np.array(
                values[int(rng.integers(6))]
            ).astype(array.dtype)
        return changed
    if how == 4:
        formats = [b"csr", b"csc", b"coo", b"bsr", b"dia", b"lil", b"dok", "coo"]
        return np.array(formats[int(rng.integers(len(formats)))])
    return array[None]


#: Types of the columns of generated Parquet files, with a value of each.
_COLUMNS: list[tuple[pa.DataType, Any]] = [
    (pa.string(), "a"),
    (pa.large_string(), ""),
    (pa.binary(), b"\xff"),
    (pa.int64(), -(2**63)),
    (pa.int32(), 7),
    (pa.uint64(), 2**64 - 1),
    (pa.float64(), float("nan")),
    (pa.float64(), 1e308),
    (pa.float32(), 1.5),
    (pa.float16(), np.float16(2)),
    (pa.bool_(), True),
    (pa.null(), None),
    (pa.date32(), 1),
    (pa.timestamp("ns", "UTC"), 2**62),
    (pa.time64("us"), 5),
    (pa.duration("s"), 5),
    (pa.decimal128(38, 5), 1),
    (pa.list_(pa.int64()), [1, 2]),
    (pa.struct([("x", pa.int64())]), {"x": 1}),
    (pa.dictionary(pa.int32(), pa.string()), "a"),
    (pa.dictionary(pa.int8(), pa.int64()), 3),
    (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    (pa.binary(3), b"abc"),
    (pa.string(), "x" * 10_000),
]
_NAMES = ["user", "item", "rating", "user.x", "", "\x00", "Ü", "row", "value"]

#: A generated table: (name, number of the type, value or None for each row) per column.
_Columns = list[tuple[str, int, list[Any]]]


@dataclass
class Tables:
    """Parquet files with columns of all types."""

    file: str
    read: Callable[[Path], None]

    def seeds(self) -> list[_Columns]:
        """Tables of ids and values."""
        return [
            [("user", 0, ["a", "b", "a"]), ("item", 3, [1, 1, 2]), ("rating", 8, [1.0, 2.0, 3.5])],
            [("item", 19, ["a", "b"]), ("user", 4, [1, 1]), ("value", 7, [1.0, 2.0])],
        ]

    def damaged(self, rng: np.random.Generator, one: _Columns, other: _Columns) -> _Columns:
        """A copy with another type, name, value or number of columns or rows."""
        changed = deepcopy(one)
        for _ in range(int(rng.geometric(0.6))):
            if not changed:
                return deepcopy(other)
            k = int(rng.integers(len(changed)))
            name, kind, values = changed[k]
            how = int(rng.integers(7))
            if how == 0:
                kind = int(rng.integers(len(_COLUMNS)))
                changed[k] = (name, kind, [_COLUMNS[kind][1]] * len(values))
            elif how == 1:
                changed[k] = (_NAMES[int(rng.integers(len(_NAMES)))], kind, values)
            elif how == 2 and values:
                values[int(rng.integers(len(values)))] = [None, _COLUMNS[kind][1]][
                    int(rng.integers(2))
                ]
            elif how == 3:
                del changed[k]
            elif how == 4:
                changed.insert(k, deepcopy(changed[k]))
            elif how == 5:
                rows = int(rng.choice([0, 1, 2, 3, 50, 2000]))
                for column in changed:
                    column[2][:] = (column[2] * rows or [None] * rows)[:rows]
            else:
                changed[k] = (name, kind, values[::-1])
        return changed

    def content(self, one: _Columns) -> bytes:
        """The file."""
        rows = min((len(values) for _, _, values in one), default=0)
        arrays = [_arrow(kind, values[:rows]) for _, kind, values in one]
        names = [name for name, _, _ in one]
        try:
            return _parquet(pa.Table.from_arrays(arrays, names=names))
        except pa.ArrowException:  # types that Parquet does not have
            texts = [pa.array([str(value) for value in array.to_pylist()]) for array in arrays]
            return _parquet(pa.Table.from_arrays(texts, names=names))


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=max(1, table.num_rows // 2))
    return out.getvalue()


def _arrow(kind: int, values: list[Any]) -> pa.Array:
    """A column of this type; of strings if its values are of another one."""
    try:
        return pa.array(values, _COLUMNS[kind][0])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])


def read_text(path: Path) -> None:
    """Read delimited text, and copy it without its first entry."""
    layout = guess_layout(path)
    str(layout)
    _copied(path, read_ratings(path, layout, duplicates="last"), layout)


def read_member(path: Path) -> None:
    """Read a member of an archive."""
    read_ratings(Source(path, "ratings.csv"), duplicates="mean", dtype="float32")


def read_matrix(path: Path) -> None:
    """Read a matrix, and copy it without its first entry."""
    _copied(path, read_ratings(path), None)


def read_parquet_entries(path: Path) -> None:
    """Read entries of a Parquet file, and copy it without the first one."""
    entries = read_ratings(path, duplicates="last", wide=False)
    _copied(path, entries, None, parquet_columns(Source(path), None, None, None))


def _copied(path: Path, entries: Observed, layout: Any, columns: Any = None) -> None:
    marked = np.zeros(len(entries.rows.values), bool)
    marked[0] = len(marked) > 1
    out = path.with_name(f"copy-{path.name}")
    copy_without_entries(path, layout, columns, entries, marked, out)


def read_text_pairs(path: Path) -> None:
    """Read pairs of ids, and add a column to them."""
    for known in ((Known({"a", "b"}, False), Known({1, 2}, True)), (Known({"a"}, False),) * 2):
        pairs = read_pairs(path, known)
        added = {"prediction": [None, *[1.5] * (len(pairs.rows) - 1)][: len(pairs.rows)]}
        if pairs.table is None:
            pairs.text_with(added)  # type: ignore[arg-type]
        else:
            pairs.table_with(added)  # type: ignore[arg-type]


def read_groups(path: Path) -> None:
    """Read ratings by groups, in the two formats that exist."""
    content = path.read_bytes()
    form = GroupedForm("|", "\t", (0, 255)) if b"\t" in content else GroupedForm(":", ",", (1, 5))
    read_grouped([Source(path)], form)


def _texts() -> list[bytes]:
    return [
        _RATINGS,
        _RATINGS.replace(b",", b"\t"),
        _RATINGS.replace(b",", b"::").split(b"\n", 1)[1],
        b'"a,1","b","1.5"\r\n"c""d",b,2\r\n"e\nf",b,-1e3\r\n',
        b"1;2;3.5;9\n2;2;4;9\n007;2;1;9\n",
        b"7 1 0.5\n\n8 1 0.25\n",
    ]


def _wide_texts() -> list[bytes]:
    numbers = b"".join(b"%d,%d,,%d.5,-%d,1e%d,NA\n" % (k % 3, k, k, k, k) for k in range(9))
    return [
        b"2001,2002,2003,2004,2005,2006,2007\n" + numbers,
        numbers,
        b'id,a,b\n"x\ny",1.5,\nz,-,2\n',
        b",7,8,9\n4,1,0.5,-1\n5,,2,3\n",
        b"1;0,5;;;;\n2;;0,25;-1,5;;\n3;1,5;2,5;3,5;;\n",
        b"\t".join([b"1"] * 4100) + b"\n" + b"\t".join([b"2.5"] * 4100) + b"\n",
    ]


def _pairs() -> list[bytes]:
    return [b"user,item\na,1\nb,2\n", b'"a";1\n"c\nd";2\n']


def _groups() -> list[bytes]:
    return [
        b"1:\n7,5,2005-01-01\n8,3,2005-01-01\n2:\n7,1,2004-02-29\n",
        b"1|2\n7\t90\n8\t0\n2|1\n7\t255\n",
    ]


def _archives() -> list[dict[str, bytes]]:
    return [{"ratings.csv": _RATINGS}]


def _npz_bytes() -> list[bytes]:
    return [_zipped(one) for one in _npz_files()]


def _compressed_texts() -> list[bytes]:
    return [_RATINGS, _RATINGS + b"\n", _RATINGS + b"\n\n", _RATINGS + b"\n\n\n"]


def _matrix_market_files() -> list[bytes]:
    rng = np.random.default_rng(0)
    matrix = sp.coo_array(np.where(rng.random((4, 3)) < 0.5, rng.random((4, 3)), 0))
    files = []
    for content in (matrix, rng.standard_normal((3, 2))):
        out = io.BytesIO()
        scipy.io.mmwrite(out, content)
        files.append(out.getvalue())
    head = b"%%MatrixMarket matrix "
    return [
        *files,
        head + b"coordinate pattern symmetric\n%\n3 3 2\n1 1\n3 2\n",
        head + b"coordinate integer skew-symmetric\n3 3 1\n3 1 5\n",
        head + b"array real symmetric\n2 2\n1\nnan\n3\n",
        head + b"array double skew-symmetric\n3 3\n1\n2\n3\n",
    ]


def _npz_files() -> list[dict[str, bytes]]:
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(np.where(rng.random((4, 4)) < 0.5, rng.random((4, 4)), 0))
    files = []
    for kind in ("csr", "csc", "coo"):
        out = io.BytesIO()
        sp.save_npz(out, matrix.asformat(kind), compressed=False)
        with zipfile.ZipFile(out) as archive:
            files.append({name: archive.read(name) for name in archive.namelist()})
    return files


def _parquet_files() -> list[bytes]:
    tables = Tables("", read_parquet_entries)
    return [tables.content(one) for one in tables.seeds()]


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()
