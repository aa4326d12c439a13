"""Docstrings as the site wants them: Sphinx roles become links, and parameters described together are listed one by one.

The parser gives parameters of one line (``max_iter, tol : int, float``) the default of the first, and those of ``{"a", "b"}`` the first
choice; listed one by one, without braces, each has the default of the signature.
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
    """Rewrites the docstring of every object once."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called for each object that was read from source."""
        if obj.docstring is not None:
            text = _PARAMETERS.sub(
                lambda section: _PARAMETER.sub(_one_by_one, section[0]), obj.docstring.value
            )
            obj.docstring.value = _ROLE.sub(lambda role: _link(role, obj), text)


def _one_by_one(group: re.Match[str]) -> str:
    names, kind = group["names"].split(", "), (group["kind"] or "").strip("{}")
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
        # a name as the docstring's own class and module see it
        path = target if target.startswith("robustmf.") else _holder(obj).resolve(target)
    except Exception:  # griffe has several kinds of failure here, and each means: no link
        return f"`{shown}`"
    return f'<autoref identifier="{path}" optional><code>{shown}</code></autoref>'


def _holder(obj: Object) -> Object:
    return obj if obj.is_class or obj.is_module or obj.parent is None else obj.parent
