"""Ids as text on pages and terminals: of any type, length and script, without side effects."""

from __future__ import annotations

import re
import unicodedata
from html import escape
from string import whitespace
from typing import Any

_MAX_LENGTH = 60

#: Maximum number of characters of a label in a picture.
_TICK_LENGTH = 16

#: Unicode categories that are escaped: control characters, lone surrogates, line and paragraph
#: separators.
_ESCAPED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")

#: Characters that change the direction of text, which are escaped, too.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

#: End of a time of day without seconds, or of a date without a time of day.
_ZEROS = re.compile(r"(?<=\d) 00:00:00$|(?<= \d\d:\d\d):00$")

#: First characters by which spreadsheets recognize formulas, full-width forms among them.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

#: Invisible characters that are not white space, which may precede them.
_INVISIBLE = "\ufeff\u200b\u2060"


def plain(key: Any, keep: str = "") -> str:
    """Return an id or a text without effect on the text around it or on a terminal.

    Characters that control a terminal or the direction of text are written as escape sequences of
    Python, except those in ``keep``.
    """
    text = str(key)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in keep
        and (unicodedata.category(letter) in _ESCAPED_CATEGORIES or letter in _BIDI_CONTROLS)
        else letter
        for letter in text
    )


def short(key: Any, length: int = _MAX_LENGTH) -> str:
    """Return an id as text of limited length, "(empty)" for an empty one."""
    text = plain(key)
    return (text if len(text) <= length else text[: length - 1] + "…") or "(empty)"


def tick(key: Any) -> str:
    """Return an id as text for an axis: of limited length, times without zeros at their end."""
    text = _ZEROS.sub("", plain(key))
    return short(text, _TICK_LENGTH)


def cell(key: Any) -> str:
    """Return an id as HTML: isolated from the direction of other text, complete as tooltip."""
    text = plain(key)
    title = f' title="{escape(text)}"' if len(text) > _MAX_LENGTH else ""
    return f"<bdi{title}>{escape(short(key))}</bdi>"


def isolated(key: Any) -> str:
    """Return an id as text for a label, isolated from the direction of the text around it."""
    return f"\u2068{short(key)}\u2069"


def csv_text(text: str) -> str:
    """Return a text that spreadsheets do not interpret as a formula.

    If it begins as a formula does, perhaps after blanks, and is not a number, an apostrophe is put
    before it, which spreadsheets do not show.
    """
    visible = text.lstrip(_INVISIBLE + whitespace + "\u00a0\u3000")
    if not (text.startswith(_FORMULA_STARTS) or visible.startswith(_FORMULA_STARTS)):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
