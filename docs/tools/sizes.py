"""Sizes of the package: modules, import layers, lines and constants.

``python docs/tools/sizes.py`` prints the table of the developer documentation, ``python
docs/tools/sizes.py FOLDER`` the same figures of another checkout.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]

#: The same figures before the package was restructured, at commit 90051e4. Its lines of code were
#: counted after ``ruff format --line-length 100``.
_BEFORE = {
    "modules at the top level, without packages": 34,
    "import layers": 26,
    "lines of more than 100 characters": 2941,
    "parameters of `RobustMF`": 24,
    "lines in the wheel": 28594,
    "lines for clusters": 3320,
    "lines of code for clusters, without comments and docstrings, formatted alike": 2972,
    "statements for clusters": 1971,
    "constants of modules that are numbers": 304,
}

#: Where the code for clusters is, and where it was.
_CLUSTER = ("distributed", "backends/dask", "cluster")

_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)

_NUMBER = (
    ast.Constant,
    ast.Tuple,
    ast.UnaryOp,
    ast.BinOp,
    ast.unaryop,
    ast.operator,
    ast.expr_context,
)


def sizes(root: Path) -> dict[str, int]:
    """Return the figures of a checkout."""
    package = root / "src" / "robustmf"
    files = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in files.items()}
    lines = [line for text in files.values() for line in text.splitlines()]
    of_cluster = [
        path for path in files if any(path.is_relative_to(package / part) for part in _CLUSTER)
    ]
    counts = (
        sum(path.suffix == ".py" and path.stem != "__init__" for path in package.iterdir()),
        len(_layers(root)),
        sum(len(line) > 100 for line in lines),
        next(filter(None, map(_parameters, trees.values()))),
        len(lines),
        sum(len(files[path].splitlines()) for path in of_cluster),
        sum(_lines_of_code(files[path]) for path in of_cluster),
        sum(_statements(trees[path]) for path in of_cluster),
        sum(len(list(_numbers(tree))) for tree in trees.values()),
    )
    return dict(zip(_BEFORE, counts, strict=True))


def _layers(root: Path) -> list[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    layers: list[str] = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return layers


def _parameters(tree: ast.Module) -> int:
    """The number of parameters of the constructor of RobustMF; 0 if it is in another module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "RobustMF":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    return len(method.args.args) + len(method.args.kwonlyargs) - 1
    return 0


def _lines_of_code(text: str) -> int:
    """The number of lines that have code, neither blank nor comments nor docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    used = {
        line
        for token in tokens
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    documented = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return len(used - documented)


def _statements(tree: ast.Module) -> int:
    """The number of statements, without docstrings: it does not depend on how lines are broken."""
    return sum(
        isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(tree)
    )


def _numbers(tree: ast.Module) -> Iterator[str]:
    """Names in capitals that a module binds to numbers or tuples of numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if node.value is None or not _is_number(node.value):
            continue
        for target in targets:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name.id):
                    yield name.id


def _is_number(value: ast.expr) -> bool:
    parts = list(ast.walk(value))
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    return (
        bool(constants)
        and all(isinstance(part, _NUMBER) for part in parts)
        and all(isinstance(one, int | float) and not isinstance(one, bool) for one in constants)
    )


def table(now: dict[str, int]) -> str:
    """Return the figures before and now, as a table in Markdown."""
    rows = [f"| {name} | {before:,} | {now[name]:,} |" for name, before in _BEFORE.items()]
    return "\n".join(["| figure | before | now |", "|---|---|---|", *rows])


if __name__ == "__main__":
    print(table(sizes(Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT)))
