"""One half-step of iteratively reweighted least squares for M ~ U V' with a sparse matrix M.

For every row i with entries t (column j, value m_t, optional sample weight s_t), given V and the
current u = U_i:

    a_t = sqrt((m_t - u'v_j)^2 + eps^2),   w_t = s_t weight(a_t),
    U_i <- solve (sum_t w_t v_j v_j' + R_i) u = sum_t w_t m_t v_j.

With a finite curvature it is a step towards Newton's. The weight is the curvature of the quadratic
majorizer; outside the smoothing width the curvature of the loss is smaller. So c_t = w_t (k + (1 -
k) y_t), y_t = eps^2 / a_t^2, replaces w_t in the matrix, and c_t m_t + (w_t - c_t) e_t replaces w_t
m_t on the right, where e_t is the residual. k = min(1, curvature * rank / sum_t y_t): the fewer
entries of the row lie within the smoothing width, the less the step is lengthened. The sum is over
the whole row and counts all entries with s_t > 0 equally, because their number determines the
matrix, in any unit of s.

Where time is spent, and what each part does about it:

* residuals and normal matrix: no gather. The rows of V, padded to whole vectors, are read in place
  through their offsets; sums stay in registers over a block of entries (4 rows x 2 vectors of the
  normal matrix at once).
* weights: one call of a compiled function per block of entries, through its address, so one
  compiled kernel serves every loss.
* solve: as many rows as a vector has lanes are solved at once, one system per lane. A Cholesky
  factorization of one small matrix waits for its own square roots and divisions; eight side by side
  do not.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.nonnegative import (
    descend,
    load_rows,
    remove_zeros,
    write_row_within_bounds,
)
from robustmf.kernels.vector import (
    BYTES,
    REGISTERS,
    add,
    add_outer,
    add_products,
    add_tile,
    call_block,
    clamp,
    distance,
    fnma,
    inverse_root,
    lane_sums,
    lanes,
    load,
    load_tile,
    mul,
    splat,
    store,
    store_tile,
    sub,
    subtract_products,
    transpose,
    zeros,
)

#: Rows of a band of the normal matrix; the last band may have 4.
BAND = 8

#: Pivots that the solve eliminates at once.
PANEL = 4

#: Bytes of the rows of V of a block of entries, which are read repeatedly: they fit the L1 cache.
BLOCK_BYTES = 24576

#: The smallest and the largest number of entries of a block.
BLOCK_LIMITS = (32, 512)


# ------------------------------------------------------------------- the normal matrix of one row


def padded_width(rank, itemsize):
    """Columns of V in the kernel: the rank rounded up to whole vectors."""
    step = BYTES // itemsize
    return -(-rank // step) * step


def pad(V, dtype):
    """V flat, aligned to cache lines, with rows padded by zeros to whole vectors of ``dtype``."""
    width = padded_width(V.shape[1], dtype.itemsize)
    size, spare = V.shape[0] * width, 64 // dtype.itemsize
    room = np.zeros(size + spare, dtype)
    shift = -room.ctypes.data % 64 // dtype.itemsize
    padded = room[shift : shift + size]
    padded.reshape(-1, width)[:, : V.shape[1]] = V
    return padded


def block_size(width, itemsize):
    """Entries per block: as many as keep their rows of V in the L1 cache."""
    return min(max(BLOCK_BYTES // (width * itemsize), BLOCK_LIMITS[0]), BLOCK_LIMITS[1]) // 8 * 8


def _tile(rows, groups, with_rhs):
    """Compile: normal[q:q + rows, c:c + groups lanes] += sum_t w_t v v'.

    With ``with_rhs`` also rhs[c:...] += sum_t pull_t v.
    """
    count = (rows + with_rhs) * groups

    @inlined
    def add_to_tile(V, offset, pull, weight, n, q, c, normals, rhs, lane, width):
        tile = zeros(V, count)
        for t in range(n):
            if with_rhs:  # constants: Numba drops the other branch
                tile = add_outer(tile, V, offset[t] + q, offset[t] + c, weight[t], pull[t], rows)
            else:
                tile = add_outer(tile, V, offset[t] + q, offset[t] + c, weight[t], None, rows)
        add_tile(normals, (lane * width + q) * width + c, width, tile, 0, rows, groups)
        if with_rhs:
            add_tile(rhs, lane * width + c, width, tile, rows, 1, groups)

    return add_to_tile


# Shapes with 8 sums (10 with the right-hand side): fewer would wait for one another, more would not
# fit into the 16 registers of AVX2. The corner is for float64, whose vectors are half a band.
_pair, _top_pair = _tile(4, 2, False), _tile(4, 2, True)
_single, _top_single = _tile(8, 1, False), _tile(8, 1, True)
_corner, _top_corner = _tile(4, 1, False), _tile(4, 1, True)
# These wait for one another, but have only a third of the work.
_low_pair, _low_single = _tile(2, 2, True), _tile(2, 1, True)


@inlined
def _band_and_low(V, offset, pull, weight, n, normals, rhs, lane, width):
    """One band of one vector and the two rows below it in one loop: rows of V are read once.

    Its 14 sums need more than 16 registers.
    """
    band, low = zeros(V, 8), zeros(V, 6)
    for t in range(n):
        band = add_outer(band, V, offset[t], offset[t], weight[t], None, 8)
        low = add_outer(low, V, offset[t] + BAND, offset[t], weight[t], pull[t], 2)
    add_tile(normals, lane * width * width, width, band, 0, 8, 1)
    add_tile(normals, (lane * width + BAND) * width, width, low, 0, 2, 2)
    add_tile(rhs, lane * width, width, low, 2, 1, 2)


@inlined
def whole_bands(rank, width):
    """Columns of the normal matrix that are summed in bands.

    All, or all but the last four or fewer of more than 8: a band for those would be mostly padding.
    Their rows are summed from the first column on, below the diagonal.
    """
    return rank // BAND * BAND if rank > BAND and 0 < rank % BAND <= BAND // 2 else width


@inlined
def add_block(V, offset, pull, weight, n, normals, rhs, lane, rank, width, wide):
    """The lane's normal += sum_t w_t v_t v_t' (one triangle), its rhs += sum_t pull_t v_t.

    ``wide`` is None at ranks up to a band, which need four kinds of tiles; the others are then not
    compiled. Positions are not literals, for which Numba would compile each tile again.
    """
    step, zero, half = lanes(V), np.int64(0), np.int64(BAND // 2)
    if wide is None:
        last = width - step  # where the last vector of a row starts
        for c in range(0, last, 2 * step):
            _top_pair(V, offset, pull, weight, n, zero, c, normals, rhs, lane, width)
            if rank > half:
                _pair(V, offset, pull, weight, n, half, c, normals, rhs, lane, width)
        if width < BAND:
            _top_corner(V, offset, pull, weight, n, zero, last, normals, rhs, lane, width)
        elif width // step % 2:
            _top_single(V, offset, pull, weight, n, zero, last, normals, rhs, lane, width)
        return
    whole = whole_bands(rank, width)
    last = whole - step
    if REGISTERS > 16 and step == BAND == whole < rank <= whole + 2:
        _band_and_low(V, offset, pull, weight, n, normals, rhs, lane, width)
        return
    if whole == width:
        for c in range(0, last, 2 * step):
            _top_pair(V, offset, pull, weight, n, zero, c, normals, rhs, lane, width)
            _pair(V, offset, pull, weight, n, half, c, normals, rhs, lane, width)
        if width // step % 2:
            _top_single(V, offset, pull, weight, n, zero, last, normals, rhs, lane, width)
    for q in range(BAND if whole == width else 0, min(rank, whole), BAND):
        for c in range(q, last, 2 * step):
            _pair(V, offset, pull, weight, n, q, c, normals, rhs, lane, width)
            if rank > q + 4:
                _pair(V, offset, pull, weight, n, q + 4, c, normals, rhs, lane, width)
        if whole - q < BAND:
            _corner(V, offset, pull, weight, n, q, last, normals, rhs, lane, width)
        elif (whole - q) // step % 2:
            _single(V, offset, pull, weight, n, q, last, normals, rhs, lane, width)
    for c in range(0, width if whole < width else 0, 2 * step):
        if rank - whole > 2 and c + step < width:
            _top_pair(V, offset, pull, weight, n, whole, c, normals, rhs, lane, width)
        elif rank - whole > 2:
            _top_corner(V, offset, pull, weight, n, whole, c, normals, rhs, lane, width)
        elif c + step < width:
            _low_pair(V, offset, pull, weight, n, whole, c, normals, rhs, lane, width)
        else:
            _low_single(V, offset, pull, weight, n, whole, c, normals, rhs, lane, width)


@inlined
def load_block(indices, values, shifts, bounds, s, n, width, offset, value):
    """Copy a block of entries to padded buffers.

    ``offset`` is the position of each row of V, ``value`` the clipped value minus the shift of the
    column. With the padding (row 0, value 0) loops run over whole vectors; it does not affect
    results.
    """
    for t in range(n):
        # unsigned: no test for negative positions; no slices, which count references
        at = np.uint64(s + t)
        offset[t] = indices[at] * width
    if len(shifts) > 0:
        for t in range(n):
            # in one expression: values may be wider than the buffer
            at = np.uint64(s + t)
            value[t] = min(max(values[at], bounds[0]), bounds[1]) - shifts[np.uint64(indices[at])]
    else:
        for t in range(n):
            value[t] = min(max(values[np.uint64(s + t)], bounds[0]), bounds[1])
    for t in range(n, n + lanes(value)):
        offset[t] = 0
        value[t] = 0


@inlined
def differences(V, offset, value, n, u, width, e, begin):
    """e[begin + t] = m_t - u'v_t for a padded block; e is overwritten up to a whole vector."""
    step = lanes(V)
    for t in range(0, n, step):
        products = zeros(V, 0)
        for c in range(0, width, step):
            products = add_products(products, V, offset, t, c, load(u, c))
        store(e, begin + t, sub(load(value, t), lane_sums(products)))


