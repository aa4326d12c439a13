"""How the command line ends: exit codes, and errors as one clear line."""

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

OK, FAILED, USAGE, BAD_INPUT, NOT_INSTALLED, INTERRUPTED = 0, 1, 2, 3, 4, 130

#: What the exit codes mean, for --help and the documentation.
EXIT_CODES = {
    OK: "all went well",
    FAILED: "it was tried and failed (disk, network, arithmetic, a defect)",
    USAGE: "the command line, or a setting in it, cannot be right",
    BAD_INPUT: "a data, model or config file is missing, damaged or not what it should be",
    NOT_INSTALLED: "a package of an extra is missing",
    INTERRUPTED: "interrupted by Ctrl-C",
}

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

#: The library speaks of arguments, name=value; here they are options.
_ARGUMENT = re.compile(r"(?<![/\w])(row|col|value|delimiter|header|text_ids|duplicates|rank|loss|theta|reg|bias|solver|max_iter|tol|"
                       r"validation_fraction|bounds|device|level)=(True\b|(?=[\s,;.]|$))?")  # fmt: skip


class BadInput(Exception):  # noqa: N818 - the word that exit code 3 has
    """A file that is missing, damaged or not what it should be."""


class NotInstalled(Exception):  # noqa: N818 - as above
    """A package of an extra is missing."""


@contextmanager
def reading() -> Iterator[None]:
    """Whatever is wrong with what is read here is the input's fault."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        raise BadInput(str(error)) from error


def as_options(text: str) -> str:
    """A message of the library in the words of the command line: ``rank=5`` becomes ``--rank 5``."""
    return _ARGUMENT.sub(
        lambda found: f"--{found[1].replace('_', '-')}{' ' if found[2] is None else ''}", text
    )


class Verbs(TyperGroup):
    """The root of the command line: one line for an error, ``--debug`` anywhere, warnings without a line of code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--debug`` belongs to the root, wherever it stands."""
        end = args.index("--") if "--" in args else len(args)
        if "--debug" in args[:end]:
            args = ["--debug", *(arg for k, arg in enumerate(args) if arg != "--debug" or k >= end)]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; what goes wrong is said in one line, and in the exit code."""
        with _plain_warnings():
            if ctx.params.get("debug"):
                return super().invoke(ctx)
            try:
                return super().invoke(ctx)
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(_told(error)) from None


def _told(error: BaseException) -> int:
    """Say what went wrong; the exit code. What is not an error of ours is raised again."""
    code, text = _judged(error)
    typer.secho(f"Error: {' '.join(as_options(text).split())}", err=True, fg="red")
    return code


def _judged(error: BaseException) -> tuple[int, str]:
    """The exit code and the words for an error; what the command line itself raises to end goes on."""
    if isinstance(error, _USAGE_ERROR) and type(error).__name__ != "NoArgsIsHelpError":
        where = getattr(getattr(error, "ctx", None), "command_path", "robustmf")
        return USAGE, f"{error.format_message().rstrip('.')}; try '{where} --help'"  # type: ignore[attr-defined]
    ours = type(error).__module__.split(".")[0] not in ("click", "typer")
    if not ours or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        raise error
    if _was_interrupted(error):
        return INTERRUPTED, "interrupted"
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), None)
    if code is None:
        return FAILED, f"{type(error).__name__}: {error} (a defect; --debug shows where)"
    return code, str(error) or (
        "not enough memory; try a smaller --rank or less data"
        if isinstance(error, MemoryError)
        else repr(error)
    )


def _was_interrupted(error: BaseException | None) -> bool:
    """Ctrl-C, also where it hit an import of compiled code, which turns it into an error of its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


#: Exit codes of errors, the first that fits; errors of files say so themselves, wherever they are raised.
_CODES: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((BadInput, ModelFileError, CheckpointError), BAD_INPUT),
    ((NotInstalled, ImportError), NOT_INSTALLED),
    ((ValueError, TypeError), USAGE),
    ((OSError, ArithmeticError, MemoryError, DeviceError), FAILED),
)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Our warnings as one line on standard error, each time; others are for developers."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RobustMFWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, RobustMFWarning):
                print(f"Warning: {as_options(str(message))}", file=sys.stderr)
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = show
        yield
