"""What distinguishes a fit from others: its release, settings, data and seed, as plain values."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from robustmf.data.hashing import hash_ids
from robustmf.data.ids import compact_ids
from robustmf.data.observed import Observed
from robustmf.exceptions import CheckpointError
from robustmf.losses import Loss

#: Largest size of the pool of a seed sequence, in words; NumPy's default is 4.
_MAX_POOL = 1024

#: What to do about a checkpoint that cannot be used.
REMEDY = "the file is not modified: delete it or give another path to start a new fit"


def require_same_fit(path: Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse the checkpoint of another release or of another fit."""
    for name in ("version", "robustmf"):
        if not _is_equal(saved.get(name), current[name]):
            what = "robustmf" if name == "robustmf" else "checkpoints"
            raise CheckpointError(
                f"{path}: is of version {_abbreviated(saved.get(name))} of {what}, this is "
                f"{current[name]!r}: complete the fit with that release; {REMEDY}"
            )
    different = [
        name
        for name in sorted(saved.keys() | current.keys())
        if name not in saved or name not in current or not _is_equal(saved[name], current[name])
    ]
    if different:
        shown = ", ".join(
            _difference(name, saved.get(name), current.get(name)) for name in different
        )
        raise CheckpointError(
            f"{path}: is the checkpoint of another fit, with other {shown}; {REMEDY}"
        )


def _is_equal(saved: Any, current: Any) -> bool:
    """Whether two settings are equal; those that cannot be compared are not."""
    try:
        return bool(saved == current)
    except (TypeError, ValueError, ArithmeticError):
        return False


def _difference(name: str, saved: Any, current: Any) -> str:
    """How a setting of the checkpoint differs, in words."""
    if name == "random_state":  # the entropy of the seed would not help the user
        given = {True: "a seed", False: "none"}
        what = (
            "another seed"
            if saved is not None and current is not None
            else f"{given[saved is not None]} there, {given[current is not None]} here"
        )
        return f"random_state ({what}: give the one that the fit was started with)"
    return f"{name} ({_abbreviated(saved)} there, {_abbreviated(current)} here)"


def _abbreviated(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def digest(*arrays: Any) -> str:
    """SHA-256 of arrays with their types and shapes."""
    checksum = hashlib.sha256()
    for array in arrays:
        host = np.ascontiguousarray(np.asarray(array))
        checksum.update(f"{host.dtype.str} {host.shape} ".encode())
        checksum.update(host.data.cast("B") if host.size else b"")
    return checksum.hexdigest()


def digest_of_ids(observed: Observed) -> str:
    """SHA-256 of the ids, by which entries are selected that are held out."""
    sides = (observed.row_ids, observed.column_ids)
    return digest(
        *(np.empty(0, np.uint64) if ids is None else hash_ids(compact_ids(ids)) for ids in sides)
    )


def plain_setting(value: Any) -> Any:
    """A setting as a plain value to compare: losses as text, tuples with arrays by their digest."""
    if isinstance(value, Loss):
        cls = type(value)
        parameters = (f"{part.name}={getattr(value, part.name)!r}" for part in fields(value))
        return f"{cls.__module__}.{cls.__qualname__}({', '.join(parameters)})"
    if isinstance(value, (tuple, list)) and any(np.ndim(item) for item in value):
        return digest(*value)
    return value


def seed_of(rng: np.random.Generator) -> dict[str, Any]:
    """The seed sequence of a generator, which determines it and the generators it spawns."""
    sequence = rng.bit_generator.seed_seq
    if not isinstance(sequence, np.random.SeedSequence):
        raise TypeError(
            "random_state must come from a seed for a checkpoint, "
            f"got a generator with {type(sequence).__name__}"
        )
    entropy = [int(part) for part in np.atleast_1d(np.asarray(sequence.entropy, object))]
    key = [int(part) for part in sequence.spawn_key]
    return {
        "bits": type(rng.bit_generator).__name__,
        "entropy": entropy,
        "key": key,
        "pool": int(sequence.pool_size),
    }


def generator_of(seed: dict[str, Any]) -> np.random.Generator:
    """The generator that a fit without a given seed was started with."""
    integers = [seed["pool"], *seed["entropy"], *seed["key"]]
    if not all(isinstance(part, int) and part >= 0 for part in integers) or not (
        seed["entropy"] and seed["pool"] <= _MAX_POOL
    ):
        raise CheckpointError("its seed is invalid")
    entropy = seed["entropy"] if len(seed["entropy"]) > 1 else seed["entropy"][0]
    return np.random.default_rng(
        np.random.SeedSequence(entropy, spawn_key=tuple(seed["key"]), pool_size=seed["pool"])
    )
