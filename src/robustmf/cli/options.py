"""Groups of options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Expand parameters that are annotated with a dataclass to one option per field.

    Typer knows single options only. A command decorated with this function receives an instance of
    the dataclass, whose fields are annotated as the parameters of a Typer command are.
    """
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter)
            continue
        group: Any = parameter.annotation
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(group)
        ]

    def expanded(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    expanded.__name__ = command.__name__
    expanded.__doc__ = command.__doc__
    expanded.__module__ = command.__module__
    expanded.__annotations__ = {one.name: one.annotation for one in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded
