"""Synthetic feature tracks: points on a rotating vase, with wrong matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.validation import require_integer


@dataclass(frozen=True)
class CameraOptions:
    """Constants of the images.

    Attributes
    ----------
    center : (float, float)
        Center of the image, in pixels.
    pixels : float
        Pixels per unit of length.
    min_cosine : float
        A point is visible while the cosine between its normal and the viewing direction is larger.
    error_range : (float, float)
        Range of the absolute error of a wrong match, in pixels.
    """

    center: tuple[float, float] = (360.0, 288.0)
    pixels: float = 150.0
    min_cosine: float = 0.55
    error_range: tuple[float, float] = (30.0, 100.0)


_CAMERA = CameraOptions()


@dataclass(frozen=True)
class Tracks:
    """Tracks with the ground truth.

    Attributes
    ----------
    observed : Observed
        Rows are x and y of each frame, columns are points.
    wrong : array of bool
        Which entries, in row order, belong to a wrong match.
    points : array of shape (n, 3)
        True positions of the points.
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
    """Generate tracks of points on a vase on a turntable under an orthographic camera.

    The points are visible while they face the camera; the matrix has rank 4, and a band of it is
    observed.

    Parameters
    ----------
    points : int, default=330
        Number of points, which are the columns.
    frames : int, default=36
        Number of frames, with two rows each.
    noise : float, default=0.3
        Standard deviation of the noise, in pixels.
    mismatches : float, default=0.03
        Fraction of the coordinates with an error of 30 to 100 pixels.
    random_state : int, Generator or None, default=None
        Seed of all random draws.

    Returns
    -------
    tracks : Tracks
        The tracks with the ground truth.

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
            f"noise must be >= 0 and mismatches must lie in [0, 1], got noise={noise},"
            f" mismatches={mismatches}"
        )
    rng = np.random.default_rng(random_state)
    angle = rng.uniform(0, 2 * np.pi, points)
    height = rng.uniform(-1, 1, points)
    radius = 1 + 0.3 * np.sin(3 * height)
    rotated = angle + 2 * np.pi * np.arange(frames)[:, None] / frames
    depth = np.sin(rotated)
    visible = depth > _CAMERA.min_cosine
    tracks = np.full((2 * frames, points), np.nan)
    x = _CAMERA.center[0] + _CAMERA.pixels * radius * np.cos(rotated)
    y = _CAMERA.center[1] + _CAMERA.pixels * (0.98 * height + 0.2 * radius * depth)
    tracks[::2][visible] = x[visible]
    tracks[1::2][visible] = y[visible]
    tracks += noise * rng.standard_normal(tracks.shape)
    observed = Observed.from_dense(tracks)
    wrong = rng.random(observed.n_entries) < mismatches
    values: NDArray[Any] = observed.rows.values.copy()
    n_wrong = int(wrong.sum())
    values[wrong] += rng.choice([-1.0, 1.0], n_wrong) * rng.uniform(*_CAMERA.error_range, n_wrong)
    return Tracks(
        observed.with_values(values),
        wrong,
        np.column_stack([radius * np.cos(angle), radius * np.sin(angle), height]),
    )
