"""The Oxford Dinosaur feature tracks: image coordinates of 4,983 points in 36 frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robustmf.data.observed import Observed
from robustmf.datasets.catalog import DINOSAUR
from robustmf.datasets.finding import require_file

_FRAMES = 36


def load_dinosaur(min_views: int = 5, folder: str | Path | None = None) -> Observed:
    """Load the 72 × n matrix of image coordinates, x and y of each frame in pixels.

    Parameters
    ----------
    min_views : int, default=5
        Minimum number of frames in which a point is seen: 5, 6 and 7 give the paper's D1
        (72 × 932), D2 (72 × 557) and D3 (72 × 336).
    folder : path, optional
        Folder that contains ``dinosaur/viff.xy``; by default the folder named by
        ``ROBUSTMF_DATA``, then the cache.

    Returns
    -------
    tracks : Observed
        The coordinates.
    """
    source = require_file(DINOSAUR, DINOSAUR.files[0], folder)
    lines = []
    for number, line in enumerate(source.text(), 1):
        fields = line.split()
        if len(fields) != 2 * _FRAMES:
            raise source.fault(
                f"expected {2 * _FRAMES} numbers per line, got {len(fields)}; correct or remove"
                " the line",
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
