"""Runs the Python blocks of a Markdown page, and puts what they print and draw beneath them.

The blocks of a page share one namespace and an empty working folder. A word after ``python`` says how a block is treated:

- none: shown, run, followed by what it printed and drew
- ``picture``: the same, with the code folded away below
- ``table``: as ``picture``, and what it printed is Markdown
- ``check``: run, not shown; assertions for what the prose says
- ``fragment``: shown, not run
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

#: Drawn in this colour, an element gets the colour of the text around the picture, by day and by night.
_INK = "#010203"

_STYLE = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), _INK),
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
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A Python block of a page: the word after ``python``, its code, and the line of the page above it."""

    word: str
    code: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page after its blocks were run; :func:`with_pictures` puts the pictures where ``text`` has their marks."""

    text: str
    pictures: dict[str, str]


def blocks(text: str) -> list[Block]:
    """The Python blocks of a page."""
    return [_block(text, match) for match in _BLOCK.finditer(text)]


def run_page(text: str, path: Path) -> Page:
    """Run the blocks of the page that stands in ``path``, top to bottom; an error in one goes through, with its line in the page."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    pictures: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        block = _block(text, match)
        shown = f"```python\n{block.code}```"
        if block.word == "fragment":
            return shown
        printed, drawn = _run(block, path, names)
        if block.word == "check":
            return ""
        marks = []
        for picture in drawn:
            mark = f"picture-{path.stem}-{len(pictures) + 1}"
            pictures[mark] = _prefixed(picture, mark)
            marks.append(f'<figure id="{mark}"></figure>')
        output = (
            [printed if block.word == "table" else f"``` {{ .text .output }}\n{printed}```"]
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
        return Page(_BLOCK.sub(replaced, text), pictures)


def with_pictures(page_html: str, pictures: dict[str, str]) -> str:
    """The finished page with its pictures in place."""
    for mark, picture in pictures.items():
        page_html = page_html.replace(
            f'<figure id="{mark}"></figure>', f'<figure id="{mark}">{picture}</figure>'
        )
    return page_html


def _block(text: str, match: re.Match[str]) -> Block:
    word, line = match["word"] or "", text.count("\n", 0, match.start()) + 1
    if word not in WORDS:
        raise ValueError(
            f"line {line}: the word after ```python must be one of {', '.join(WORDS[1:])}, or none, got {word!r}"
        )
    return Block(word, match["code"], line)


def _run(block: Block, path: Path, names: dict[str, Any]) -> tuple[str, list[str]]:
    """What the block printed, and its pictures as SVG."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend was chosen

    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile("\n" * block.line + block.code, str(path), "exec"), names)
    drawn = [_svg(plt.figure(number)) for number in plt.get_fignums()]
    plt.close("all")
    return printed.getvalue(), drawn


def _svg(figure: Any) -> str:
    """The figure as an SVG element in the page's own ink, as wide as there is room, with its titles read aloud."""
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
    """The drawing with ids of its own: a page may hold several."""
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", drawing)
