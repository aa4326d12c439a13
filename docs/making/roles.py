"""Docstrings name other objects by Sphinx roles; here these become links of the site, where it has the object."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|meth|func|attr|mod|data):`(?:[^`<]*<)?(?P<short>~?)(?P<target>[\w.]+)>?`")


class Roles(Extension):
    """Rewrites the docstring of every object once."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called for each object that was read from source."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda match: _link(match, obj), obj.docstring.value)


def _link(match: re.Match[str], obj: Object) -> str:
    target = match["target"]
    shown = target.rsplit(".", 1)[-1] if match["short"] else target.removeprefix("robustmf.")
    try:
        # a name as the docstring's own class and module see it
        path = target if target.startswith("robustmf.") else _holder(obj).resolve(target)
    except Exception:  # griffe has several kinds of failure here, and each means: no link
        return f"`{shown}`"
    return f'<autoref identifier="{path}" optional><code>{shown}</code></autoref>'


def _holder(obj: Object) -> Object:
    return obj if obj.is_class or obj.is_module or obj.parent is None else obj.parent
