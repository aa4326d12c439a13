"""Ids as pages show them: of any kind, length and script, and harmless."""

from __future__ import annotations

from html import escape
from typing import Any

_LONGEST = 60


def plain(key: Any) -> str:
    """An id as text that every encoding takes: control characters and lone surrogates are spelled out."""
    text = key if isinstance(key, str) else str(key)
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


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
    return f"\u2068{escape(short(key))}\u2069"