@inlined
def distances(e, begin, n, eps2, a):
    """a_t = sqrt(e[begin + t]^2 + eps^2) for a padded block."""
    for t in range(0, n, lanes(a)):
        store(a, t, distance(load(e, begin + t), splat(a, eps2)))


@inlined
def finish_weights(a, weight, sample, s, n, top):
    """Apply the sample weights and clip every weight to [0, top]."""
    step = lanes(a)
    if len(sample) > 0:
        for t in range(n):
            weight[t] *= sample[np.uint64(s + t)]
    for t in range(n, n + step):
        a[t] = 0
        weight[t] = 0
    for t in range(0, n, step):
        store(weight, t, clamp(load(weight, t), splat(a, top)))


@inlined
def nearness(a, sample, s, n, eps2):
    """Replace the distances a by y; return the sum of y over the entries that have a weight."""
    near_zero = a[0] * 0
    if len(sample) > 0:
        for t in range(n):
            a[t] = eps2 / (a[t] * a[t])
            near_zero += a[t] if sample[np.uint64(s + t)] > 0 else eps2 * 0
    else:
        for t in range(n):
            a[t] = eps2 / (a[t] * a[t])
            near_zero += a[t]
    return near_zero


@inlined
def look_ahead(
    indices, values, sample, shifts, clip, start, end, V, width, u, eps2, size, offset, value, e, a
):
    """The residuals e of a row of several blocks; return the sum of y, which all blocks need."""
    near_zero = eps2 * 0
    for s in range(start, end, size):
        n = min(size, end - s)
        load_block(indices, values, shifts, clip, s, n, width, offset, value)
        differences(V, offset, value, n, u, width, e, s - start)
        distances(e, s - start, n, eps2, a)
        near_zero += nearness(a, sample, s, n, eps2)
    return near_zero


