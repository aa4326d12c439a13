"""Points in space on a canvas that is rotated by dragging or by the arrow keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robustmf.report.charts import color_of
from robustmf.report.names import short
from robustmf.report.page import data_element

STYLE = """
.scene canvas { width: 100%; height: 26rem; touch-action: pan-y; cursor: grab; display: block; }
.scene output { display: block; min-height: 1.5em; color: var(--soft); font-size: .9rem; }
"""

SCRIPT = """
for (const block of document.querySelectorAll('.scene')) {
  const { points, colors, names } = JSON.parse(document.getElementById('scene-data').textContent);
  const canvas = block.querySelector('canvas'), label = block.querySelector('output');
  const pen = canvas.getContext('2d');
  let turn = 0.4, tilt = 0.25, held = null, placed = [];
  const draw = () => {
    const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
    canvas.width = box.width * ratio; canvas.height = box.height * ratio;
    const size = 0.47 * Math.min(canvas.width, canvas.height);
    const [c, s, d, t] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
    placed = points.map(([x, y, z], k) => {
      const across = c * x - s * y, away = s * x + c * y;
      const up = d * z - t * away, depth = d * away + t * z;
      const scale = size / (1 + 0.25 * depth);
      return [canvas.width / 2 + scale * across, canvas.height / 2 - scale * up, depth, k];
    });
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (const [x, y, depth, k] of [...placed].sort((a, b) => b[2] - a[2])) {
      pen.fillStyle = colors[k];
      pen.beginPath();
      pen.arc(x, y, ratio * (2.8 - depth), 0, 2 * Math.PI);
      pen.fill();
    }
    canvas.dataset.view = turn.toFixed(3) + ' ' + tilt.toFixed(3);
  };
  const rotate = (a, b) => {
    turn += a; tilt = Math.max(-1.5, Math.min(1.5, tilt + b)); draw();
  };
  canvas.addEventListener('pointerdown', event => {
    held = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointerup', () => { held = null; });
  canvas.addEventListener('pointermove', event => {
    if (held) {
      rotate((event.clientX - held[0]) / 120, (event.clientY - held[1]) / 120);
      held = [event.clientX, event.clientY];
      return;
    }
    const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    const x = (event.clientX - box.left) * ratio, y = (event.clientY - box.top) * ratio;
    let best = 12 * ratio, text = '';
    for (const point of placed) {
      const distance = Math.hypot(point[0] - x, point[1] - y);
      if (distance < best) { best = distance; text = names[point[3]]; }
    }
    label.textContent = text;
  });
  canvas.addEventListener('keydown', event => {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1],
      ArrowDown: [0, 0.1] }[event.key];
    if (step) { rotate(...step); event.preventDefault(); }
  });
  new ResizeObserver(draw).observe(canvas);
}
"""


def scene_element(scene: dict[str, Any]) -> str:
    """Return the points of a record, colored by their residuals; needs STYLE and SCRIPT."""
    points = np.asarray(scene["points"], np.float64)
    errors = np.asarray(scene["errors"], np.float64)
    # Quantiles, so that a few outliers do not occupy most of the picture or of the colors.
    extent = float(np.quantile(np.abs(points), 0.99)) or 1.0
    largest_error = float(np.quantile(errors, 0.95)) or 1.0
    # The darkest colors of the scale would not be visible on a dark page.
    shares = 0.3 + 0.7 * np.clip(errors / largest_error, 0, 1)
    data = {
        "points": np.clip(points / extent, -2, 2).round(4).tolist(),
        "colors": [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in color_of(shares)],
        "names": _names(scene["ids"], scene["counts"], scene["errors"]),
    }
    label = "Points in space; the arrow keys rotate them"
    return (
        f'<div class="scene">{data_element("scene-data", data)}'
        f'<canvas tabindex="0" role="img" aria-label="{label}"></canvas><output></output></div>'
    )


def _names(ids: Sequence[Any], counts: Sequence[int], errors: Sequence[float]) -> list[str]:
    return [
        f"point {short(key)}, seen in {count // 2} frames, residual {error:.3g}"
        for key, count, error in zip(ids, counts, errors, strict=True)
    ]
