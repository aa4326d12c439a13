"""Model files and checkpoints: documents and arrays are changed, the checksum is valid."""

from __future__ import annotations

import json
import tempfile
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

import robustmf
from robustmf import MM, Observed, RobustMF
from robustmf.exceptions import NotSavableError, NumericalError
from robustmf.io.model_file import FORMAT, VERSION, Saved, insert_checksum, write
from stress.fuzzing.damage import damaged_array, damaged_value
from stress.fuzzing.tables import Bytes
from stress.fuzzing.target import Target

_DOCUMENT = "document"


def model_targets() -> dict[str, Target]:
    """Model files and checkpoints by name."""
    return {
        "model": Documents("a.rmf", _models, use_model),
        "model, bytes": Bytes("a.rmf", _models, use_model),
        "values in a model file": Documents("a.rmf", _values, use_values),
        "checkpoint": Documents("checkpoint", _checkpoints, resume),
    }


@dataclass
class Parts:
    """The content of a file: its JSON document, and its arrays by name."""

    document: dict[str, Any]
    arrays: dict[str, Any]


@dataclass
class Documents:
    """Files in the format of models."""

    file: str
    valid: Callable[[], list[bytes]]
    read: Callable[[Path], None]

    def seeds(self) -> list[Parts]:
        """Valid files in parts."""
        parts = []
        for content in self.valid():
            arrays = {name: array.copy() for name, array in from_safetensors(content).items()}
            parts.append(Parts(json.loads(arrays.pop(_DOCUMENT).tobytes()), arrays))
        return parts

    def damaged(self, rng: np.random.Generator, one: Parts, other: Parts) -> Parts:
        """A copy in which values of the document, or arrays, are changed."""
        changed = deepcopy(one)
        for _ in range(int(rng.geometric(0.7))):
            if rng.random() < 0.4 and changed.arrays:
                name = str(rng.choice(sorted(changed.arrays)))
                changed.arrays[name] = damaged_array(rng, changed.arrays[name])
                if rng.random() < 0.8:
                    _rename_dtype(changed.document, name, changed.arrays[name].dtype.name)
            elif changed.document:
                damaged_value(rng, changed.document, other.document)
        return changed

    def content(self, one: Parts) -> bytes:
        """The file with a valid checksum."""
        text = json.dumps(one.document).encode("utf-8", "surrogatepass")
        arrays = one.arrays | {_DOCUMENT: np.frombuffer(text, np.uint8)}
        content = bytearray(to_safetensors(arrays, {FORMAT: f"{VERSION} {'0' * 64}"}))
        return bytes(insert_checksum(content))


def _rename_dtype(document: Any, name: str, dtype: str) -> None:
    """State the type of an array in the document, wherever it is used."""
    if isinstance(document, dict):
        if document.get("array") == name:
            document["dtype"] = dtype
        for part in document.values():
            _rename_dtype(part, name, dtype)
    elif isinstance(document, list):
        for part in document:
            _rename_dtype(part, name, dtype)


