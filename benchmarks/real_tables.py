"""Errors of default fits on real tables, beside center, biases, medians, cmfrec and LIBMF.

A tenth of the entries is held out, clean; training entries of some tables are corrupted. Rank and
ridge of cmfrec and LIBMF are chosen on a tenth of the training entries; their predictions are
clipped to the scale of ratings, as those of RobustMF are. ``--ranks 1,2,5`` fits with given ranks
too. The video is that of ``datasets.make_video``. Tables whose files are not found are named;
``ROBUSTMF_DATA`` names the folder, with the files
``ml-100k/u.data``, ``niAPG/movielens1m.mat``, ``douban/training_test_dataset.mat`` (which needs
h5py), ``jester/jester-data-1.xls``, ``hangzhou/tensor.mat`` and ``ml-latest-small/ratings.csv``.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.measure import announce, in_new_process, markdown
from benchmarks.peer_models import libmf_factors, triplets
from benchmarks.problems import operations
from robustmf.data.observed import Observed
from robustmf.datasets import load_dinosaur, load_jester, load_movielens, make_video
from robustmf.estimator import RobustMF
from robustmf.initialization.biases import learned_biases
from robustmf.metrics import mae, rmse
from robustmf.selection import entry_split

SMALL = {"only": "video", "seeds": 1, "peers": 0}

Array = NDArray[np.floating[Any]]
Bounds = tuple[float, float]

#: The share of entries that is held out.
HELD_OUT = 0.1

#: Seconds that all fits of one package to one table may take; LIBMF hangs now and then.
_LIMIT = 900.0


@dataclass(frozen=True)
class Table:
    """Entries, and how predictions are compared.

    Attributes
    ----------
    entries : Observed
    error : callable
        ``rmse`` or ``mae``.
    bounds : (float, float) or None
        The scale of ratings.
    outliers : float
        The share of training entries that are replaced by values of the size of the largest.
    """

    entries: Observed
    error: Callable[[Any, Any], float]
    bounds: Bounds | None = None
    outliers: float = 0.0


def data_folder(data: Path | None) -> Path:
    """``data``, by default the folder named by ``ROBUSTMF_DATA``."""
    return data or Path(os.environ.get("ROBUSTMF_DATA", "."))


def _found(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there")
    return path


def _movielens_1m(folder: Path) -> Observed:
    """The ratings as the paper's authors filtered them."""
    table = scipy.io.loadmat(_found(folder / "niAPG" / "movielens1m.mat"))["data"]
    return Observed.from_sparse(sp.csr_matrix(table))


def _douban(folder: Path) -> Observed:
    import h5py  # noqa: PLC0415 - only for this file

    with h5py.File(_found(folder / "douban" / "training_test_dataset.mat")) as file:
        ratings = np.array(file["M"]).T
    return Observed.from_sparse(sp.csr_matrix(ratings.astype(np.float64)))


def _hangzhou(folder: Path) -> Observed:
    """Passengers by stations and by times of all days."""
    counts = scipy.io.loadmat(_found(folder / "hangzhou" / "tensor.mat"))["tensor"]
    return Observed.from_dense(counts.reshape(len(counts), -1).astype(np.float64))


def _video(_: Path) -> Observed:
    video = make_video(random_state=0)
    return Observed.from_dense(np.asarray(video.frames, np.float64).reshape(len(video.frames), -1))


TABLES: dict[str, Callable[[Path], Table]] = {
    "MovieLens latest-small": lambda folder: Table(
        load_movielens("latest-small", folder, download=False).ratings, rmse, (0.5, 5)
    ),
    "MovieLens-100K": lambda folder: Table(
        load_movielens("100k", folder, download=False).ratings, rmse, (1, 5)
    ),
    "MovieLens-1M": lambda folder: Table(_movielens_1m(folder), rmse, (1, 5)),
    "Jester": lambda folder: Table(load_jester(1, folder, download=False).ratings, rmse, (-10, 10)),
    "Douban": lambda folder: Table(_douban(folder), rmse, (1, 5)),
    "Hangzhou metro": lambda folder: Table(_hangzhou(folder), mae),
    "Hangzhou metro, 10 % outliers": lambda folder: Table(_hangzhou(folder), mae, outliers=0.1),
    "Dinosaur, 5 views": lambda folder: Table(load_dinosaur(5, folder), mae),
    "video": lambda folder: Table(_video(folder), mae),
}


