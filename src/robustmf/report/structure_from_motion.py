"""Points in space from feature tracks: the affine factorization with a Euclidean upgrade.

Frame f observes point j at (x, y) = M_f p_j + t_f, two rows of a matrix of rank 4: U Vᵀ with
V A = [p, 1]. The last column of A makes a combination of V's columns closest to 1. The points are
then determined up to a linear map, which is chosen such that in every frame the two rows of M_f
are orthogonal and have the same norm (scaled orthographic cameras; Tomasi and Kanade 1992,
Poelman and Kanade 1997).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Rank of the matrix of image coordinates under affine cameras.
RANK = 4


@dataclass(frozen=True)
class MetricOptions:
    """Constants of the upgrade from affine to metric coordinates.

    Attributes
    ----------
    min_eigenvalue : float
        Lower bound of the eigenvalues of the metric, relative to their mean, where the least-
        squares solution is not positive definite.
    min_agreement : float
        Minimum norm of the mean direction of an image axis for which the frames agree on it.
    """

    min_eigenvalue: float = 1e-2
    min_agreement: float = 0.5


OPTIONS = MetricOptions()


def scene_points(U: NDArray[Any], V: NDArray[Any]) -> Array:
    """Reconstruct points from the factors of their tracks.

    Parameters
    ----------
    U : ndarray of shape (2 × frames, 4)
        Factors of the rows: x and y of each frame.
    V : ndarray of shape (n, 4)
        Factors of the points.

    Returns
    -------
    points : ndarray of shape (n, 3)
        The points, centered and upright, up to scale and reflection.
    """
    U = np.asarray(U, np.float64)
    V = np.asarray(V, np.float64)
    if U.shape[1] != RANK or len(U) % 2:
        raise ValueError(
            f"tracks need rank {RANK} and two rows per frame, x and y, got rank {U.shape[1]} and"
            f" {len(U)} rows; use tracks=False"
        )
    constant = V @ np.linalg.lstsq(V, np.ones(len(V)), rcond=None)[0]
    # V = constant·μᵀ + a matrix of rank 3, the coordinates along three axes
    centered = V - np.outer(constant, V.mean(axis=0) / constant.mean())
    axes = np.linalg.svd(centered, full_matrices=False)[2][:3]
    coordinates = centered @ axes.T
    motion = U @ axes.T
    upgrade = _euclidean_upgrade(motion)
    points = coordinates @ np.linalg.inv(upgrade).T
    points -= np.median(points, axis=0)
    return np.asarray(points @ _upright_axes(points, motion @ upgrade).T)


def _upright_axes(points: Array, frames: Array) -> Array:
    """Return viewing axes: the third points upward, the first along the largest extent beside it.

    Image rows are counted downward. The upward direction is therefore opposite to the image axis,
    first or second, on which most frames agree; if they agree on none, it is the axis of the
    second largest variance.
    """
    directions = frames / np.linalg.norm(frames, axis=1, keepdims=True)
    down = max((directions[::2].mean(axis=0), directions[1::2].mean(axis=0)), key=np.linalg.norm)
    agreement = float(np.linalg.norm(down))
    if agreement > OPTIONS.min_agreement:
        up = -down / agreement
    else:
        up = np.linalg.svd(points, full_matrices=False)[2][1]
    along = np.linalg.svd(points - np.outer(points @ up, up), full_matrices=False)[2][0]
    return np.array([along, np.cross(up, along), up])


def _euclidean_upgrade(motion: Array) -> Array:
    """Return A such that the rows x and y of each frame of motion·A are orthogonal, of equal norm.

    The equations are linear in AAᵀ and solved by least squares.
    """
    # With orthonormal columns the equations do not depend on the units of the factors.
    whiten = np.linalg.inv(np.linalg.qr(motion, mode="r"))
    whitened = motion @ whiten
    x = whitened[::2]
    y = whitened[1::2]
    # The last equation, trace = 3, excludes the zero solution.
    equations = np.vstack(
        [_products(x, x) - _products(y, y), _products(x, y), np.eye(6)[[0, 3, 5]].sum(axis=0)]
    )
    a, b, c, d, e, f = np.linalg.lstsq(
        equations, np.append(np.zeros(len(motion)), 3.0), rcond=None
    )[0]
    eigenvalues, axes = np.linalg.eigh(np.array([[a, b, c], [b, d, e], [c, e, f]]))
    return np.asarray(whiten @ (axes * np.sqrt(np.maximum(eigenvalues, OPTIONS.min_eigenvalue))))


def _products(p: Array, q: Array) -> Array:
    """Return rows of coefficients with p_k Q q_kᵀ = row · (Q11, Q12, Q13, Q22, Q23, Q33)."""
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
