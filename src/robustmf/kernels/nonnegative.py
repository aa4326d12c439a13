"""Non-negative least squares of many small systems, one system per lane of a vector.

Minimizes ½ x'Ax - b'x over x >= 0 from a feasible point, such that the value never rises: passes of
cyclic coordinate descent find the elements that are zero; a Newton step in the others follows, as
far as they stay non-negative. Where the passes have found the right zeros, and the complete step
is possible, the solution is exact.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import inlined
from robustmf.kernels.vector import add, clamp, fnma, inverse_root, lanes, load, mul, splat, store

#: Passes of coordinate descent before the Newton step.
PASSES = 2


@inlined
def load_rows(U, start, stop, rank, x):
    """Copy the rows start..stop of U to the lanes of x; other lanes are 0."""
    step = lanes(x)
    for q in range(rank):
        for lane in range(step):
            x[q * step + lane] = 0
    for i in range(start, stop):
        for q in range(rank):
            x[q * step + i - start] = U[i, q]


@inlined
def descend(system, rank, columns, inverse, x, top):
    """Passes of cyclic coordinate descent on x in every lane.

    ``system`` [rank, columns, lane] has the upper triangle of A, and b as column ``rank``;
    ``inverse`` is workspace. An element whose diagonal element is 0 becomes 0.
    """
    step = lanes(system)
    row = columns * step
    for k in range(rank):
        root = inverse_root(load(system, k * row + k * step), splat(system, 0))
        store(inverse, k * step, mul(root, root))
    for _ in range(PASSES):
        for k in range(rank):
            above, right = load(system, k * row + rank * step), splat(system, 0)
            for q in range(k):
                above = fnma(load(system, q * row + k * step), load(x, q * step), above)
            for q in range(k + 1, rank):
                right = fnma(load(system, k * row + q * step), load(x, q * step), right)
            found = mul(add(above, right), load(inverse, k * step))
            store(x, k * step, clamp(found, splat(system, top)))


@inlined
def remove_zeros(system, rank, columns, x):
    """Replace the equations of elements of x that are 0 by 0 = 0 in every lane.

    The guarded factorization sets these unknowns to 0.
    """
    step = lanes(system)
    row = columns * step
    for q in range(rank):
        for lane in range(step):
            if not x[q * step + lane] > 0:
                for k in range(q):
                    system[k * row + q * step + lane] = 0
                for k in range(q, rank + 1):
                    system[q * row + k * step + lane] = 0


@inlined
def write_row_within_bounds(x, solution, lane, rank, U, i):
    """U[i] = x + share (solution - x), with the largest share up to 1 such that U[i] >= 0.

    A row that is not finite keeps its values. An element that limits the step becomes 0.
    """
    step = lanes(x)
    share = x[lane] * 0 + 1
    limit = -1
    finite = True
    for q in range(rank):
        at = q * step + lane
        finite &= np.isfinite(x[at]) & np.isfinite(solution[at])
        if solution[at] < 0 and x[at] < share * (x[at] - solution[at]):
            share = x[at] / (x[at] - solution[at])
            limit = q
    if finite:
        for q in range(rank):
            at = q * step + lane
            value = x[at] + share * (solution[at] - x[at])
            U[i, q] = max(value, value * 0) if q != limit else value * 0
