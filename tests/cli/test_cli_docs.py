"""The examples in docs/cli.md and in the help of the commands run as printed."""

from __future__ import annotations

import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robustmf.cli import COMMANDS, app
from robustmf.cli.errors import EXIT_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
DOCUMENTED_COMMANDS = {"fit", "predict", "recommend", "audit", "clean"}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def commands():
    """Yield (command, exit code, lines of output) for each command of the page."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            first, *shown = part.splitlines()
            command, _, note = first.partition("  # exit code ")
            yield command, int(note or 0), [line for line in shown if line != "..."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        exec(blocks("python")[0], {})
        run("robustmf fit ratings.csv --rank 2 --bias -o model.rmf")
        yield made


def run(command):
    program, *arguments = shlex.split(command)
    assert program == "robustmf"
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, prog_name="robustmf")


@pytest.mark.slow
def test_commands_of_the_page_have_the_output_shown(folder):
    listed = list(commands())
    assert {command.split()[1] for command, _, _ in listed} == DOCUMENTED_COMMANDS
    for command, code, shown in listed:
        result = run(command)
        assert result.exit_code == code, (command, result.output, result.exception)
        for line in shown:
            assert line in result.output.splitlines(), (command, line, result.output)


def examples():
    """Yield (name, example) for each example in the help of a command or subcommand."""
    for name in COMMANDS:
        module = import_module(f"robustmf.cli.{name}")
        functions = (
            [one.callback for one in module.app.registered_commands]
            if hasattr(module, "app")
            else [getattr(module, name)]
        )
        for function in functions:
            for line in (inspect.getdoc(function) or "").splitlines():
                if line.strip().startswith("robustmf "):
                    yield name, line.strip()


def test_every_command_has_examples():
    assert {name for name, _ in examples()} == set(COMMANDS)


def example_parameters():
    """Yield the examples; those that start a cluster or fit several models are slow."""
    for name, line in examples():
        slow = "--local-workers" in line or name == "demo"
        marks = [pytest.mark.slow] if slow else []
        yield pytest.param(name, line, marks=marks)


@pytest.mark.parametrize(("name", "line"), list(example_parameters()))
def test_examples_of_the_help(folder, name, line):
    for command in line.split(" && "):
        result = run(command)
        assert result.exit_code == 0, (command, result.output, result.exception)


def test_exit_codes_of_the_page():
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in PAGE


def test_summaries_are_the_first_lines_of_the_docstrings():
    for name, summary in COMMANDS.items():
        module = import_module(f"robustmf.cli.{name}")
        documentation = (
            module.app.info.help
            if hasattr(module, "app")
            else inspect.getdoc(getattr(module, name))
        )
        assert documentation.splitlines()[0] == summary
        assert name in PAGE
