"""One step of accelerated projected gradient on the dual of the MM surrogate.

The dual variable has one number x_t per entry, |x_t| ≤ w_t; its negative gradient is the linearised
residual ρ_t = e_t − du_i·v_j − u_i·dv_j, where (dU, dV) are the primal increments that belong to x.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import kernel


@kernel
def dual_step(
    first, last, bounds, pointers, indices, e, w, row_curvature, column_curvature, momentum,
    curvature_scale, U, V, dU, dV, x, x_before, x_new, row_products, column_parts, sums,
):  # fmt: skip
    """x_new = clip(z + ρ(z)/c) from z = x + momentum·(x − x_before), and the products of x_new.

    c_t = scale · (row_curvature_i + column_curvature_j) bounds the curvature of the dual.
    ``sums[block]`` receives Σ c(x_new − z)², ⟨x_new, e⟩ and Σ c(z − x_new)(x_new − x); the last one
    is positive if momentum should restart.
    """
    rank = U.shape[1]
    for block in range(first, last):
        part = column_parts[block]
        part[:] = 0
        moved = 0.0
        linear = 0.0
        restart = 0.0
        for i in range(bounds[block], bounds[block + 1]):
            for q in range(rank):
                row_products[i, q] = 0
            for t in range(pointers[i], pointers[i + 1]):
                j = indices[t]
                rho = e[t]
                for q in range(rank):
                    rho -= dU[i, q] * V[j, q] + U[i, q] * dV[j, q]
                z = x[t] + momentum * (x[t] - x_before[t])
                c = curvature_scale * (row_curvature[i] + column_curvature[j])
                new = min(max(z + rho / c, -w[t]), w[t])
                x_new[t] = new
                moved += c * (new - z) * (new - z)
                linear += new * e[t]
                restart += c * (z - new) * (new - x[t])
                for q in range(rank):
                    row_products[i, q] += new * V[j, q]
                    part[j, q] += new * U[i, q]
        sums[block, 0] = moved
        sums[block, 1] = linear
        sums[block, 2] = restart


@kernel
def side_quadratics(first, last, bounds, inverse, pull, products, products_at_z, sums):
    """½ Σ_i ‖(products − pull)_i‖²·inverse_i and Σ_i ‖(products − products_at_z)_i‖²·inverse_i."""
    rank = pull.shape[1]
    for block in range(first, last):
        value = 0.0
        moved = 0.0
        for i in range(bounds[block], bounds[block + 1]):
            for q in range(rank):
                p = products[i, q] - pull[i, q]
                d = products[i, q] - products_at_z[i, q]
                value += inverse[i] * p * p
                moved += inverse[i] * d * d
        sums[block, 0] = 0.5 * value
        sums[block, 1] = moved


@kernel
def side_extrapolate(
    first,
    last,
    bounds,
    inverse,
    pull,
    products,
    products_before,
    momentum,
    products_at_z,
    increments,
):
    """Products at z = x + momentum·(x − x_before), and the increments (products − pull)·inverse."""
    rank = pull.shape[1]
    for i in range(bounds[first], bounds[last]):
        for q in range(rank):
            p = products[i, q] + momentum * (products[i, q] - products_before[i, q])
            products_at_z[i, q] = p
            increments[i, q] = inverse[i] * (p - pull[i, q])


@kernel
def linearised_loss(first, last, bounds, pointers, indices, e, w, U, V, dU, dV, x, sums):
    """Σ w|ρ| and Σ (w|ρ| − xρ), the duality gap of x, at the increments (dU, dV)."""
    rank = U.shape[1]
    for block in range(first, last):
        loss = 0.0
        gap = 0.0
        for i in range(bounds[block], bounds[block + 1]):
            for t in range(pointers[i], pointers[i + 1]):
                j = indices[t]
                rho = e[t]
                for q in range(rank):
                    rho -= dU[i, q] * V[j, q] + U[i, q] * dV[j, q]
                loss += w[t] * np.abs(rho)
                gap += w[t] * np.abs(rho) - x[t] * rho
        sums[block, 0] = loss
        sums[block, 1] = gap
