"""The command line: one module per command, imported when the command is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import robustmf
from robustmf.cli.errors import EXIT_CODES, ErrorHandlingGroup

#: The commands and the first lines of their docstrings, which lists them without importing them.
COMMANDS = {
    "fit": "Factorize a file of ratings or measurements and save the model.",
    "predict": "Predict the values at pairs of a row and a column.",
    "recommend": "Recommend the best columns (items) for rows (users).",
    "audit": "Detect bad entries, rows and columns of a file.",
    "clean": "Write a file without its bad entries, or with predictions instead.",
    "demo": "Recover a low-rank matrix from data with 5 % gross outliers.",
    "data": "List, describe and download the known data sets.",
}


class _LazyCommand(TyperCommand):
    """A command whose module is imported when it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        return load_command(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class _LazyGroup(ErrorHandlingGroup):
    """The root, with all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in COMMANDS.items():
            self.add_command(_LazyCommand(name, callback=None, help=summary))


def load_command(name: str) -> Any:
    """Import the command of this name: the ``app`` of its module, or its function."""
    module = import_module(f"robustmf.cli.{name}")
    if not hasattr(module, "app"):
        single = typer.Typer(add_completion=False)
        single.command()(getattr(module, name))
        return typer.main.get_command(single)
    return typer.main.get_command(module.app)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"robustmf {robustmf.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    + ".",
)


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; allowed at any position."),
    ] = False,
) -> None:
    """Robust matrix factorization: predict from data with outliers, and detect the outliers.

    Clean a file of ratings in three commands:

        pip install robustmf

        robustmf audit ratings.csv

        robustmf clean ratings.csv -o cleaned.csv
    """
