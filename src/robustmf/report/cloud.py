"""Points in space from tracks: the factors of rank 4 as an affine camera model, made Euclidean as far as that goes.

Frame f sees point j at (x, y) = M_f p_j + t_f, two rows of a matrix of rank 4: U Vᵀ with V A = [p, 1]. The last column of A is what
makes V's combination closest to 1. The rest is fixed up to a linear map of space, which is chosen so that in every frame the two rows
of M_f are perpendicular and of one length (a camera far away; Tomasi and Kanade 1992, Poelman and Kanade 1997).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RANK = 4


def points(U: NDArray[Any], V: NDArray[Any]) -> Array:
    """The points (n × 3), centered and upright, in no unit; mirrored or not, for nobody can tell."""
    U, V = np.asarray(U, np.float64), np.asarray(V, np.float64)
    if U.shape[1] != RANK or len(U) % 2:
        raise ValueError(
            f"tracks need rank {RANK} and two rows a frame, x and y, got rank {U.shape[1]} and {len(U)} rows; leave tracks=False"
        )
    constant = V @ np.linalg.lstsq(V, np.ones(len(V)), rcond=None)[0]
    # V = constant·μᵀ + what has rank 3, the places along three axes
    centered = V - np.outer(constant, V.mean(axis=0) / constant.mean())
    axes = np.linalg.svd(centered, full_matrices=False)[2][:3]
    places, motion = centered @ axes.T, U @ axes.T
    metric = _metric(motion)
    found = places @ np.linalg.inv(metric).T
    found -= np.median(found, axis=0)
    return np.asarray(found @ _upright(found, motion @ metric).T)


def _upright(places: Array, frames: Array) -> Array:
    """Axes to look along: the third is up, the first the longest beside it.

    Up is against the image coordinate, first or second, that most frames have in common, for image rows are counted downwards; where they
    agree on none, the axis of the second largest spread.
    """
    directions = frames / np.linalg.norm(frames, axis=1, keepdims=True)
    down = max((directions[::2].mean(axis=0), directions[1::2].mean(axis=0)), key=np.linalg.norm)
    agreed = float(np.linalg.norm(down))
    up = -down / agreed if agreed > 0.5 else np.linalg.svd(places, full_matrices=False)[2][1]
    along = np.linalg.svd(places - np.outer(places @ up, up), full_matrices=False)[2][0]
    return np.array([along, np.cross(up, along), up])


def _metric(motion: Array) -> Array:
    """The map A for which rows x and y of each frame of motion·A are perpendicular and of one length, best by least squares."""
    # first the map that makes the columns orthonormal: what is left to find is then no matter of units
    whiten = np.linalg.inv(np.linalg.qr(motion, mode="r"))
    x, y = (motion @ whiten)[::2], (motion @ whiten)[1::2]
    equations = np.vstack(
        [_products(x, x) - _products(y, y), _products(x, y), np.eye(6)[[0, 3, 5]].sum(axis=0)]
    )
    # the last equation, a trace of 3, excludes zero
    a, b, c, d, e, f = np.linalg.lstsq(
        equations, np.append(np.zeros(len(motion)), 3.0), rcond=None
    )[0]
    lengths, axes = np.linalg.eigh(np.array([[a, b, c], [b, d, e], [c, e, f]]))
    # no real map where a length comes out negative: it is then kept small
    return np.asarray(whiten @ (axes * np.sqrt(np.maximum(lengths, 1e-2))))


def _products(p: Array, q: Array) -> Array:
    """Rows of coefficients with p_k Q q_kᵀ = row · (Q11, Q12, Q13, Q22, Q23, Q33)."""
    return np.column_stack(
        [
            p[:, 0] * q[:, 0],
            p[:, 0] * q[:, 1] + p[:, 1] * q[:, 0],
            p[:, 0] * q[:, 2] + p[:, 2] * q[:, 0],
            p[:, 1] * q[:, 1],
            p[:, 1] * q[:, 2] + p[:, 2] * q[:, 1],
            p[:, 2] * q[:, 2],
        ]
    )
