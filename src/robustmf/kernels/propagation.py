"""One half of an iteration of approximate message passing for a low-rank matrix with outliers.

Model: an entry is u·v + N(0, s²), or with probability ``share`` an outlier, u·v + N(0, t²). Each
row has a mean and a covariance. An entry is compared with the cavity distribution, from which its
own influence on both sides is removed, so that an outlier is not supported by factors that fit it.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import kernel
from robustmf.kernels.small import add_outer, dot, invert


@kernel
def propagate_half(
    first, last, bounds, pointers, indices, positions, values, U, row_covariances, V,
    column_covariances, row_weights, column_weights, precision, s2, t2, share, sums,
):  # fmt: skip
    """Mean and covariance of every row from its entries.

    ``row_weights`` and ``column_weights`` have the weight of each entry (at ``positions[t]``) in
    the last pass over this side and over the other. The old values of a row of U are used until
    they are replaced. ``sums[block]`` receives the total probability and the noise energy of
    inliers, and those of outliers.
    """
    r = U.shape[1]
    A, L, b = np.empty((r, r)), np.zeros((r, r)), np.empty(r)
    hu, hv, cu, cv = np.empty(r), np.empty(r), np.empty(r), np.empty(r)
    odds = np.log((1 - share) / share)
    for block in range(first, last):
        sums[block, :] = 0
        for i in range(bounds[block], bounds[block + 1]):
            A[:] = 0
            b[:] = 0
            for t in range(pointers[i], pointers[i + 1]):
                j, z = indices[t], positions[t]
                both = 0.0
                lu = 0.0
                lv = 0.0
                for q in range(r):
                    hu[q] = dot(row_covariances[i, q], V[j])
                    hv[q] = dot(column_covariances[j, q], U[i])
                    both += dot(row_covariances[i, q], column_covariances[j, q])
                    lu += hu[q] * V[j, q]
                    lv += hv[q] * U[i, q]
                e = values[t] - dot(U[i], V[j])
                gu = row_weights[z] / (1 - min(0.9, row_weights[z] * lu))
                gv = column_weights[z] / (1 - min(0.9, column_weights[z] * lv))
                for q in range(r):
                    cu[q] = U[i, q] - gu * e * hu[q]
                    cv[q] = V[j, q] - gv * e * hv[q]
                # variance of u·v due to u, and due to v
                tu, tv = gu * dot(hu, cv) ** 2, gv * dot(hv, cu) ** 2
                for q in range(r):
                    tu += dot(row_covariances[i, q], cv) * cv[q]
                    tv += dot(column_covariances[j, q], cu) * cu[q]
                e = values[t] - dot(cu, cv)
                inlier, outlier = s2 + tu + tv + both, t2 + tu + tv + both
                x = odds - 0.5 * np.log(inlier / outlier) - 0.5 * e * e * (1 / inlier - 1 / outlier)
                p = 1 / (1 + np.exp(-min(30.0, max(-30.0, x))))
                sums[block, 0] += p
                sums[block, 1] += p * s2 * (1 + s2 / inlier * (e * e / inlier - 1))
                sums[block, 2] += 1 - p
                sums[block, 3] += (1 - p) * t2 * (1 + t2 / outlier * (e * e / outlier - 1))
                row_weights[z] = p / (s2 + tv + both) + (1 - p) / (t2 + tv + both)
                add_outer(A, b, cv, row_weights[z], values[t])
            for q in range(r):
                A[q, q] += precision
            invert(A, L, row_covariances[i])
            for q in range(r):
                U[i, q] = dot(row_covariances[i, q], b)
