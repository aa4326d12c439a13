"""Options from a TOML file: the table ``[fit]`` holds those of ``robustmf fit``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.cli.errors import BadInput

#: Options that cannot be set by the file.
_EXCLUDED = ("config", "help")


def option_names(command: Any) -> dict[str, str]:
    """Return the names of a command's parameters by their spelling in the file.

    The spelling is that of the long option without the leading dashes.
    """
    names: dict[str, str] = {}
    for parameter in command.params:
        if parameter.name not in _EXCLUDED:
            spelling = max(parameter.opts, key=len).lstrip("-")
            names[spelling] = str(parameter.name)
    return names


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the settings of the file the defaults of this command."""
    if path is None or ctx.resilient_parsing:
        return path
    command = str(ctx.info_name)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get(command, {})
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} is not valid TOML: {error}; expected lines such as 'rank = 10' below"
            f" [{command}]"
        ) from None
    if not isinstance(found, dict):
        raise BadInput(
            f"{path}: {command} must be a table, [{command}], with lines such as 'rank = 10'"
        )
    names = option_names(ctx.command)
    settings: dict[str, Any] = {}
    for key, value in found.items():
        spelling = key.replace("_", "-")
        if spelling not in names:
            raise BadInput(
                f"{path}: [{command}] has no setting {key!r}; there are {', '.join(sorted(names))}"
            )
        if isinstance(value, (dict, list)):
            raise BadInput(
                f"{path}: [{command}] {key} must be a number, a string or a boolean, got {value!r}"
            )
        settings[names[spelling]] = value
    ctx.default_map = {**(ctx.default_map or {}), **settings}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_load,
        is_eager=True,
        help="TOML file with options, e.g. 'rank = 10' below \\[fit]; the command line overrides"
        " it.",
    ),
]
