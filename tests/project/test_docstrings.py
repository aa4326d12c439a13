"""Docstrings in numpydoc's form: the entry of a parameter with a default states it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import robustmf

SOURCE = Path(robustmf.__file__).parent
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

SECTION = re.compile(
    r"^Parameters\n-+\n(.*?)(?=\n\n[A-Z][A-Za-z ]+\n---|\Z)", re.DOTALL | re.MULTILINE
)
ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.MULTILINE)
STATED = re.compile(r"default=(?P<value>.+)$")


def defaults_of(node):
    """Names and default values of the parameters of a function or a class."""
    if isinstance(node, ast.ClassDef):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and one.value]
        found = {field.target.id: field.value for field in fields}
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                found |= defaults_of(one)
        return found
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    found = zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return {one.arg: default for one, default in (*found, *named) if default is not None}


def entries(tree):
    """The line of each documented parameter with a default, its name, and the default."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if not isinstance(node, kinds):
            continue
        section = SECTION.search(ast.get_docstring(node) or "")
        if section is None:
            continue
        defaults = defaults_of(node)
        for entry in ENTRY.finditer(section[1]):
            for name in entry["names"].replace("*", "").split(", "):
                if name in defaults:
                    yield entry[0], name, defaults[name]


def is_stated(line, default):
    """Whether a line states the default; one that is None may be called optional."""
    if isinstance(default, ast.Constant) and default.value is None and line.endswith(", optional"):
        return True
    stated = STATED.search(line)
    if stated is None:
        return "default=" in line and not isinstance(default, ast.Constant)
    try:
        return ast.literal_eval(stated["value"]) == ast.literal_eval(default)
    except (ValueError, SyntaxError):  # the name of an object, or one default per name
        return True


@pytest.mark.parametrize("file", FILES)
def test_each_parameter_with_a_default_states_it(file):
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    wrong = [line for line, _, default in entries(tree) if not is_stated(line, default)]
    assert not wrong


@pytest.mark.parametrize(
    ("line", "default", "expected"),
    [
        ("x : float, default=1.0", "1.0", True),
        ("x : float, default=2.0", "1.0", False),
        ("x : float, optional", "None", True),
        ("x : float, optional", "1.0", False),
        ("x", "1.0", False),
        ("x : str, default='a'", "'b'", False),
        ("x : (float, float), default=(0.0, 1.0)", "(0.0, 1.0)", True),
    ],
)
def test_the_check_notices_defaults_that_are_missing_or_different(line, default, expected):
    assert is_stated(line, ast.parse(default, mode="eval").body) == expected
