"""Groups of options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from robustmf.cli.options import with_option_groups


@dataclass(frozen=True)
class Size:
    rows: Annotated[int, typer.Option("--rows", min=1)] = 3
    columns: Annotated[int, typer.Option("--columns", "-c")] = 4


@with_option_groups
def command(
    name: Annotated[str, typer.Argument()],
    *,
    flag: Annotated[bool, typer.Option("--flag")] = False,
    size: Size,
    last: Annotated[str, typer.Option("--last")] = "z",
) -> None:
    """Print the arguments."""
    print(name, flag, size, last)


@pytest.fixture
def run():
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_the_fields_of_a_group_are_options(run):
    assert run("a").stdout == f"a False {Size()} z\n"
    result = run("a", "--rows", "7", "-c", "8", "--flag", "--last", "y")
    assert result.stdout == f"a True {Size(7, 8)} y\n"


def test_options_of_a_group_are_checked_and_documented(run):
    assert run("a", "--rows", "0").exit_code == 2
    text = run("--help").stdout
    assert "Print the arguments." in text
    assert text.index("--flag") < text.index("--rows") < text.index("--columns")
    assert text.index("--columns") < text.index("--last")
