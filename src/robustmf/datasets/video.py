"""A synthetic video: a wall with changing light, in front of which two objects move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustmf.validation import as_generator, require_integer

Array = NDArray[np.float64]

#: Standard deviation of the noise of a pixel; brightness is between 0 and 1.
_NOISE = 0.02


@dataclass(frozen=True)
class Video:
    """Frames with the ground truth.

    Attributes
    ----------
    frames : array of shape (frames, height, width)
        Brightness of the pixels, from 0 to 1.
    background : array of the same shape
        The scene without the objects and the noise; as frames × pixels it has rank 2.
    moving : array of bool of the same shape
        Which pixels show an object.
    """

    frames: Array
    background: Array
    moving: NDArray[np.bool_]


def make_video(
    frames: int = 40,
    height: int = 36,
    width: int = 48,
    random_state: int | np.random.Generator | None = None,
) -> Video:
    """Generate a video of a static camera: a bright ball and a dark box cross the picture.

    Parameters
    ----------
    frames : int, default=40
        Number of frames.
    height, width : int, default=36 and 48
        Size of a frame in pixels, at least 8.
    random_state : int, Generator or None, default=None
        Seed of the noise.

    Returns
    -------
    video : Video
        The frames with the ground truth.

    Examples
    --------
    >>> from robustmf.datasets import make_video
    >>> made = make_video(random_state=0)
    >>> made.frames.shape, bool(0.05 < made.moving.mean() < 0.15)
    ((40, 36, 48), True)
    """
    require_integer("frames", frames, 2)
    require_integer("height", height, 8)
    require_integer("width", width, 8)
    rng = as_generator(random_state)
    row, column = np.mgrid[:height, :width]
    # Coordinates of a picture of 36 × 48 pixels, so that the scene does not depend on its size.
    y = row * 36 / height
    x = column * 48 / width
    wall = 0.5 + 0.2 * np.sin(x / 5) * np.cos(y / 7)
    lamp = np.exp(-((x - 38) ** 2 + (y - 6) ** 2) / 200)
    t = np.arange(frames)[:, None, None] * 40 / frames
    light = 0.5 + 0.4 * np.sin(t / 6)
    background = wall + 0.4 * light * lamp
    ball = (x - 1.2 * t) ** 2 + (y - 24 - 5 * np.sin(t / 4)) ** 2 < 25
    box = (np.abs(x - 45 + 0.9 * t) < 4) & (np.abs(y - 11) < 5)
    seen = np.where(ball, 0.95, np.where(box, 0.1, background))
    return Video(seen + _NOISE * rng.standard_normal(seen.shape), background, ball | box)