def use_model(path: Path) -> None:
    """Load a model and use it: predictions, scores, random numbers, another file."""
    model = robustmf.load(path)
    repr(model)
    seed = model.random_state
    if isinstance(seed, (np.random.Generator, np.random.RandomState)):
        seed.standard_normal(1000)
    m = len(model.row_factors_)
    n = len(model.column_factors_)
    rows = np.arange(m) if model.row_ids_ is None else model.row_ids_
    columns = np.arange(n) if model.column_ids_ is None else model.column_ids_
    uses: list[Callable[[], object]] = [
        lambda: model.predict(list(rows[:2]), list(columns[:1]) * 2),
        lambda: model.recommend(rows[0], 2),
        lambda: model.similar_items(columns[0], 2),
        lambda: model.transform(np.ones((1, n))),
        model.outlier_scores,
        model.row_scores,
        lambda: model.save(path.with_name("saved.rmf")),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # overflow of huge factors
        for use in uses:
            try:
                use()
            except (ValueError, NumericalError, NotSavableError):
                continue  # about the model, not about its file


def use_values(path: Path) -> None:
    """Read values of all types that the format has, and write them again."""
    saved = robustmf.io.model_file.read(path)
    write(path.with_name("written.rmf"), saved)


@cache
def _models() -> list[bytes]:
    matrix = np.outer(np.arange(1.0, 7), np.arange(1.0, 6)) + np.eye(6, 5)
    settings = {"rank": 1, "n_jobs": 1, "max_iter": 3, "init": "random"}
    i, j = (index.ravel() for index in np.indices(matrix.shape))
    labelled = Observed.from_triplets(
        row=[f"r{k}" for k in i], col=j.tolist(), value=matrix.ravel().astype(np.float32)
    )
    models = [
        RobustMF(**settings, random_state=0).fit(Observed.from_dense(matrix)),
        RobustMF(**settings, bias=True, random_state=np.random.default_rng(1)).fit(labelled),
        RobustMF(**settings, loss="mcp", random_state=np.random.RandomState(1)).fit(
            Observed.from_dense(matrix), weights=np.linspace(0.5, 1, 30)
        ),
        RobustMF(**settings, loss="lsp", solver="mm").fit(Observed.from_dense(matrix)),
    ]
    return [_saved(model.save) for model in models]


@cache
def _values() -> list[bytes]:
    arrays = {
        "float": np.arange(4.0).reshape(2, 2),
        "dates": np.array(["2020-01-01", "NaT"], "datetime64[D]"),
        "strings": np.array([["a", "bc"]]),
        "bytes": np.array([b"a", b"bc"]),
        "objects": np.array([1, "a", None, (1, 2)], object),
        "scalar": np.float32(1.5),
        "delta": np.timedelta64(5, "s"),
        "empty": np.empty((0, 3), np.int32),
    }
    plain = {
        "bytes": b"\x00\xff",
        "datetime": datetime(2020, 1, 2, tzinfo=UTC),
        "date": date(2020, 1, 2),
        "delta": timedelta(1, 2, 3),
        "uuid": uuid.UUID(int=5),
        "decimal": Decimal("1.50"),
        "numbers": [float("nan"), float("inf"), 1 + 2j, 10**40, -0.0],
        "nested": {"a": ({"b": []}, None, True)},
        "loss": robustmf.losses.make_loss("scad"),
        "generators": [
            np.random.Generator(bits(0))
            for bits in (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
        ],
        "legacy": np.random.RandomState(3),
    }
    return [_saved(lambda path: write(path, Saved("anything", plain, arrays)))]


def _estimator(**changes: Any) -> RobustMF:
    settings = {"rank": 2, "random_state": 0, "n_jobs": 1, "max_iter": 4, "tol": 1e-12}
    return RobustMF(**settings | {"init": "random"} | changes)


#: Fits whose checkpoints are changed; the first parameter identifies them.
_FITS: dict[str, dict[str, Any]] = {
    "lsp": {"solver": "irls"},
    "huber": {"solver": "irls", "bias": True, "validation_fraction": 0.2},
    "geman": {"solver": MM(max_iter=3)},
    "cauchy": {"solver": "varpro"},
    "welsch": {"solver": "irls", "n_init": 3, "random_state": None},
}


@cache
def _entries() -> Observed:
    rng = np.random.default_rng(0)
    return Observed.from_dense(
        rng.standard_normal((9, 2)) @ rng.standard_normal((2, 8))
        + 0.1 * rng.standard_normal((9, 8))
    )


class _Stop(Exception):  # noqa: N818 - interrupts a fit
    pass


@cache
def _checkpoints() -> list[bytes]:
    """Checkpoints of interrupted fits, and of complete ones."""

    def interrupt(snapshot: Any) -> None:
        if snapshot.iteration > 1:
            raise _Stop

    def saved(path: Path, loss: str, callbacks: list[Callable[[Any], None]]) -> None:
        model = _estimator(loss=loss, callbacks=callbacks, **_FITS[loss])
        try:
            model.fit(_entries(), checkpoint=path, checkpoint_every=0)
        except _Stop:
            return

    return [
        _saved(lambda path, loss=loss, how=how: saved(path, loss, how))  # type: ignore[misc]
        for loss in _FITS
        for how in ([interrupt], [])
    ]


def resume(path: Path) -> None:
    """Resume the fit of the checkpoint; the file of another fit is refused."""
    content = path.read_bytes()
    names = [loss for loss in _FITS if f"robustmf.losses.{loss}.".encode() in content]
    loss = names[0] if names else "lsp"
    with warnings.catch_warnings(), suppress(NumericalError):
        # the state may be valid, although no iteration leads to it
        warnings.simplefilter("ignore", RuntimeWarning)
        _estimator(loss=loss, **_FITS[loss]).fit(_entries(), resume=path)


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "file"
        save(path)
        return path.read_bytes()
