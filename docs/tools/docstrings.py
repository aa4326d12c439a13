"""Prepare docstrings for the site.

Sphinx roles become links, and grouped parameters are listed one by one: the parser gives grouped
parameters (``max_iter, tol : int, float``) the default of the first one, and parameters of type
``{"a", "b"}`` the first choice. Listed separately and without braces, each has the default of the
signature.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(
    r":(?:class|meth|func|attr|mod|data):`(?:[^`<]*<)?(?P<short>~?)(?P<target>[\w.]+)>?`"
)

_PARAMETERS = re.compile(
    r"(?<=^Parameters\n----------\n).*?(?=\n\n[A-Z][a-z]+\n---|\Z)", re.MULTILINE | re.DOTALL
)

_PARAMETER = re.compile(
    r"^(?P<names>\*{0,2}\w+(?:, \w+)*)(?: : (?P<kind>.*))?\n(?P<text>(?:(?:[ ].*)?(?:\n|\Z))*)",
    re.MULTILINE,
)


class Docstrings(Extension):
    """Rewrite the docstring of every object."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            text = _PARAMETERS.sub(
                lambda section: _PARAMETER.sub(_one_by_one, section[0]), obj.docstring.value
            )
            obj.docstring.value = _ROLE.sub(lambda role: _link(role, obj), text)


def _one_by_one(group: re.Match[str]) -> str:
    names = group["names"].split(", ")
    kind = (group["kind"] or "").strip("{}")
    kinds = kind.split(", ")
    each = kinds if len(kinds) == len(names) else [kind] * len(names)
    return "".join(
        f"{name}{' : ' if one else ''}{one}\n{group['text']}"
        for name, one in zip(names, each, strict=True)
    )


def _link(role: re.Match[str], obj: Object) -> str:
    target = role["target"]
    shown = target.rsplit(".", 1)[-1] if role["short"] else target.removeprefix("robustmf.")
    try:
        # resolve the name in the class and module of the docstring
        path = target if target.startswith("robustmf.") else _holder(obj).resolve(target)
    except Exception:  # griffe fails in several ways here; each means that there is no link
        return f"`{shown}`"
    return f'<autoref identifier="{path}" optional><code>{shown}</code></autoref>'


def _holder(obj: Object) -> Object:
    return obj if obj.is_class or obj.is_module or obj.parent is None else obj.parent
