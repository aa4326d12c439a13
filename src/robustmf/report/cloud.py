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
    """The points (n × 3), centered, in the unit of the rows; mirrored or not, for nobody can tell."""
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
    found = places @ np.linalg.inv(_metric(motion)).T
    return np.asarray(found - np.median(found, axis=0))


def _metric(motion: Array) -> Array:
    """The map A for which rows x and y of each frame of motion·A are perpendicular and of one length, best by least squares."""
    x, y = motion[::2], motion[1::2]
    equations = np.vstack([_products(x, x) - _products(y, y), _products(x, y)])
    scale = np.sqrt(np.mean(motion**2))
    # a frame says what its size allows; and the mean length is 1, so that zero is no answer
    total = (_products(x, x) + _products(y, y)).mean(axis=0) / scale**2
    solution = np.linalg.lstsq(np.vstack([equations / scale**2, 1e3 * total]), np.append(np.zeros(len(equations)), 1e3), rcond=None)[0]
    a, b, c, d, e, f = solution
    Q = np.array([[a, b, c], [b, d, e], [c, e, f]])
    lengths, axes = np.linalg.eigh(Q)
    # no real map where an axis comes out negative: the least that the others allow
    return np.asarray(axes * np.sqrt(np.maximum(lengths, 1e-3 * lengths.max())))


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
