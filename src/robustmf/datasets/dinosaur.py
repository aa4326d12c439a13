"""The Oxford Dinosaur feature tracks: where 4,983 points were seen in 36 frames."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from robustmf.observed import Observed

_FRAMES = 36


def load_dinosaur(min_views: int = 5, folder: str | Path | None = None) -> Observed:
    """The 72 × n matrix of image coordinates (x and y of each frame, in pixels) of the points seen in at least ``min_views`` frames.

    Parameters
    ----------
    min_views : int
        5, 6 and 7 give the paper's D1 (72 × 932), D2 (72 × 557) and D3 (72 × 336).
    folder : path, optional
        Where ``dinosaur/viff.xy`` lies; by default the folder that the environment variable ``ROBUSTMF_DATA`` names.
    """
    base = folder or os.environ.get("ROBUSTMF_DATA")
    if base is None:
        raise FileNotFoundError(
            "no folder for the Dinosaur tracks: pass folder= or set ROBUSTMF_DATA to a folder that holds dinosaur/viff.xy, "
            "from the Visual Geometry Group's multi-view data (Oxford)"
        )
    path = Path(base) / "dinosaur" / "viff.xy"
    if not path.exists():
        raise FileNotFoundError(f"{path} not found; it is the file viff.xy of the Visual Geometry Group's multi-view data (Oxford)")
    tracks = np.loadtxt(path, ndmin=2)
    if tracks.shape[1] != 2 * _FRAMES:
        raise ValueError(f"{path}: expected {2 * _FRAMES} numbers a line, got {tracks.shape[1]}")
    tracks[tracks == -1] = np.nan
    views = (~np.isnan(tracks[:, ::2])).sum(axis=1)
    kept = tracks[views >= min_views]
    if not len(kept):
        raise ValueError(f"min_views={min_views} leaves no track; the longest is seen in {views.max()} frames")
    return Observed.from_dense(kept.T)
