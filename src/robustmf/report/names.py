"""Ids as pages and terminals show them: of any kind, length and script, and harmless."""

from __future__ import annotations

import unicodedata
from html import escape
from typing import Any

_LONGEST = 60

#: What is spelled out: control characters, lone surrogates, ends of lines and paragraphs, and what turns the direction of text.
_SPELLED = ("Cc", "Cs", "Zl", "Zp")
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(key: Any) -> str:
    """An id as text that every encoding takes and that acts on nothing around it."""
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) in _SPELLED or letter in _TURNING
        else letter
        for letter in str(key)
    )


def short(key: Any) -> str:
    """The same, cut where it is endless, and not invisible."""
    text = plain(key)
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…") or "(empty)"


def cell(key: Any) -> str:
    """An id in a table: isolated, so that right-to-left text turns nothing around it; whole on hovering."""
    text = plain(key)
    title = f' title="{escape(text)}"' if len(text) > _LONGEST else ""
    return f"<bdi{title}>{escape(short(key))}</bdi>"


def hover(key: Any) -> str:
    """An id in a plot's label, where Plotly reads some HTML."""
    return f"\u2068{escape(short(key), quote=False)}\u2069"  # Plotly does not know &quot;
