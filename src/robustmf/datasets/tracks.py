"""Made-up feature tracks: points on a vase that turns before a camera, with wrong matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.validation import require_integer

#: The picture's middle and the pixels of a unit of length.
_CENTER, _PIXELS = (360.0, 288.0), 150.0

#: A point is seen while it looks towards the camera by at least this share.
_FACING = 0.55

#: A wrong match is off by so many pixels.
_MOVED = (30.0, 100.0)


@dataclass(frozen=True)
class Tracks:
    """Tracks and their truth.

    Attributes
    ----------
    observed : Observed
        x and y of each frame in turns, one column a point.
    wrong : array of bool
        Over the entries: the coordinate belongs to a wrong match.
    points : array (n × 3)
        Where the points are.
    """

    observed: Observed
    wrong: NDArray[np.bool_]
    points: NDArray[np.float64]


def make_tracks(
    points: int = 330,
    frames: int = 36,
    noise: float = 0.3,
    mismatches: float = 0.03,
    random_state: int | np.random.Generator | None = None,
) -> Tracks:
    """Points on a vase on a turntable, seen from far away while they face the camera: a matrix of rank 4 with a band observed.

    Parameters
    ----------
    points, frames : int
        Columns, and half the rows.
    noise : float
        Standard deviation of the coordinates, in pixels.
    mismatches : float
        Share of the coordinates that are off by 30 to 100 pixels.

    Examples
    --------
    >>> from robustmf.datasets import make_tracks
    >>> made = make_tracks(random_state=0)
    >>> made.observed.shape, made.points.shape
    ((72, 330), (330, 3))
    """
    require_integer("points", points, 4)
    require_integer("frames", frames, 2)
    if not (noise >= 0 and 0 <= mismatches <= 1):
        raise ValueError(
            f"noise must be >= 0 and mismatches must lie in [0, 1], got noise={noise}, mismatches={mismatches}"
        )
    rng = np.random.default_rng(random_state)
    angle, height = rng.uniform(0, 2 * np.pi, points), rng.uniform(-1, 1, points)
    radius = 1 + 0.3 * np.sin(3 * height)
    turned = angle + 2 * np.pi * np.arange(frames)[:, None] / frames
    depth = np.sin(turned)
    seen = depth > _FACING
    tracks = np.full((2 * frames, points), np.nan)
    tracks[::2][seen] = (_CENTER[0] + _PIXELS * radius * np.cos(turned))[seen]
    tracks[1::2][seen] = (_CENTER[1] + _PIXELS * (0.98 * height + 0.2 * radius * depth))[seen]
    tracks += noise * rng.standard_normal(tracks.shape)
    observed = Observed.from_dense(tracks)
    wrong = rng.random(observed.n_entries) < mismatches
    moved: NDArray[Any] = observed.rows.values.copy()
    moved[wrong] += rng.choice([-1.0, 1.0], int(wrong.sum())) * rng.uniform(
        *_MOVED, int(wrong.sum())
    )
    return Tracks(
        observed.with_values(moved),
        wrong,
        np.column_stack([radius * np.cos(angle), radius * np.sin(angle), height]),
    )