def _corrupted(train: Observed, share: float, rng: np.random.Generator) -> Observed:
    """Replace a share of the values by values between zero and the largest."""
    values = train.rows.values.copy()
    bad = rng.random(len(values)) < share
    values[bad] = rng.uniform(0, values.max(), int(bad.sum()))
    return train.with_values(values)


def _indices(entries: Observed) -> tuple[Any, Any]:
    return entries.rows.group_of_entry(), entries.rows.indices


def _medians(train: Observed, test: Observed) -> Iterator[tuple[str, Array]]:
    """Predictions by the median of all values, of the row, and of the column."""
    center = float(np.median(train.rows.values))
    yield "center", np.full(test.n_entries, center)
    for name, side, of_test in zip(
        ("row medians", "column medians"), (train.rows, train.columns), _indices(test), strict=True
    ):
        ends = side.pointers
        medians = np.full(len(side), center)
        for k in np.flatnonzero(side.counts):
            medians[k] = np.median(side.values[ends[k] : ends[k + 1]])
        yield name, medians[of_test]


def _biases(train: Observed, test: Observed) -> Array:
    with operations(train, 1) as on_rows:
        found = learned_biases(on_rows)
    i, j = _indices(test)
    return np.asarray(found.center + found.row_bias[i] + found.column_bias[j])


def cmfrec_predictions(train: Observed, test: Observed, rank: int, ridge: float) -> Array:
    """Predictions of cmfrec after 15 iterations of exact ALS, its default."""
    from cmfrec import CMF  # noqa: PLC0415 - an extra

    model = CMF(
        k=rank, lambda_=ridge, method="als", use_cg=False, niter=15, nthreads=1, verbose=False
    )
    model.fit(sp.coo_matrix(train.to_sparse()))
    return np.asarray(model.predict(*_indices(test)))


def _libmf(train: Observed, test: Observed, rank: int, ridge: float) -> Array:
    center = float(np.mean(train.rows.values))
    scale = float(np.std(train.rows.values)) or 1.0
    standard = train.with_values((train.rows.values - center) / scale)
    P, Q = libmf_factors(triplets(standard), rank, 50, 0.05, ridge, 1)
    i, j = _indices(test)
    known = (i < len(P)) & (j < len(Q))
    predicted = np.zeros(test.n_entries)
    predicted[known] = np.einsum("tq,tq->t", P[i[known]], Q[j[known]])
    return np.asarray(center + scale * np.nan_to_num(predicted))


#: Predictions, ranks and ridges of other packages.
PEERS: dict[str, tuple[Callable[..., Array], tuple[int, ...], tuple[float, ...]]] = {
    "cmfrec": (cmfrec_predictions, (3, 10, 30), (3.0, 10.0, 30.0)),
    "libmf": (_libmf, (3, 10, 30), (0.02, 0.06, 0.2)),
}


def _tuned(package: str, table: Table, train: Observed, test: Observed, seed: int) -> float:
    """The error of a package whose rank and ridge are chosen on a tenth of the training entries."""
    predict, ranks, ridges = PEERS[package]
    part, validation = entry_split(train, (1 - HELD_OUT, HELD_OUT), seed)
    settings = min(
        product(ranks, ridges),
        key=lambda own: mae(validation.rows.values, predict(part, validation, *own)),
    )
    return prediction_error(table, test, predict(train, test, *settings))


