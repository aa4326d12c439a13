"""Execute the Python blocks of a Markdown page and insert their output below them.

The blocks of a page share one namespace and an empty working folder. A word after ``python``
selects how a block is treated:

- none: shown and executed, followed by its output and figures
- ``picture``: the same, with the code collapsed below the figures
- ``table``: as ``picture``, and the output is Markdown
- ``check``: executed but not shown; assertions for statements of the text
- ``fragment``: shown but not executed
"""

from __future__ import annotations

import html
import io
import re
import tempfile
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

WORDS = ("", "picture", "table", "check", "fragment")

_BLOCK = re.compile(
    r"^```python(?:[ ]+(?P<word>\w+))?[ ]*\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL
)

#: A gap between two columns of a printed table.
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")

#: An element drawn in this colour takes the colour of the surrounding text, in both themes.
_INK = "#010203"

_STYLE = {
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "figure.figsize": (7.2, 3.2),
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": mpl.cycler(color=["#2f81c9", "#e0702b", "#3a9d5d", "#b557b0", "#8a8a8a"]),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.facecolor": "none",
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "font.size": 9,
    "image.cmap": "gray",
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "robustmf",
}


@dataclass(frozen=True)
class Block:
    """A Python block of a page: the word after ``python``, its code, and its first line."""

    word: str
    code: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page after execution; :func:`with_figures` inserts the figures into its HTML."""

    text: str
    figures: dict[str, str]


def blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page."""
    return [_block(text, match) for match in _BLOCK.finditer(text)]


def run_page(text: str, path: Path) -> Page:
    """Execute the blocks of the page at ``path``; a traceback has the lines of the page."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    figures: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        block = _block(text, match)
        shown = f"```python\n{block.code}```"
        if block.word == "fragment":
            return shown
        printed, drawn = _run(block, path, names)
        if block.word == "check":
            return ""
        marks = []
        for figure in drawn:
            mark = f"picture-{path.stem}-{len(figures) + 1}"
            figures[mark] = _prefixed(figure, mark)
            marks.append(f'<figure id="{mark}"></figure>')
        output = (
            [
                printed
                if block.word == "table"
                else f"``` {{ .text {_kind(printed)} }}\n{printed}```"
            ]
            if printed
            else []
        )
        if block.word in ("picture", "table"):
            folded = '??? code "Code"\n\n' + "".join(
                f"    {line}" for line in shown.splitlines(keepends=True)
            )
            return "\n\n".join([*marks, *output, folded])
        return "\n\n".join([shown, *output, *marks])

    with tempfile.TemporaryDirectory() as folder, chdir(folder), mpl.rc_context(_STYLE):
        return Page(_BLOCK.sub(replaced, text), figures)


def with_figures(page_html: str, figures: dict[str, str]) -> str:
    """Return the HTML of a page with its figures inserted."""
    for mark, figure in figures.items():
        page_html = page_html.replace(
            f'<figure id="{mark}"></figure>', f'<figure id="{mark}">{figure}</figure>'
        )
    return page_html


def _kind(printed: str) -> str:
    """Return the classes of an output: lines of columns are not wrapped on narrow screens."""
    lines = [line for line in printed.splitlines() if len(_GAP.findall(line)) > 1]
    return ".output .columns" if len(lines) > 1 else ".output"


def _block(text: str, match: re.Match[str]) -> Block:
    word = match["word"] or ""
    line = text.count("\n", 0, match.start()) + 1
    if word not in WORDS:
        raise ValueError(
            f"line {line}: the word after ```python must be one of {', '.join(WORDS[1:])}, "
            f"or none, got {word!r}"
        )
    return Block(word, match["code"], line)


def _run(block: Block, path: Path, names: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the output of a block and its figures as SVG."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend was selected

    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile("\n" * block.line + block.code, str(path), "exec"), names)
    drawn = [_svg(plt.figure(number)) for number in plt.get_fignums()]
    plt.close("all")
    return printed.getvalue(), drawn


def _svg(figure: Any) -> str:
    """Return the figure as an SVG element in the colours of the page, labelled by its titles."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    label = html.escape("; ".join(title for title in titles if title) or "Picture", quote=True)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", written.getvalue(), flags=re.DOTALL)
    drawing = drawing[drawing.index("<svg") :].replace(_INK, "currentColor")
    return re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
        rf'<svg viewBox="\1" role="img" aria-label="{label}">',
        drawing,
        count=1,
    )


def _prefixed(drawing: str, prefix: str) -> str:
    """Make the ids of a figure unique: a page may contain several."""
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", drawing)
