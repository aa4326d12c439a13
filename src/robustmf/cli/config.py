"""Settings from a TOML file: ``[fit]`` holds those of ``robustmf fit``; what the command line says wins."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.cli.failures import BadInput

#: Options whose name in the code is another.
_NAMES = {"json": "as_json", "all": "everyone"}


def _take(ctx: typer.Context, path: Path | None) -> Path | None:
    """The settings of this verb as its defaults."""
    if path is None or ctx.resilient_parsing:
        return path
    verb = str(ctx.info_name)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get(verb, {})
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} is not TOML: {error}; a line looks like 'rank = 10', below [{verb}]"
        ) from None
    if not isinstance(found, dict):
        raise BadInput(
            f"{path}: {verb} must be a section, [{verb}], with lines like 'rank = 10' below it"
        )
    options = {
        str(param.name): param
        for param in ctx.command.params
        if param.name not in ("config", "help")
    }
    settings: dict[str, Any] = {}
    for key, value in found.items():
        name = str(_NAMES.get(key, key)).replace("-", "_")
        if name not in options:
            raise BadInput(
                f"{path}: [{verb}] has no setting {key!r}; there are {', '.join(sorted(map(_spelled, options)))}"
            )
        if isinstance(value, (dict, list)):
            raise BadInput(
                f"{path}: [{verb}] {key} must be a number, a text, true or false, got {value!r}"
            )
        settings[name] = value
    ctx.default_map = {**(ctx.default_map or {}), **settings}
    return path


def _spelled(name: str) -> str:
    return next((option for option, own in _NAMES.items() if own == name), name).replace("_", "-")


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_take,
        is_eager=True,
        help="TOML file with settings, e.g. 'rank = 10' below \\[fit]; options win.",
    ),
]
