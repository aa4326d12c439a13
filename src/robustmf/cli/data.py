"""``robustmf data``: the known data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table

from robustmf.cli.errors import FAILED, reading_input
from robustmf.data.observed import Observed
from robustmf.datasets import load_dinosaur, load_jester, load_movielens, load_netflix, load_yahoo
from robustmf.datasets.catalog import KNOWN, MOVIELENS, DataSet
from robustmf.datasets.finding import data_folders, fetch, find_files, how_to_get

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="List, describe and download the known data sets.",
)

Folder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of data sets; by default the value of ROBUSTMF_DATA, then the cache."
    ),
]
Name = Annotated[str, typer.Argument(help="Name of a data set, as in 'robustmf data list'.")]


def _load_movielens(name: str, folder: Path | None) -> Observed:
    return load_movielens(name, folder, download=False).ratings


_LOADERS: dict[str, Callable[[Path | None], Observed]] = {
    **{data.name: partial(_load_movielens, name) for name, data in MOVIELENS.items()},
    "netflix": lambda folder: load_netflix(folder).ratings,
    "yahoo": lambda folder: load_yahoo(folder).ratings,
    "jester": lambda folder: load_jester(1, folder, download=False).ratings,
    "dinosaur": lambda folder: load_dinosaur(0, folder),
}


@app.command("list")
def list_sets(folder: Folder = None) -> None:
    """List all data sets with their official sizes and locations.

    Examples:
        robustmf data list

        robustmf data list --folder ~/data
    """
    table = Table(Column("name", no_wrap=True), "rows x columns", "entries", "location")
    for data in KNOWN.values():
        table.add_row(
            data.name,
            f"{data.shape[0]:,} x {data.shape[1]:,}",
            f"{data.n_ratings:,}",
            _location(data, folder),
        )
    console = Console()
    console.print(table)
    console.print(
        f"Searched in {', '.join(map(str, data_folders(folder)))}", soft_wrap=True, style="dim"
    )


@app.command()
def info(name: Name, folder: Folder = None) -> None:
    """Describe a data set and, if it is available, the content of its files.

    Example:
        robustmf data info movielens-100k
    """
    data = _data_set(name)
    table = Table("property", data.name)
    urls = ", ".join(archive.url for archive in data.archives)
    for title, text in (
        ("official size", f"{data.shape[0]:,} x {data.shape[1]:,}, {data.n_ratings:,} entries"),
        ("from", data.home),
        ("terms", data.terms),
        ("files", f"{data.folder}/: {', '.join(data.files)}"),
        ("archives", urls or "none; download by hand"),
        ("location", _location(data, folder)),
    ):
        table.add_row(title, text)
    if _paths(data, folder):
        with reading_input():
            entries = _LOADERS[name](folder)
        values = entries.rows.values
        m, n = entries.shape
        observed = 100 * entries.n_entries / (m * n)
        table.add_row(
            "content",
            f"{m:,} x {n:,}, {entries.n_entries:,} entries, {observed:.2f} % observed",
        )
        table.add_row(
            "values",
            f"{values.min():g} to {values.max():g}, mean {values.mean(dtype=np.float64):.4g}",
        )
    Console().print(table)


@app.command()
def get(name: Name, folder: Folder = None) -> None:
    """Download a data set and verify its checksum; the archive is not extracted."""
    data = _data_set(name)
    if not data.archives:
        instructions = how_to_get(data, data.files[0], folder)
        raise typer.BadParameter(f"{name} cannot be downloaded ({data.terms}): {instructions}")
    for archive in data.archives:
        with _errors_as_one_line():
            path = fetch(data, archive, folder)
        algorithm = archive.checksum.split(":")[0]
        Console().print(f"{path} ({algorithm} checked)", soft_wrap=True, highlight=False)


def _data_set(name: str) -> DataSet:
    """Return the data set of this name."""
    if name not in KNOWN:
        raise typer.BadParameter(f"no data set is called {name!r}; there are {', '.join(KNOWN)}")
    return KNOWN[name]


def _paths(data: DataSet, folder: Path | None) -> list[str]:
    """Return the files of a data set that are available."""
    return [str(source) for source in find_files(data, data.files, folder)]


def _location(data: DataSet, folder: Path | None) -> str:
    """Return the first file of a data set, or how to get it."""
    try:
        paths = _paths(data, folder)
    except ValueError as error:
        return f"damaged: {error}"
    if paths:
        return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
    if data.archives:
        return f"not found; robustmf data get {data.name}"
    return f"not found; download by hand, see robustmf data info {data.name}"


@contextmanager
def _errors_as_one_line() -> Iterator[None]:
    """Print errors of files and of the network as one line, without a traceback."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        Console(stderr=True).print(f"{error}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(FAILED) from None
