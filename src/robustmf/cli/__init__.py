"""The command line: one file a verb, imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import robustmf
from robustmf.cli.failures import EXIT_CODES, Verbs

#: The verbs and what they do, in the words of their own docstrings: to list them no verb need be imported.
VERBS = {
    "fit": "Factorize a file of ratings or measurements, and keep the model.",
    "predict": "Predict the values at pairs of a row and a column.",
    "recommend": "The best columns (items) for rows (users).",
    "audit": "Find the bad entries, rows and columns of a file, and write it without them.",
    "demo": "Recover a matrix with 5 % gross outliers, and say how well it went.",
    "data": "Data sets: what there is, where it is, how to get it.",
}


class _Late(TyperCommand):
    """A verb that is imported when it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        return _verb(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class _LateVerbs(Verbs):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in VERBS.items():
            self.add_command(_Late(name, callback=None, help=summary))


def _verb(name: str) -> Any:
    """The command of a verb: its module's ``app``, or its function."""
    module = import_module(f"robustmf.cli.{name}")
    if not hasattr(module, "app"):
        single = typer.Typer(add_completion=False)
        single.command()(getattr(module, name))
        return typer.main.get_command(single)
    return typer.main.get_command(module.app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"robustmf {robustmf.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_LateVerbs,
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
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
) -> None:
    """Robust matrix factorization: predict from bad data, and find what is bad in it.

    Clean a file of ratings in three commands:

        pip install robustmf

        robustmf audit ratings.csv

        robustmf audit ratings.csv --clean cleaned.csv
    """
