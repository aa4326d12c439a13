"""Exit codes, and errors and warnings as single lines."""

from __future__ import annotations

import errno
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from robustmf.exceptions import CheckpointError, DeviceError, ModelFileError, RobustMFWarning
from robustmf.report.names import plain

OK = 0
FAILED = 1
USAGE = 2
BAD_INPUT = 3
NOT_INSTALLED = 4
INTERRUPTED = 130

#: Meaning of the exit codes, for --help and the documentation.
EXIT_CODES = {
    OK: "success",
    FAILED: "the operation failed (disk, network, arithmetic, or a defect of the program)",
    USAGE: "the command line or the value of an option is invalid",
    BAD_INPUT: "a data, model or configuration file is missing, damaged or invalid",
    NOT_INSTALLED: "a package of an extra is not installed",
    INTERRUPTED: "interrupted by Ctrl-C",
}

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

#: Arguments of the library that are options of the command line.
_ARGUMENT_NAMES = (
    "row",
    "col",
    "value",
    "delimiter",
    "header",
    "text_ids",
    "duplicates",
    "wide",
    "missing",
    "rank",
    "loss",
    "theta",
    "reg",
    "bias",
    "nonnegative",
    "solver",
    "max_iter",
    "tol",
    "validation_fraction",
    "bounds",
    "device",
    "level",
)
_ARGUMENT = re.compile(rf"(?<![/\w])({'|'.join(_ARGUMENT_NAMES)})=(True\b|(?=[\s,;.]|$))?")


class BadInput(Exception):  # noqa: N818 - named as exit code 3
    """A file is missing, damaged or invalid."""


@contextmanager
def reading_input() -> Iterator[None]:
    """Convert errors raised while a file is read to :class:`BadInput`."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        raise BadInput(str(error)) from error


def as_options(text: str) -> str:
    """Replace arguments by options in a message of the library: ``rank=5`` by ``--rank 5``."""
    return _ARGUMENT.sub(
        lambda found: f"--{found[1].replace('_', '-')}{' ' if found[2] is None else ''}", text
    )


class ErrorHandlingGroup(TyperGroup):
    """The root of the command line.

    Errors and warnings are printed as one line, and ``--debug`` is accepted at any position.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move ``--debug``, which is an option of the root, to the front."""
        end = args.index("--") if "--" in args else len(args)
        if "--debug" in args[:end]:
            args = ["--debug", *(arg for k, arg in enumerate(args) if arg != "--debug" or k >= end)]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error becomes one line and the exit code."""
        with _single_line_warnings():
            if ctx.params.get("debug"):
                return super().invoke(ctx)
            try:
                return super().invoke(ctx)
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(_print_error(error)) from None


def _print_error(error: BaseException) -> int:
    """Print an error and return the exit code; exceptions of the framework are raised again."""
    code, text = _classified(error)
    line = plain(" ".join(as_options(text).split()))
    typer.secho(f"Error: {line}", err=True, fg="red")
    return code


def _classified(error: BaseException) -> tuple[int, str]:
    """Return exit code and message; exceptions by which the framework exits are raised again."""
    if isinstance(error, _USAGE_ERROR) and type(error).__name__ != "NoArgsIsHelpError":
        where = getattr(getattr(error, "ctx", None), "command_path", "robustmf")
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        return USAGE, f"{message}; try '{where} --help'"
    is_framework = type(error).__module__.split(".")[0] in ("click", "typer")
    if is_framework or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        raise error
    if _was_interrupted(error):
        return INTERRUPTED, "interrupted"
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), None)
    if code is None:
        message = f"{type(error).__name__}: {error} (a defect of the program; see --debug)"
        return FAILED, message
    if isinstance(error, MemoryError) and not str(error):
        return code, "not enough memory; try a smaller --rank or less data"
    return code, str(error) or repr(error)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an error is or was caused by Ctrl-C, which imports of compiled code may convert."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


#: Exit codes by type of error; the first match counts.
_CODES: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((BadInput, ModelFileError, CheckpointError), BAD_INPUT),
    ((ImportError,), NOT_INSTALLED),
    ((ValueError, TypeError), USAGE),
    ((OSError, ArithmeticError, MemoryError, DeviceError), FAILED),
)


@contextmanager
def _single_line_warnings() -> Iterator[None]:
    """Print each warning of the library as one line on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RobustMFWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, RobustMFWarning):
                print(f"Warning: {plain(as_options(str(message)))}", file=sys.stderr)
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = show
        yield
