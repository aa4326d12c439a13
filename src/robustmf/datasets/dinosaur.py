"""The Oxford Dinosaur feature tracks: where 4,983 points were seen in 36 frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robustmf.data.observed import Observed
from robustmf.datasets.catalog import DINOSAUR
from robustmf.datasets.finding import require_file

_FRAMES = 36


def load_dinosaur(min_views: int = 5, folder: str | Path | None = None) -> Observed:
    """The 72 × n matrix of image coordinates (x and y of each frame, in pixels) of the points seen in at least ``min_views`` frames.

    Parameters
    ----------
    min_views : int
        5, 6 and 7 give the paper's D1 (72 × 932), D2 (72 × 557) and D3 (72 × 336).
    folder : path, optional
        Where ``dinosaur/viff.xy`` lies; by default the folder that the environment variable ``ROBUSTMF_DATA`` names, then the cache.
    """
    source = require_file(DINOSAUR, DINOSAUR.files[0], folder)
    lines = []
    for number, line in enumerate(source.text(), 1):
        fields = line.split()
        if len(fields) != 2 * _FRAMES:
            raise source.fault(
                f"expected {2 * _FRAMES} numbers a line, got {len(fields)}; correct or remove the line",
                number,
            )
        try:
            lines.append([float(field) for field in fields])
        except ValueError as error:
            raise source.fault(f"{error}; correct or remove the line", number) from None
    tracks = np.array(lines, ndmin=2)
    tracks[tracks == -1] = np.nan
    views = (~np.isnan(tracks[:, ::2])).sum(axis=1)
    kept = tracks[views >= min_views]
    if not len(kept):
        raise ValueError(
            f"min_views={min_views} leaves no track; the longest is seen in {views.max()} frames"
        )
    return Observed.from_dense(kept.T)
