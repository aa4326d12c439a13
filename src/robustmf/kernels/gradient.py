"""Gradients of a batch of entries, summed in their order."""

from __future__ import annotations

from robustmf.kernels.jit import kernel


@kernel
def batch_gradient(i, j, values, U, V, reg, to_U, to_V):
    """The gradient of Σ (values_t − u_i·v_j)² + reg/2 (‖u_i‖² + ‖v_j‖²) over the batch."""
    to_U[:] = 0
    to_V[:] = 0
    for t in range(len(values)):
        u, v = U[i[t]], V[j[t]]
        e = -values[t]
        for q in range(u.size):
            e += u[q] * v[q]
        for q in range(u.size):
            to_U[i[t], q] += 2 * e * v[q] + reg * u[q]
            to_V[j[t], q] += 2 * e * u[q] + reg * v[q]