def prediction_error(table: Table, test: Observed, predicted: Array) -> float:
    """The error of predictions, clipped to the scale of ratings."""
    if table.bounds is not None:
        predicted = np.clip(predicted, *table.bounds)
    return table.error(test.rows.values, predicted)


def _fitted(table: Table, train: Observed, test: Observed, rank: Any, seed: int) -> dict[str, Any]:
    started = time.process_time()
    model = RobustMF(rank, random_state=seed, n_jobs=1).fit(train)
    seconds = time.process_time() - started
    predicted = model.predict(*_indices(test))
    found = {"error": table.error(test.rows.values, np.asarray(predicted))}
    return found | {"rank": int(model.rank_), "bias": bool(model.has_bias_), "seconds": seconds}


def run(
    data: Path | None = None,
    seeds: int = 1,
    first_seed: int = 0,
    only: str = "",
    ranks: str = "",
    peers: int = 1,
) -> list[dict[str, Any]]:
    """One record per table and split; ``peers=0`` leaves other packages out."""
    records = []
    for name, make in TABLES.items():
        if only not in name:
            continue
        try:
            table = make(data_folder(data))
        except (FileNotFoundError, ImportError) as error:
            announce(f"{name}: {error}")
            continue
        for seed in range(first_seed, first_seed + seeds):
            records.append({"table": name, "seed": seed, **_compared(table, seed, ranks, peers)})
            announce(f"{name}, seed {seed}: {records[-1]}")
    return records


def _compared(table: Table, seed: int, ranks: str, peers: int) -> dict[str, Any]:
    """Errors of all methods on one split."""
    entries = Observed(table.entries.rows, table.entries.shape)  # positions instead of ids
    train, test = entry_split(entries, (1 - HELD_OUT, HELD_OUT), seed)
    if table.outliers:
        train = _corrupted(train, table.outliers, np.random.default_rng([seed, 7]))
    errors = {
        name: prediction_error(table, test, predicted) for name, predicted in _medians(train, test)
    }
    errors["biases"] = prediction_error(table, test, _biases(train, test))
    for package in PEERS if peers else ():
        if importlib.util.find_spec(package) is None:
            announce(f"{package} is not installed (pip install 'robustmf[bench]')")
            continue
        try:
            found = in_new_process(_tuned, package, table, train, test, seed, limit=_LIMIT)
        except (TimeoutError, RuntimeError) as error:
            announce(f"{package}: {error}")
        else:
            errors[package] = found
    given = {}
    for rank in map(int, filter(None, ranks.split(","))):
        given[str(rank)] = _fitted(table, train, test, rank, seed)["error"]
    own = _fitted(table, train, test, "auto", seed)
    measure = table.error.__name__
    return {"measure": measure, "default": own, "others": errors, "given_ranks": given}


def table(results: list[dict[str, Any]]) -> str:
    """The default fit beside the best of the others, and the worst given rank."""
    rows = []
    for record in results:
        own = record["default"]
        others = record["others"]
        best = min(others, key=others.__getitem__)
        given = record["given_ranks"]
        lowest = min([*given.values(), own["error"]])
        worst = max(given, key=given.__getitem__, default=None)
        shown = "" if worst is None else f"{worst}: {given[worst] / lowest:.3f}"
        rows.append(
            [
                record["table"],
                record["measure"].upper(),
                f"{own['error']:.4f}",
                f"{own['rank']}{', biases' if own['bias'] else ''}",
                *(f"{others[name]:.4f}" if name in others else "" for name in _SHOWN),
                f"{own['error'] / others[best]:.3f}",
                shown,
                f"{own['seconds']:.1f}",
            ]
        )
    header = ["table", "error", "default", "rank", *_SHOWN, "default / best"]
    return markdown("", [*header, "worst given rank / best", "CPU s"], rows)


_SHOWN = ("center", "row medians", "column medians", "biases", "cmfrec", "libmf")
