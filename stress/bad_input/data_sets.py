"""Synthetic data, data sets and attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from robustmf import datasets
from stress.bad_input.cell import Cell, Raises
from stress.bad_input.samples import matrix, table


def synthetic_data_cells() -> Iterator[Cell]:
    """Synthetic data."""
    yield Cell(
        "datasets.make_synthetic",
        "rank above size",
        lambda: datasets.make_synthetic(5, rank=9),
        Raises(ValueError, "rank must be at most min.m, n."),
    )
    yield Cell(
        "datasets.make_synthetic",
        "share above 1",
        lambda: datasets.make_synthetic(50, outliers=2.0),
        Raises(ValueError, "outliers must lie in"),
    )
    yield Cell(
        "datasets.make_synthetic",
        "size with a fraction",
        lambda: datasets.make_synthetic(50.5),
        Raises(TypeError, "m must be an integer"),
    )
    yield Cell(
        "datasets.make_synthetic",
        "NaN noise",
        lambda: datasets.make_synthetic(50, noise=float("nan")),
        Raises(ValueError, "noise must be >= 0"),
    )
    yield Cell(
        "datasets.make_tracks",
        "too few points",
        lambda: datasets.make_tracks(3),
        Raises(ValueError, "points must be an integer >= 4"),
    )
    yield Cell(
        "datasets.make_tracks",
        "size with a fraction",
        lambda: datasets.make_tracks(50.5),
        Raises(TypeError, "points must be an integer"),
    )
    yield Cell(
        "datasets.make_tracks",
        "share above 1",
        lambda: datasets.make_tracks(mismatches=2),
        Raises(ValueError, "mismatches must lie in"),
    )
    yield Cell(
        "datasets.make_tracks",
        "NaN noise",
        lambda: datasets.make_tracks(noise=float("nan")),
        Raises(ValueError, "noise must be >= 0"),
    )
    yield Cell(
        "datasets.make_sensors",
        "too few days",
        lambda: datasets.make_sensors(3),
        Raises(ValueError, "days must be an integer >= 7"),
    )
    yield Cell(
        "datasets.make_sensors",
        "share above 1",
        lambda: datasets.make_sensors(spikes=2.0),
        Raises(ValueError, "spikes must lie in"),
    )
    yield Cell(
        "datasets.make_video",
        "size with a fraction",
        lambda: datasets.make_video(height=20.5),
        Raises(TypeError, "height must be an integer"),
    )


def data_set_cells() -> Iterator[Cell]:
    """Loaders of data sets, and attacks on ratings."""
    nowhere = {"folder": "/nowhere", "download": False}
    yield Cell(
        "datasets.load_movielens",
        "unknown name",
        lambda: datasets.load_movielens("3m"),
        Raises(ValueError, "name must be one of"),
    )
    yield Cell(
        "datasets.load_movielens",
        "files that are not there",
        lambda: datasets.load_movielens("10m", **nowhere),
        Raises(FileNotFoundError, "get movielens-10m from"),
    )
    yield Cell(
        "datasets.load_jester",
        "unknown part",
        lambda: datasets.load_jester(7),
        Raises(ValueError, "part must be 1, 2 or 3"),
    )
    yield Cell(
        "datasets.load_jester",
        "files that are not there",
        lambda: datasets.load_jester(3, **nowhere),
        Raises(FileNotFoundError, "get jester from"),
    )
    yield Cell(
        "datasets.load_netflix",
        "files that are not there",
        lambda: datasets.load_netflix("/nowhere"),
        Raises(FileNotFoundError, "get netflix from"),
    )
    yield Cell(
        "datasets.load_yahoo",
        "files that are not there",
        lambda: datasets.load_yahoo("/nowhere"),
        Raises(FileNotFoundError, "get yahoo from"),
    )
    for name in ("average_attack", "bandwagon_attack", "random_attack", "segment_attack"):
        call = getattr(datasets, name)
        more = (call, [1]) if name == "segment_attack" else (call,)
        yield Cell(
            f"datasets.{name}",
            "targets out of range",
            lambda more=more: _attacked(*more)(table(), [99]),
            Raises(ValueError, "targets must be distinct column indices"),
        )
        yield Cell(
            f"datasets.{name}",
            "targets of text",
            lambda more=more: _attacked(*more)(table(), ["i1"]),
            Raises(TypeError, "targets must be column indices"),
        )
        yield Cell(
            f"datasets.{name}",
            "not Observed",
            lambda more=more: _attacked(*more)(matrix(), [0]),
            Raises(TypeError, "ratings must be Observed"),
        )
    yield Cell(
        "datasets.love_hate",
        "share above 1",
        lambda: datasets.love_hate(table(), share=2.0),
        Raises(ValueError, "share must be above 0"),
    )
    yield Cell(
        "datasets.love_hate",
        "bounds that do not contain the ratings",
        lambda: datasets.love_hate(table(), (0, 1)),
        Raises(ValueError, "do not contain the ratings"),
    )
    yield Cell(
        "datasets.love_hate",
        "not Observed",
        lambda: datasets.love_hate(matrix()),
        Raises(TypeError, "ratings must be Observed"),
    )


def _attacked(call: Callable[..., Any], segment: list[int] | None = None) -> Callable[..., Any]:
    """The attack as a function of ratings and targets."""
    return call if segment is None else lambda ratings, targets: call(ratings, segment, targets)
