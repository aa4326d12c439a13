"""Files of models and of entries."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import robustmf
from robustmf.exceptions import MalformedFileError, ModelFileError, NotSavableError
from robustmf.io import reading
from stress.bad_input.cell import Cell, Raises
from stress.bad_input.samples import fitted, fresh, matrix


def file_cells() -> Iterator[Cell]:
    """Readers and writers of models and entries."""

    def with_file(name: str, content: bytes, reader: Callable[[Path], Any]) -> Callable[[], Any]:
        def call() -> Any:
            with tempfile.TemporaryDirectory(prefix="robustmf-") as folder:
                path = Path(folder) / name
                path.write_bytes(content)
                return reader(path)

        return call

    yield Cell(
        "load",
        "no such file",
        lambda: robustmf.load("/nowhere/model.rmf"),
        Raises(FileNotFoundError, "/nowhere/model.rmf"),
    )
    yield Cell(
        "load",
        "another kind of file",
        with_file("m.rmf", b"hello", robustmf.load),
        Raises(ModelFileError, "not a model file, or truncated"),
    )
    yield Cell(
        "load",
        "a folder",
        lambda: robustmf.load(tempfile.gettempdir()),
        Raises(IsADirectoryError, "tmp"),
    )
    yield Cell(
        "RobustMF.save",
        "no such folder",
        lambda: fitted().save("/nowhere/m.rmf"),
        Raises(FileNotFoundError, "/nowhere"),
    )
    yield Cell(
        "RobustMF.save",
        "a callback",
        lambda: fresh(callbacks=[lambda _: None]).fit(matrix()).save("m.rmf"),
        Raises(NotSavableError, "cannot save parameter callbacks"),
    )
    read = reading.read_ratings
    yield Cell(
        "reading.read_ratings",
        "no such file",
        lambda: read("/nowhere/a.csv"),
        Raises(FileNotFoundError, "/nowhere/a.csv"),
    )
    texts = {
        "empty file": (b"", "the file is empty"),
        "a line too short": (b"u,i,r\na,x,1\nb,y\n", "line 3: expected 3 fields"),
        "a value of text": (b"u,i,r\na,x,1\nb,y,z\n", "line 3: value 'z' is not a finite number"),
        "duplicate entries": (b"u,i,r\na,x,1\na,x,2\n", "duplicate entry"),
        "not text": (bytes(range(256)), "no delimiter gives three fields"),
    }
    for kind, (content, match) in texts.items():
        yield Cell(
            "reading.read_ratings",
            kind,
            with_file("a.csv", content, read),
            Raises(MalformedFileError, match),
        )
    market = (
        b"%%MatrixMarket matrix coordinate real general\n1000000 1000000 1000000000000\n1 1 1.0\n"
    )
    yield Cell(
        "reading.read_ratings",
        "a claim of 10¹² entries",
        with_file("a.mtx", market, read),
        Raises(MalformedFileError, "claims at least 6e[+]12 bytes"),
    )
    yield Cell(
        "reading.read_ratings",
        "wrong precision",
        lambda: read("a.csv", dtype="int8"),
        Raises(ValueError, "dtype must be 'float64' or 'float32'"),
    )
    yield Cell(
        "reading.guess_layout",
        "column missing from the file",
        with_file("a.csv", b"u,i,r\na,x,1\n", lambda path: reading.guess_layout(path, row="who")),
        Raises(ValueError, "row='who' is not a column; the header names"),
    )
