"""``robustmf data``: the data sets, where they are, how to get them."""

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

from robustmf.cli.failures import reading
from robustmf.data.observed import Observed
from robustmf.datasets import load_dinosaur, load_jester, load_movielens, load_netflix, load_yahoo
from robustmf.datasets.catalog import KNOWN, MOVIELENS, DataSet
from robustmf.datasets.finding import data_folders, fetch, find_files, how_to_get

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Data sets: what there is, where it is, how to get it.",
)

Folder = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets; else the one ROBUSTMF_DATA names, then the cache."),
]
Name = Annotated[str, typer.Argument(help="A data set, as 'robustmf data list' calls it.")]


def _movielens(name: str, folder: Path | None) -> Observed:
    return load_movielens(name, folder, download=False).ratings


_LOADERS: dict[str, Callable[[Path | None], Observed]] = {
    **{data.name: partial(_movielens, name) for name, data in MOVIELENS.items()},
    "netflix": lambda folder: load_netflix(folder).ratings,
    "yahoo": lambda folder: load_yahoo(folder).ratings,
    "jester": lambda folder: load_jester(1, folder, download=False).ratings,
    "dinosaur": lambda folder: load_dinosaur(0, folder),
}


@app.command("list")
def list_sets(folder: Folder = None) -> None:
    """All data sets, with their official sizes and where they were found.

    Examples:
        robustmf data list

        robustmf data list --folder ~/data
    """
    table = Table(Column("name", no_wrap=True), "rows x columns", "entries", "found")
    for data in KNOWN.values():
        table.add_row(
            data.name,
            f"{data.shape[0]:,} x {data.shape[1]:,}",
            f"{data.n_ratings:,}",
            _place(data, folder),
        )
    console = Console()
    console.print(table)
    console.print(
        f"Looked in {', '.join(map(str, data_folders(folder)))}", soft_wrap=True, style="dim"
    )


@app.command()
def info(name: Name, folder: Folder = None) -> None:
    """What a data set is and, where it is there, what its files hold.

    Example:
        robustmf data info movielens-100k
    """
    data, console = _known(name), Console()
    table = Table("what", data.name)
    for what, text in (
        ("official size", f"{data.shape[0]:,} x {data.shape[1]:,}, {data.n_ratings:,} entries"),
        ("from", data.home),
        ("terms", data.terms),
        ("files", f"{data.folder}/: {', '.join(data.files)}"),
        ("archives", ", ".join(one.url for one in data.archives) or "none to download; by hand"),
        ("found", _place(data, folder)),
    ):
        table.add_row(what, text)
    if _found(data, folder):
        with reading():
            entries = _LOADERS[name](folder)
        values = entries.rows.values
        m, n = entries.shape
        table.add_row(
            "read",
            f"{m:,} x {n:,}, {entries.n_entries:,} entries, {100 * entries.n_entries / (m * n):.2f} % observed",
        )
        table.add_row(
            "values",
            f"{values.min():g} to {values.max():g}, mean {values.mean(dtype=np.float64):.4g}",
        )
    console.print(table)


@app.command()
def get(name: Name, folder: Folder = None) -> None:
    """Download a data set, checked against its checksum; it is kept as the archive it is."""
    data, console = _known(name), Console()
    if not data.archives:
        raise typer.BadParameter(
            f"{name} cannot be downloaded ({data.terms}): {how_to_get(data, data.files[0], folder)}"
        )
    for archive in data.archives:
        with _told():
            path = fetch(data, archive, folder)
        console.print(
            f"{path} ({archive.checksum.split(':')[0]} checked)", soft_wrap=True, highlight=False
        )


def _known(name: str) -> DataSet:
    if name not in KNOWN:
        raise typer.BadParameter(f"no data set is called {name!r}; there are {', '.join(KNOWN)}")
    return KNOWN[name]


def _found(data: DataSet, folder: Path | None) -> list[str]:
    return [str(source) for source in find_files(data, data.files, folder)]


def _place(data: DataSet, folder: Path | None) -> str:
    try:
        found = _found(data, folder)
    except ValueError as error:
        return f"damaged: {error}"
    if found:
        return found[0] + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    return (
        f"no; robustmf data get {data.name}"
        if data.archives
        else "no; by hand, see robustmf data info " + data.name
    )


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with files or the network is said in one line, without a traceback."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        Console(stderr=True).print(f"{error}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(1) from None
