"""Charts of pages as SVG elements, which take their colors from the page.

A chart is a string without scripts and style attributes, so that the Content-Security-Policy of a
page can forbid both. All texts are escaped here.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ChartLayout:
    """Lengths of a chart, in pixels at its natural size.

    Attributes
    ----------
    width : int
        The width of a chart with its margins.
    left, right, right_of_secondary, top, bottom : int
        The margins; ``right_of_secondary`` is for a second axis on the right.
    character : float
        The width of a character of the ticks.
    """

    width: int = 480
    left: int = 60
    right: int = 14
    right_of_secondary: int = 54
    top: int = 12
    bottom: int = 52
    character: float = 8.5


LAYOUT = ChartLayout()

#: Colors of series with sufficient contrast on white and on black.
COLORS = (
    "#3b7dd8",
    "#d97b16",
    "#2f9e5d",
    "#b557b0",
    "#d63a3a",
    "#948224",
    "#1a9aa0",
    "#7a6fd0",
    "#c05a86",
    "#6b8e23",
    "#868686",
    "#a0522d",
)

STYLE = """
.chart { width: 100%; height: auto; display: block; }
.chart text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.chart .title { fill: var(--soft); }
.chart .label { font-size: 11px; }
@media (max-width: 40rem) {
  .chart text { font-size: 15px; } .chart .label { font-size: 13px; }
}
.chart .frame { fill: none; stroke: var(--soft); stroke-width: 1; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .rule { stroke: var(--soft); stroke-width: 1.3; stroke-dasharray: 5 4; }
.chart .series { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .ring { fill: none; stroke: #d63a3a; stroke-width: 1.8; }
.chart .chosen { fill: none; stroke: #d97b16; stroke-width: 3; }
.chart .bad { fill: none; stroke: #ff3030; stroke-width: 1.3; }
.chart .cells { image-rendering: pixelated; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
.legend { margin: 0 0 .2rem; padding: 0; font-size: .9rem; }
.legend svg { width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -.05rem; }
""" + "\n".join(
    f".c{k} {{ stroke: {color}; fill: {color}; }} .chart .series.c{k} {{ fill: none; }}"
    for k, color in enumerate(COLORS)
)

#: Anchors of the color scale of heat maps (viridis), which differ in lightness.
_SCALE = np.array(
    [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], np.float64
)

#: Gray of the cells without a value: no color of the scale, and visible on light and dark pages.
MISSING = (196, 196, 196)


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes
    ----------
    title : str
        Its title.
    low, high : float
        Its range.
    log : bool, default=False
        Whether it is logarithmic.
    ticks : sequence of (value, text) or None, default=None
        Its ticks; None chooses round numbers.
    """

    title: str
    low: float
    high: float
    log: bool = False
    ticks: Sequence[tuple[float, str]] | None = None

    @classmethod
    def over(
        cls, title: str, values: ArrayLike, *, log: bool = False, margin: float = 0.04
    ) -> Axis:
        """Return an axis that contains the values and a margin, relative to their range."""
        finite = np.asarray(values, np.float64).ravel()
        finite = finite[np.isfinite(finite) & ((finite > 0) | (not log))]
        if not len(finite):
            return cls(title, 1.0, 10.0, log)
        low = float(finite.min())
        high = float(finite.max())
        if log:
            ratio = max(high / low, 1.5) ** margin
            return cls(title, low / ratio, high * ratio, log)
        extent = (high - low) or abs(high) or 1.0
        return cls(title, low - margin * extent, high + margin * extent)

    def share(self, values: ArrayLike) -> Array:
        """Return positions of values along the axis, from 0 to 1."""
        given = np.asarray(values, np.float64)
        if not self.log:
            return np.asarray((given - self.low) / (self.high - self.low))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(given / self.low) / math.log(self.high / self.low))

    def tick_texts(self) -> list[tuple[float, str]]:
        """Return the ticks inside the range."""
        if self.ticks is not None:
            return list(self.ticks)
        values = _log_ticks(self.low, self.high) if self.log else _round_ticks(self.low, self.high)
        return [(value, _number(value)) for value in values]


class Chart:
    """An SVG chart with two axes, to which marks are added in drawing order.

    Parameters
    ----------
    x, y : Axis
        The axes; y points upward.
    label : str
        Description for screen readers.
    secondary : Axis or None, default=None
        A second vertical axis on the right.
    height : int, default=300
        Height relative to a width of 480.
    """

    def __init__(
        self,
        x: Axis,
        y: Axis,
        label: str,
        *,
        secondary: Axis | None = None,
        height: int = 300,
    ) -> None:
        self.x = x
        self.y = y
        self.label = label
        self.secondary = secondary
        widest = max((len(text) for _, text in y.tick_texts()), default=0)
        self.left = max(LAYOUT.left, int(29 + LAYOUT.character * widest))  # beside the title
        self.right = LAYOUT.width - (
            LAYOUT.right if secondary is None else LAYOUT.right_of_secondary
        )
        self.bottom = height - LAYOUT.bottom
        self.height = height
        self._marks: list[str] = []
        self._legend: list[tuple[int, str]] = []

    def legend(self, color: int, name: str) -> None:
        """Add an item to the legend."""
        self._legend.append((color, name))

    def line(
        self, x: ArrayLike, y: ArrayLike, color: int, name: str = "", *, on_secondary: bool = False
    ) -> None:
        """Add a line through points; those that are not finite interrupt it."""
        px, py = self._positions(x, y, on_secondary)
        pieces: list[list[str]] = [[]]
        for a, b in zip(px, py, strict=True):
            if math.isfinite(a) and math.isfinite(b):
                pieces[-1].append(f"{a:.1f} {b:.1f}")
            elif pieces[-1]:
                pieces.append([])
        path = "".join(f"M{'L'.join(piece)}" for piece in pieces if piece)
        self._marks.append(f'<path class="series c{_color(color)}" d="{path}"/>')
        if name:
            self.legend(color, name)

    def points(
        self,
        x: ArrayLike,
        y: ArrayLike,
        color: int,
        *,
        names: Sequence[str] | None = None,
        radius: float = 3,
        rings: Sequence[bool] | None = None,
        css: str = "",
    ) -> None:
        """Add points, with texts that are shown on hover and rings around some of them."""
        px, py = self._positions(x, y)
        kind = css or f"c{_color(color)}"
        for k, (a, b) in enumerate(zip(px, py, strict=True)):
            if not (math.isfinite(a) and math.isfinite(b)):
                continue
            title = "" if names is None else f"<title>{escape(names[k])}</title>"
            circle = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius:g}" class="{kind}">'
            self._marks.append(f"{circle}{title}</circle>")
            if rings is not None and rings[k]:
                self._marks.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="5" class="ring"/>')

    def bars(
        self, edges: ArrayLike, heights: ArrayLike, color: int, name: str = "", opacity: float = 1
    ) -> None:
        """Add bars between edges, from the lower end of the vertical axis."""
        px, py = self._positions(np.asarray(edges)[:-1], heights)
        ends = self._positions(np.asarray(edges)[1:], heights)[0]
        path = "".join(
            f"M{a:.1f} {self.bottom}V{b:.1f}H{end:.1f}V{self.bottom}"
            for a, b, end in zip(px, py, ends, strict=True)
            if math.isfinite(b) and b < self.bottom
        )
        kind = f'class="c{_color(color)}" stroke-width="0" fill-opacity="{opacity:g}"'
        self._marks.append(f'<path {kind} d="{path}"/>')
        if name:
            self.legend(color, name)

    def error_bars(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, color: int) -> None:
        """Add vertical error bars."""
        px, bottom = self._positions(x, low)
        top = self._positions(x, high)[1]
        path = "".join(
            f"M{a:.1f} {b:.1f}V{c:.1f}M{a - 4:.1f} {b:.1f}h8M{a - 4:.1f} {c:.1f}h8"
            for a, b, c in zip(px, bottom, top, strict=True)
        )
        self._marks.append(f'<path class="series c{_color(color)}" stroke-width="1" d="{path}"/>')

    def rule(self, *, x: float | None = None, y: float | None = None) -> None:
        """Add a dashed line at x or y."""
        if x is not None:
            a = self._positions([x], [self.y.low])[0][0]
            self._marks.append(f'<path class="rule" d="M{a:.1f} {self.bottom}V{LAYOUT.top}"/>')
        if y is not None:
            b = self._positions([self.x.low], [y])[1][0]
            self._marks.append(f'<path class="rule" d="M{self.left} {b:.1f}H{self.right}"/>')

    def text(self, x: float, y: float, text: str) -> None:
        """Add a small text beside a point, on the side where the chart has more space."""
        px, py = self._positions([x], [y])
        is_right = px[0] > (self.left + self.right) / 2
        anchor = ' text-anchor="end"' if is_right else ""
        a = px[0] + (-6 if is_right else 6)
        self._marks.append(
            f'<text class="label" x="{a:.1f}" y="{py[0] - 5:.1f}"{anchor}>{escape(text)}</text>'
        )

    def cells(self, cells: Array, low: float, high: float) -> None:
        """Add a heat map of cells over the whole chart, gray where a cell is NaN."""
        width = self.right - self.left
        self._marks.append(
            f'<image class="cells" x="{self.left}" y="{LAYOUT.top}" width="{width}" '
            f'height="{self.bottom - LAYOUT.top}" preserveAspectRatio="none" '
            f'href="{_png(cells, low, high)}"/>'
        )

    def boxes(self, boxes: Iterable[tuple[float, float, float, float, str]]) -> None:
        """Add outlined boxes (left, top, right, bottom, text shown on hover)."""
        for left, top, right, bottom, name in boxes:
            (x0, x1), (y0, y1) = self._positions([left, right], [top, bottom])
            # A box around a cell of a fraction of a pixel would not be visible.
            width = max(abs(x1 - x0), 3.0)
            height = max(abs(y1 - y0), 3.0)
            x = (x0 + x1 - width) / 2
            y = (y0 + y1 - height) / 2
            self._marks.append(
                f'<rect class="bad" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}"><title>{escape(name)}</title></rect>'
            )

    def svg(self) -> str:
        """Return the chart and its legend as HTML."""
        items = "".join(
            f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><circle cx="5" cy="5" r="4" '
            f'class="c{_color(color)}"/></svg>{escape(name)}</li>'
            for color, name in self._legend
        )
        legend = f'<ul class="legend">{items}</ul>' if items else ""
        frame = f'<path class="frame" d="M{self.left} {LAYOUT.top}V{self.bottom}H{self.right}"/>'
        return (
            f'{legend}<svg class="chart" viewBox="0 0 {LAYOUT.width} {self.height}" role="img" '
            f'aria-label="{escape(self.label)}">{"".join(self._ticks())}{"".join(self._marks)}'
            f"{frame}</svg>"
        )

    def _positions(
        self, x: ArrayLike, y: ArrayLike, on_secondary: bool = False
    ) -> tuple[list[float], list[float]]:
        vertical = self.secondary if on_secondary and self.secondary is not None else self.y
        px = self.left + self.x.share(x) * (self.right - self.left)
        py = self.bottom - vertical.share(y) * (self.bottom - LAYOUT.top)
        return px.tolist(), py.tolist()

    def _ticks(self) -> list[str]:
        """Return grid lines, texts and titles of the axes."""
        parts = []
        end = 0.0
        for value, text in self.x.tick_texts():
            a = self._positions([value], [self.y.low])[0][0]
            lines = text.split("\n")
            half = LAYOUT.character / 2 * max(map(len, lines))
            # A long text at an end would extend beyond the picture.
            x = min(max(a, 2 + half), LAYOUT.width - 2 - half)
            parts.append(f'<path class="grid" d="M{a:.1f} {LAYOUT.top}V{self.bottom}"/>')
            if x - half < end:
                continue  # it would cover the text before it
            end = x + half + LAYOUT.character
            parts.extend(
                f'<text class="xtick" x="{x:.1f}" y="{self.bottom + 18 + 16 * k}" '
                f'text-anchor="middle">{escape(line)}</text>'
                for k, line in enumerate(lines)
            )
        for value, text in self.y.tick_texts():
            b = self._positions([self.x.low], [value])[1][0]
            parts.append(
                f'<path class="grid" d="M{self.left} {b:.1f}H{self.right}"/><text '
                f'x="{self.left - 6}" y="{b + 4:.1f}" text-anchor="end">{escape(text)}</text>'
            )
        if self.secondary is not None:
            for value, text in self.secondary.tick_texts():
                b = self._positions([self.x.low], [value], on_secondary=True)[1][0]
                parts.append(f'<text x="{self.right + 6}" y="{b + 4:.1f}">{escape(text)}</text>')
            parts.append(self._vertical_title(LAYOUT.width - 6, self.secondary.title))
        center = (self.left + self.right) / 2
        parts.append(
            f'<text class="title" x="{center:g}" y="{self.height - 8}" '
            f'text-anchor="middle">{escape(self.x.title)}</text>'
        )
        parts.append(self._vertical_title(16, self.y.title))
        return parts

    def _vertical_title(self, x: int, title: str) -> str:
        y = (LAYOUT.top + self.bottom) / 2
        return (
            f'<text class="title" x="{x}" y="{y:g}" text-anchor="middle" '
            f'transform="rotate(-90 {x} {y:g})">{escape(title)}</text>'
        )


def color_of(shares: ArrayLike) -> NDArray[np.uint8]:
    """Return red, green and blue of positions from 0 to 1 on the color scale of heat maps."""
    positions = np.clip(np.asarray(shares, np.float64), 0, 1) * (len(_SCALE) - 1)
    anchors = np.arange(len(_SCALE))
    mixed = [np.interp(positions, anchors, _SCALE[:, k]) for k in range(3)]
    return np.asarray(np.stack(mixed, axis=-1).round(), np.uint8)


def _png(cells: Array, low: float, high: float) -> str:
    """Return cells as the address of a PNG image with a pixel per cell, NaN gray."""
    observed = np.isfinite(cells)
    shares = np.where(observed, (cells - low) / ((high - low) or 1.0), 0.0)
    pixels = np.where(observed[..., None], color_of(shares), np.array(MISSING, np.uint8))
    height, width = cells.shape
    # Every line of a PNG begins with the number of its filter, 0 for none.
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _color(k: int) -> int:
    return k % len(COLORS)


def _round_ticks(low: float, high: float, at_most: int = 6) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / at_most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, with multiples of 2 and 5 where the range is short."""
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    factors = (1, 2, 5) if math.log10(high / low) < 2.2 else (1,)
    step = max(1, (last - first) // 6)
    ticks = [factor * 10.0**power for power in range(first, last + 1, step) for factor in factors]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _number(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, _, exponent = f"{value:.2g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
