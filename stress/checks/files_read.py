"""Files: readers return entries or name the file in an error, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import resource
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
from hypothesis import strategies as st

import robustmf
from robustmf import Observed, RobustMF
from robustmf.exceptions import MalformedFileError, ModelFileError, RobustMFWarning
from robustmf.io.model_file import insert_checksum
from robustmf.io.reading import Source, guess_layout, read_ratings
from robustmf.io.reading.grouped import GroupedForm, read_grouped
from robustmf.io.reading.pairs import Known, read_pairs
from stress.generated import explore
from stress.tally import Tally

TITLE = "damaged and hostile files: entries or an error that names the file, in bounded memory"
CASES = 6000
FEW = 150

#: Bytes of memory that a reader may allocate.
_MEMORY = 3 * 2**30

#: Bytes for a file of a few megabytes that has many columns.
_COLUMNS_MEMORY = 600 * 2**20

#: The content of a valid file of each kind, by its ending.
_TEXT = b"user,film,stars\n" + b"".join(b"u%d,f%d,%d\n" % (k % 7, k % 5, k % 5) for k in range(35))


def _seeds() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(np.where(rng.random((6, 5)) < 0.5, rng.random((6, 5)), 0))
    market, array, npz, coo, parquet, model = (io.BytesIO() for _ in range(6))
    scipy.io.mmwrite(market, sp.coo_array(matrix))
    scipy.io.mmwrite(array, rng.standard_normal((4, 3)))
    sp.save_npz(npz, matrix)
    sp.save_npz(coo, sp.coo_array(matrix), compressed=False)
    pq.write_table(
        pa.table({"user": ["a", "b", "a"], "item": [1, 1, 2], "rating": [1.0, 2.0, 3.5]}), parquet
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        path = Path(folder) / "model"
        RobustMF(rank=1, random_state=0, n_jobs=1).fit(
            Observed.from_dense(np.outer(np.arange(1.0, 9), np.arange(1.0, 7)))
        ).save(path)
        model.write(path.read_bytes())
    return {
        "a.csv": _TEXT,
        "b.tsv": _TEXT.replace(b",", b"\t"),
        "c.dat": _TEXT.replace(b",", b"::").split(b"\n", 1)[1],
        "quoted.csv": b'"a,1","b","1.5"\r\n"c""d",b,2\r\n',
        "d.csv.gz": gzip.compress(_TEXT),
        "e.mtx": market.getvalue(),
        "f.mtx": array.getvalue(),
        "g.mtx.gz": gzip.compress(market.getvalue()),
        "h.npz": npz.getvalue(),
        "i.npz": coo.getvalue(),
        "j.parquet": parquet.getvalue(),
        "k.rmf": model.getvalue(),
        "checksummed.rmf": model.getvalue(),
        "l.netflix": b"1:\n7,5,2005-01-01\n8,3,2005-01-01\n2:\n7,1,2004-02-29\n",
        "m.pairs": b"user,item\na,1\nb,2\n",
        "n.zip": _zipped("ratings.csv", _TEXT),
        "o.csv.bz2": bz2.compress(_TEXT),
        "pairs.parquet": parquet.getvalue(),
    }


#: Bytes that are inserted: large numbers, keywords, ends of lines and strings, magic numbers.
_PIECES = (
    b"999999999999999999999",
    b"1000000000000",
    b"-1",
    b"2147483648",
    b"9223372036854775807",
    b"nan",
    b"inf",
    b"1e999",
    b"-0",
    b"0x10",
    b"\x00",
    b"\n",
    b"\r",
    b"\r\n",
    b'"',
    b",",
    b"\t",
    b"::",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"%%MatrixMarket",
    b"symmetric",
    b"complex",
    b"pattern",
    b"integer",
    b"array",
    b"coordinate",
    b"PK\x03\x04",
    b"PAR1",
    b"|O8",
    b"(1000000000000,)",
    b"<f8",
    b"{",
    b"}",
    b"[" * 50,
    b"\x1f\x8b",
    "漢é".encode(),
    b" " * 100,
)


@dataclass(frozen=True)
class Damage:
    """A valid file and steps of damage: (kind, relative position, length, piece or byte)."""

    name: str
    steps: tuple[tuple[str, float, int, int], ...]

    def content(self, seeds: dict[str, bytes]) -> bytes:
        """The damaged bytes."""
        content = bytearray(_unpacked(self.name, seeds[self.name]))
        for kind, where, length, which in self.steps:
            start = int(where * len(content))
            if kind == "flip" and content:
                content[min(start, len(content) - 1)] ^= which % 255 + 1
            elif kind == "cut":
                del content[start:]
            elif kind == "remove":
                del content[start : start + length]
            elif kind == "repeat":
                content[start:start] = content[start : start + length] * 3
            elif kind == "insert":
                content[start:start] = _PIECES[which % len(_PIECES)]
            elif kind == "overwrite":
                piece = _PIECES[which % len(_PIECES)]
                content[start : start + len(piece)] = piece
            elif kind == "number":
                _replace_number(content, which)
            elif kind == "splice":
                other = seeds[sorted(seeds)[which % len(seeds)]]
                content[start:] = other[int(where * len(other)) :]
        return _packed(self.name, bytes(content), steps=len(self.steps))


def _replace_number(content: bytearray, which: int) -> None:
    """Replace one number of the text."""
    numbers = list(re.finditer(rb"\d+", content))
    if numbers:
        found = numbers[which % len(numbers)]
        content[found.start() : found.end()] = _PIECES[which % 10]


def _unpacked(name: str, content: bytes) -> bytes:
    """The content to damage: that of a gzip file is decompressed."""
    return gzip.decompress(content) if name.endswith(".gz") else content


def _packed(name: str, content: bytes, steps: int) -> bytes:
    if name.endswith(".gz"):
        packed = gzip.compress(content)
        return packed[: len(packed) * 2 // 3] if steps == 3 else packed
    if name == "checksummed.rmf":
        return _with_checksum(content)
    return content


def _with_checksum(content: bytes) -> bytes:
    """The model file with a valid checksum, so that the checks after it are tested too."""
    found = re.search(rb'"robustmf":"1 ([0-9a-f]{64})"', content)
    if found is None:
        return content
    return bytes(
        insert_checksum(bytearray(content[: found.start(1)] + b"0" * 64 + content[found.end(1) :]))
    )


def damages() -> st.SearchStrategy[Damage]:
    """All kinds of damage."""
    step = st.tuples(
        st.sampled_from(
            ("flip", "cut", "remove", "repeat", "insert", "overwrite", "number", "splice")
        ),
        st.floats(0, 1),
        st.integers(1, 40),
        st.integers(0, 1000),
    )
    return st.builds(
        Damage,
        name=st.sampled_from(sorted(_seeds())),
        steps=st.lists(step, min_size=1, max_size=4).map(tuple),
    )


def read(path: Path) -> Any:
    """The result of the reader for this kind of file."""
    if path.suffix == ".rmf":
        model = robustmf.load(path)
        return (
            model.predict(np.arange(2), np.arange(2)),
            model.recommend(0, 2),
            model.transform(np.ones((1, model.n_features_in_))),
        )
    if path.suffix == ".netflix":
        return read_grouped([Source(path)], GroupedForm(":", ",", (1, 5)))
    if path.suffix == ".pairs" or path.name == "pairs.parquet":
        return read_pairs(path, (Known({"a", "b"}, False), Known({1, 2}, True)))
    if path.suffix == ".zip":
        return read_ratings(Source(path, "ratings.csv"), duplicates="last")
    if path.suffix in (".csv", ".tsv", ".dat", ".gz") and ".mtx" not in path.name:
        str(guess_layout(path))
    return read_ratings(path, duplicates="last")


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Limit the additional address space of the process; larger allocations raise MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def check_file(path: Path, reader: Callable[[Path], Any] = read) -> None:
    """Read; an error must name the file."""
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        try:
            reader(path)
        except (MalformedFileError, ModelFileError, ValueError) as error:
            assert str(path) in str(error), (
                f"the message does not name the file: {type(error).__name__}: {error}"
            )
            assert "\n" not in str(error), f"the message has several lines: {error}"
    assert path.read_bytes() == before, "the file was modified"


def run(tally: Tally, cases: int, seed: int) -> None:
    """Valid files, hand-written hostile files, then damage generated by Hypothesis."""
    seeds = _seeds()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in seeds.items():
            path = root / name
            path.write_bytes(content)
            with tally.case(f"{name}, undamaged"):
                read(path)
        with limited_memory(_MEMORY):
            _traps(tally, root)
            with tally.case("250,000 columns"), limited_memory(_COLUMNS_MEMORY):
                path = root / "columns.csv"
                path.write_bytes(many_columns(250_000))
                assert read(path).shape == (3, 250_000)

            def check(damage: Damage) -> None:
                path = root / damage.name
                path.write_bytes(damage.content(seeds))
                check_file(path)

            explore(tally, damages(), check, cases, seed)


def _traps(tally: Tally, root: Path) -> None:
    """Files made to allocate memory, run code or write elsewhere."""
    for name, content in traps().items():
        path = root / name
        path.write_bytes(content)
        with tally.case(name):
            try:
                read(path)
            except (MalformedFileError, ModelFileError) as error:
                assert str(path) in str(error), f"the message does not name the file: {error}"
            else:
                raise AssertionError("a hostile file was read as data")


def many_columns(number: int) -> bytes:
    """A wide CSV file of three rows with labels."""
    header = ",".join(["id", *(f"c{k}" for k in range(number))])
    lines = (f"r{row}" + f",{row}" * number for row in range(3))
    return "\n".join([header, *lines, ""]).encode()


def traps() -> dict[str, bytes]:
    """Small files that declare large data or contain code."""
    return {
        "claims.mtx": b"%%MatrixMarket matrix coordinate real general\n"
        b"1000000 1000000 1000000000000\n1 1 1.0\n",
        "dense.mtx": b"%%MatrixMarket matrix array real general\n1000000 1000000\n1.0\n",
        "negative.mtx": b"%%MatrixMarket matrix coordinate real general\n-5 5 1\n1 1 1.0\n",
        "overflow.mtx": b"%%MatrixMarket matrix coordinate real general\n"
        b"9223372036854775807 9223372036854775807 1\n1 1 1.0\n",
        "symmetric.mtx": b"%%MatrixMarket matrix array real symmetric\n1000000 1000000\n1.0\n",
        "bomb.mtx.gz": gzip.compress(
            b"%%MatrixMarket matrix coordinate real general\n9 9 100000000\n" + b"1 1 1\n" * 10**6
        ),
        "claims.npz": _npz({"data": _header("(1000000000000,)")}),
        "objects.npz": _npz({"data": _pickled()}),
        "format.npz": _npz({"format": _pickled(), "data": _pickled(), "shape": _pickled()}),
        "wide.npz": _sparse_npz(np.array([10**9, 10**9])),
        "outside.npz": _sparse_npz(np.array([2, 2]), indices=np.array([0, 10**6], np.int32)),
        "pointers.npz": _sparse_npz(np.array([2, 2]), indptr=np.array([0, 10**9, 2], np.int64)),
        "backwards.npz": _sparse_npz(np.array([2, 2]), indptr=np.array([0, -7, 2], np.int64)),
        "bomb.npz": _npz({"data": _header("(500000000,)") + bytes(8 * 10**6)}),
        "zeros.npz": _npz(
            {"../../outside": _header("(1,)") + bytes(8), "/etc/x": _header("(1,)") + bytes(8)}
        ),
        "rows.parquet": _constant_parquet(45, 10**6),
        "length.rmf": (2**62).to_bytes(8, "little") + b"{}",
        "claims.rmf": _safetensors(
            b'{"x":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}'
        ),
        "deep.rmf": _safetensors(b"[" * 100_000),
        "number.rmf": _safetensors(b'{"x":' + b"9" * 100_000 + b"}"),
        "long line.csv": b"a,b," + b"1" * 10**7 + b"\n",
        "no line.csv": b"\x00" * 10**6,
        "bomb.csv.gz": gzip.compress(b"a" * 10**8, 9),
        "quote.csv": b'user,item,rating\n"a,1,2\n' + b"b,1,2\n" * 1000,
    }


def _header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


class _Runs:
    """Unpickling this would write a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(tempfile.gettempdir()) / "robustmf-was-here",)


def _pickled() -> bytes:
    held = io.BytesIO()
    np.lib.format.write_array(held, np.array([_Runs()], object), allow_pickle=True)
    return held.getvalue()


def _zipped(name: str, content: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return held.getvalue()


def _npz(members: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return held.getvalue()


def _sparse_npz(shape: Any, **changed: Any) -> bytes:
    parts = {
        "data": np.ones(2),
        "indices": np.array([0, 1], np.int32),
        "indptr": np.array([0, 1, 2], np.int32),
        "shape": shape,
    } | changed
    held = io.BytesIO()
    np.savez(held, format=np.array(b"csr"), **parts)
    return held.getvalue()


def _constant_parquet(groups: int, rows: int) -> bytes:
    """Many rows in a few bytes: one value, repeated."""
    table = pa.table(
        {"user": pa.repeat(1, rows), "item": pa.repeat(1, rows), "rating": pa.repeat(1.0, rows)}
    )
    held = io.BytesIO()
    with pq.ParquetWriter(held, table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return held.getvalue()


def _safetensors(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header