@inlined
def to_curvatures(e, begin, a, value, weight, n, k):
    """Replace the weights w by the curvatures c, and the values by c_t m_t + (w_t - c_t) e_t.

    a contains y; e_t is e[begin + t].
    """
    for t in range(n):
        share = k + (1 - k) * a[t]
        value[t] = weight[t] * (share * value[t] + (1 - share) * e[np.uint64(begin + t)])
        weight[t] *= share


@inlined
def pulls(value, weight, n):
    """Replace the values by w_t m_t."""
    for t in range(n):
        value[t] *= weight[t]


# ------------------------------------------------------------------- the solve, one row per lane


@inlined
def interleave(normals, rhs, rank, width, system, columns, floor, tolerance):
    """Copy normal matrices and right-hand sides to `system` [rank, columns, lane], rhs last."""
    step, whole = lanes(system), whole_bands(rank, width)
    row = columns * step
    for q in range(rank):
        for c in range(0 if q >= whole else q // step * step, width if q >= whole else whole, step):
            tile = transpose(load_tile(normals, q * width + c, width * width, 0))
            if q >= whole > c:  # below the diagonal
                store_tile(system, c * row + q * step, row, tile)
            else:
                store_tile(system, q * row + c * step, step, tile)
        store(floor, q * step, mul(load(system, q * row + q * step), splat(system, tolerance)))
    for q in range(0, rank, step):
        store_tile(system, q * row + rank * step, row, transpose(load_tile(rhs, q, width, 0)))


@inlined
def subtract_solved(system, k, columns):
    """Subtract the contributions of the rows above from rows k..k+PANEL of the system."""
    step = lanes(system)
    row = columns * step
    for q in range(k, columns, 4):
        at = k * row + q * step
        s0, s1 = load_tile(system, at, row, PANEL), load_tile(system, at + step, row, PANEL)
        s2, s3 = (
            load_tile(system, at + 2 * step, row, PANEL),
            load_tile(system, at + 3 * step, row, PANEL),
        )
        for j in range(k):
            left, right = j * row + k * step, j * row + q * step
            s0 = subtract_products(s0, system, left, load(system, right))
            s1 = subtract_products(s1, system, left, load(system, right + step))
            s2 = subtract_products(s2, system, left, load(system, right + 2 * step))
            s3 = subtract_products(s3, system, left, load(system, right + 3 * step))
        store_tile(system, at, row, s0)
        store_tile(system, at + step, row, s1)
        store_tile(system, at + 2 * step, row, s2)
        store_tile(system, at + 3 * step, row, s3)


@inlined
def factor(system, start, rank, columns, floor):
    """Cholesky A = R'R of the rows start..start+PANEL in every lane, in place.

    The right-hand side is one more column. The diagonal receives 1 / R_kk, or 0 if the pivot is not
    above `floor`: that unknown is then 0.
    """
    step = lanes(system)
    row = columns * step
    stop = min(start + PANEL, rank)
    for k in range(start, stop):
        inverse = inverse_root(load(system, k * row + k * step), load(floor, k * step))
        store(system, k * row + k * step, inverse)
        for q in range((k + 1) * step, (rank + 1) * step, step):
            store(system, k * row + q, mul(load(system, k * row + q), inverse))
        for p in range(k + 1, stop):
            left = load(system, k * row + p * step)
            for q in range(p * step, (rank + 1) * step, step):
                store(
                    system,
                    p * row + q,
                    fnma(left, load(system, k * row + q), load(system, p * row + q)),
                )


@inlined
def substitute(system, rank, columns, solution):
    """Solution = R^-1 (last column of the system) in every lane; two sums hide the latency."""
    step = lanes(system)
    row = columns * step
    for k in range(rank - 1, -1, -1):
        even, odd = load(system, k * row + rank * step), splat(system, 0)
        for q in range(k + 1, rank - 1, 2):
            even = fnma(load(system, k * row + q * step), load(solution, q * step), even)
            odd = fnma(load(system, k * row + (q + 1) * step), load(solution, (q + 1) * step), odd)
        if (rank - k) % 2 == 0:
            even = fnma(
                load(system, k * row + (rank - 1) * step), load(solution, (rank - 1) * step), even
            )
        store(solution, k * step, mul(add(even, odd), load(system, k * row + k * step)))


@inlined
def write_row(solution, lane, rank, U, i):
    """U[i] = the solution of the lane; if it is not finite, the row keeps its values."""
    step = lanes(solution)
    finite = True
    for q in range(rank):
        finite &= np.isfinite(solution[q * step + lane])
    if finite:
        for q in range(rank):
            U[i, q] = solution[q * step + lane]


# ------------------------------------------------------------------------------------ the kernel


# Functions that are called for every row call no others, and take no slices or tuples of arrays:
# Numba would count references, atomically, which takes longer than everything else in short rows.
@kernel
def half_step(  # noqa: PLR0915
    first,
    last,
    bounds,
    indptr,
    indices,
    values,
    sample,
    shifts,
    clip,
    V,
    width,
    U,
    reg,
    by_factor,
    eps2,
    curvature,
    weight_address,
    params,
    size,
    wide,
    nonnegative,
):
    """The half-step for the rows of the blocks ``[first, last)``, in place.

    V is flat, its rows padded with zeros to `width`. Computations have the dtype of V; entries,
    sample weights, shifts and U may have a wider one. The ridge of factor q of row i is
    ``reg[i] @ by_factor[:, q]``. Values are clipped to ``clip``, and
    ``shifts`` (one per column) are subtracted; `sample` and `shifts` are empty if unused. Address 0
    is the weight 1 of least squares; a curvature that is infinite or None means plain reweighted
    least squares. A row whose solution is not finite keeps its values. ``curvature`` and ``wide``
    (see `add_block`) are None where that leaves less to compile. Unless ``nonnegative`` is None,
    rows of U, which are non-negative, remain so: the same quadratic function is lowered from the
    present row, not always to its minimum.
    """
    rank, step, number = U.shape[1], lanes(V), V.dtype.type
    columns = max(width, (rank + 4) // 4 * 4)  # with the right-hand side, in whole tiles
    limits = np.finfo(V.dtype)
    top, tolerance = number(np.sqrt(limits.max)), number(4 * limits.eps)

    normals, rhs = np.zeros(step * width * width, V.dtype), np.zeros(step * width, V.dtype)
    system, floor = np.zeros(width * columns * step, V.dtype), np.zeros(width * step, V.dtype)
    solution, u = np.zeros(width * step, V.dtype), np.zeros(width, V.dtype)
    if nonnegative is not None:
        x = np.zeros(width * step, V.dtype)
    padded = size + step
    offset, value = np.zeros(padded, np.int64), np.zeros(padded, V.dtype)
    a, weight = np.zeros(padded, V.dtype), np.zeros(padded, V.dtype)
    end, longest, several = bounds[last], size, False
    # alone, without "and": then Numba drops the branch for None
    if curvature is not None:  # noqa: SIM102
        if curvature < np.inf:
            for i in range(bounds[first], end):
                longest = max(longest, indptr[i + 1] - indptr[i])
    e = np.zeros(longest + step, V.dtype)

    for start in range(bounds[first], end, step):
        stop = min(start + step, end)
        normals[:] = 0
        rhs[:] = 0
        for i in range(start, stop):
            lane = i - start
            for q in range(rank):
                u[q] = U[i, q]
            s, near_zero = indptr[i], eps2 * 0
            if curvature is not None:
                several = curvature < np.inf and indptr[i + 1] - s > size
                if several:
                    near_zero = look_ahead(
                        indices,
                        values,
                        sample,
                        shifts,
                        clip,
                        s,
                        indptr[i + 1],
                        V,
                        width,
                        u,
                        eps2,
                        size,
                        offset,
                        value,
                        e,
                        a,
                    )
            while s < indptr[i + 1]:
                n, begin = min(size, indptr[i + 1] - s), s - indptr[i] if several else np.int64(0)
                load_block(indices, values, shifts, clip, s, n, width, offset, value)
                if weight_address == 0:
                    for t in range(n):
                        weight[t] = 1
                else:
                    if not several:
                        differences(V, offset, value, n, u, width, e, begin)
                    distances(e, begin, n, eps2, a)
                    call_block(weight_address, a, weight, (n + step - 1) // step * step, params)
                finish_weights(a, weight, sample, s, n, top)
                if curvature is None:  # noqa: SIM114
                    pulls(value, weight, n)
                elif curvature == np.inf:
                    pulls(value, weight, n)
                else:
                    found = nearness(a, sample, s, n, eps2)
                    near_zero = near_zero if several else found
                    enough = number(curvature * rank)
                    to_curvatures(e, begin, a, value, weight, n, enough / max(enough, near_zero))
                add_block(V, offset, value, weight, n, normals, rhs, lane, rank, width, wide)
                s += n
            for q in range(rank):
                ridge = reg[i, 0] * by_factor[0, q] + reg[i, 1] * by_factor[1, q]
                normals[(lane * width + q) * width + q] += ridge
        interleave(normals, rhs, rank, width, system, columns, floor, tolerance)
        if nonnegative is not None:
            load_rows(U, start, stop, rank, x)
            descend(system, rank, columns, solution, x, top)
            remove_zeros(system, rank, columns, x)
        for k in range(0, rank, PANEL):
            subtract_solved(system, k, columns)
            factor(system, k, rank, columns, floor)
        substitute(system, rank, columns, solution)
        for i in range(start, stop):
            if nonnegative is None:
                write_row(solution, i - start, rank, U, i)
            else:
                write_row_within_bounds(x, solution, i - start, rank, U, i)
