"""Variational inference for a low-rank matrix with outliers: passes over rows.

The noise of an entry scales with the levels of its row and column. Outliers do not: how far off an
entry is does not depend on how accurate its row is. They scale with the base levels, which follow
the scales of rows and columns.

Each row has a posterior mean and covariance. Symmetric matrices are packed: the lower triangle by
rows. Covariances are packed with doubled off-diagonal elements, so that the trace of the product of
a covariance and a packed matrix is a dot product.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.elementary import exp64, log64
from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.repair import hashed
from robustmf.kernels.small import LANES, add_outer, copy, dot, invert, solve, solve_lanes

#: Smaller densities lose digits.
_MIN_DENSITY = 1e-280

#: Entries within three standard deviations identify the basin of attraction of a fit; an outlier
#: costs at least as much, unless the learned distribution has a component for its size.
_CUTOFF = 9.0

#: Groups of subsets: the best of each is compared by its posterior, after so many regressions.
_CANDIDATES = 4
_REFINEMENTS = 3

#: A row is noisy whose noise variance is this multiple of its base level. Smaller differences
#: hardly change which fit is the better one.
_NOISY = 2.0

#: The ratio of noise variances that are tried where a row may be noisy: a level within a factor of
#: two of the right one suffices, because levels are learned afterwards.
RAISED = 4.0

#: Components with mean zero and a variance above this multiple of the first one are outliers.
OUTLIER_VARIANCE = 10.0

#: Entries whose mixtures are evaluated together.
_BATCH = 32

#: Lower bound of 1 − leverage: an entry that determines its row alone is not divided by zero.
_MIN_FREEDOM = 0.05


@inlined
def _pack_outer(u, out):
    """Out ← uuᵀ, packed."""
    k = 0
    for a in range(u.size):
        for c in range(a + 1):
            out[k] = u[a] * u[c]
            k += 1


@kernel
def posteriors(
    first, last, bounds, pointers, indices, values, weights, V, column_covariances, precision,
    typical, relaxation, U, covariances, remaining,
):  # fmt: skip
    """Mean and covariance of each row, given the other side.

    ``weights`` are the expected precisions of the entries, and ``precision`` that of the prior, per
    factor. The mean of the other side enters in double precision, its covariance as it is stored.

    The columns of a row that determines them follow it, and it would converge slowly. Where its
    mean leverage h, the share of the columns' precisions that are its own, is above ``typical``,
    its step is longer by 1/(1 − relaxation·(1 − d)), where d = (1 − h)/(1 − typical) is the share
    of its precision to which the columns do not give way. The log posterior that the row can still
    gain beyond a step of its own is in ``remaining``.
    """
    r = V.shape[1]
    size = column_covariances.shape[1]
    A, L, S = np.empty((r, r)), np.empty((r, r)), np.empty((r, r))
    packed, b, outer, delta = np.empty(size), np.empty(r), np.empty(size), np.empty(r)
    for i in range(bounds[first], bounds[last]):
        A[:] = 0
        packed[:] = 0
        b[:] = 0
        # four entries at a time: sums are loaded and stored once for all of them
        for low in range(pointers[i], pointers[i + 1], 4):
            end = pointers[i + 1] - 1
            t1, t2, t3 = min(low + 1, end), min(low + 2, end), min(low + 3, end)
            j0, j1, j2, j3 = indices[low], indices[t1], indices[t2], indices[t3]
            w0 = weights[low]
            w1 = weights[t1] if t1 == low + 1 else 0.0
            w2 = weights[t2] if t2 == low + 2 else 0.0
            w3 = weights[t3] if t3 == low + 3 else 0.0
            for k in range(size):
                packed[k] += (
                    w0 * column_covariances[j0, k] + w1 * column_covariances[j1, k]
                    + w2 * column_covariances[j2, k] + w3 * column_covariances[j3, k]
                )  # fmt: skip
            for a in range(r):
                x0, x1, x2, x3 = w0 * V[j0, a], w1 * V[j1, a], w2 * V[j2, a], w3 * V[j3, a]
                b[a] += x0 * values[low] + x1 * values[t1] + x2 * values[t2] + x3 * values[t3]
                for c in range(r):
                    A[a, c] += x0 * V[j0, c] + x1 * V[j1, c] + x2 * V[j2, c] + x3 * V[j3, c]
        k = 0
        for a in range(r):
            for c in range(a):
                A[a, c] += 0.5 * packed[k]
                k += 1
            A[a, a] += packed[k] + precision[a]
            k += 1
        _pack_outer(U[i], outer)
        leverage = min(max(dot(packed, outer), 0.0) / max(pointers[i + 1] - pointers[i], 1), 1.0)
        direct = max(min(1.0, (1 - leverage) / (1 - typical)), _MIN_FREEDOM)
        step = 1 / (1 - relaxation * (1 - direct))
        invert(A, L, S)
        for q in range(r):
            delta[q] = dot(S[q], b) - U[i, q]
        gain = 0.0
        for c in range(r):  # A is its Cholesky factor here
            root = 0.0
            for a in range(c, r):
                root += A[a, c] * delta[a]
            gain += 0.5 * root * root
        remaining[i] = gain * (1 / direct - 1)
        for q in range(r):
            U[i, q] += step * delta[q]
        k = 0
        for a in range(r):
            for c in range(a + 1):
                covariances[i, k] = S[a, c] if a == c else 2 * S[a, c]
                k += 1


@inlined
def _unpack(packed, out):
    """Out ← the symmetric matrix of a packed covariance."""
    k = 0
    for a in range(out.shape[0]):
        for c in range(a):
            out[a, c] = 0.5 * packed[k]
            out[c, a] = 0.5 * packed[k]
            k += 1
        out[a, a] = packed[k]
        k += 1


@inlined
def _is_outlier(k, centers, variances):
    """Whether component k is one of outliers."""
    return centers[k] != 0 or variances[k] > OUTLIER_VARIANCE * variances[0]


@inlined
def _mixture(e, extra, units, roots, log_shares, centers, variances, probabilities, log_densities):
    """Probabilities ← those of the components for a batch of residuals; and their log densities.

    ``units`` are those of the variances of noise and of outliers, and ``roots`` their roots.

    The loops over a batch have a fixed length, so that they are vectorized.
    """
    for z in range(_BATCH):
        log_densities[z] = 0.0
    for k in range(variances.size):
        kind = 1 if _is_outlier(k, centers, variances) else 0
        for z in range(_BATCH):
            precision = 1 / (variances[k] * units[kind, z] + extra[z])
            d = e[z] - centers[k] * roots[kind, z]
            density = exp64(log_shares[k] - 0.5 * d * d * precision)
            probabilities[k, z] = density * np.sqrt(precision)
        for z in range(_BATCH):
            log_densities[z] += probabilities[k, z]
    for z in range(_BATCH):
        if log_densities[z] < _MIN_DENSITY:  # relative to the largest where all underflow
            largest = -np.inf
            for k in range(variances.size):
                kind = 1 if _is_outlier(k, centers, variances) else 0
                v = variances[k] * units[kind, z] + extra[z]
                d = e[z] - centers[k] * roots[kind, z]
                probabilities[k, z] = log_shares[k] - 0.5 * (np.log(v) + d * d / v)
                largest = max(largest, probabilities[k, z])
            total = 0.0
            for k in range(variances.size):
                probabilities[k, z] = np.exp(probabilities[k, z] - largest)
                total += probabilities[k, z]
            for k in range(variances.size):
                probabilities[k, z] /= total
            log_densities[z] = largest + np.log(total)
        else:
            scale = 1 / log_densities[z]
            for k in range(variances.size):
                probabilities[k, z] *= scale
            log_densities[z] = log64(log_densities[z])


@inlined
def _shifted(p, e, extra, units, roots, centers, variances, sums, weight, shift):
    """Weights and mean shifts of a batch ← those of outliers with the learned means.

    An outlier of a narrow component determines the clean value: the residual less the mean. The
    precision is the observed information about the prediction: that of the components, less the
    variance of their scores, which is what is unknown about the component (Louis 1982). Where
    several components overlap, as for outliers of any size, none is left.
    """
    sums[:] = 0
    probability, information, score, square = sums[0], sums[1], sums[2], sums[3]
    for k in range(variances.size):
        if centers[k] != 0:
            for z in range(_BATCH):
                precision = 1 / (variances[k] * units[1, z] + extra[z])
                g = (e[z] - centers[k] * roots[1, z]) * precision
                probability[z] += p[k, z]
                information[z] += p[k, z] * precision
                score[z] += p[k, z] * g
                square[z] += p[k, z] * g * g
    for z in range(_BATCH):
        total = max(probability[z], 1e-300)
        mean = score[z] / total
        known = (information[z] - square[z]) / total + mean * mean
        if known * total > 1e-12:
            weight[z] = probability[z] * known / max(_MIN_FREEDOM, 1 - extra[z] * known)
            shift[z] = e[z] - mean / known
        else:
            weight[z] = 0.0
            shift[z] = 0.0


@kernel
def expectations(  # noqa: PLR0915
    first, last, bounds, pointers, indices, values, U, covariances, V, column_covariances,
    row_levels, column_levels, row_bases, column_bases, log_shares, centers, variances, is_free,
    weights, targets, energies, clean, reliability, log_densities, residuals, sums,
):  # fmt: skip
    """Judge each entry by its leave-one-out residual and the predictive variance.

    An entry is compared with a prediction from which its own influence on both sides is removed,
    so that an outlier is not supported by factors that fit it. Entries are processed in batches:
    first what depends on the factors, entry by entry, then the mixture, component by component.

    Parameters
    ----------
    row_levels, column_levels : array
        The noise variance of an entry is a component's variance times both levels.
    row_bases, column_bases : array
        The same for outliers.
    log_shares, centers, variances : array
        The components of the noise distribution. Those with a center other than zero are
        outliers.
    is_free : bool
        Whether centers and variances of outliers are learned, and their moments needed; without
        that, outliers have no weight.
    weights, targets : arrays over the entries
        The weights of the last pass, and the values that they belonged to; receives the expected
        precisions, and the values less the expected shifts of outliers.
    energies : array over the entries
        Receives the expected squared error, in units of the levels.
    clean : array over the entries
        Receives the probability of the first component.
    reliability : array over the entries
        Receives the probability that the entry is no outlier.
    log_densities : array over the entries
        Receives the log density of each entry given the others.
    residuals : array over the entries
        Receives the leave-one-out residuals.
    sums : (blocks, 3, components) and (blocks,) arrays
        Receive the sums of each component's probabilities and of the expected noise and its square
        under the component; and the noise energy.
    """
    moments, energy = sums
    n_components = variances.size
    r, size = U.shape[1], covariances.shape[1]
    outer, packed, S = np.empty(size), np.empty(size), np.empty((r, r))
    e, extra, levels, density, w = (
        np.empty(_BATCH), np.empty(_BATCH), np.empty(_BATCH), np.empty(_BATCH), np.empty(_BATCH),
    )  # fmt: skip
    reliable, own, shift = np.empty(_BATCH), np.empty(_BATCH), np.empty(_BATCH)
    shift_sums = np.empty((4, _BATCH))
    units, roots = np.ones((2, _BATCH)), np.ones((2, _BATCH))
    base_e, base_extra = np.empty(_BATCH), np.empty(_BATCH)
    p = np.empty((n_components, _BATCH))
    totals = np.empty((3, n_components, _BATCH))
    for z in range(_BATCH):
        own[z], shift[z] = 0.0, 0.0
    for block in range(first, last):
        totals[:] = 0
        energy[block] = 0
        i = bounds[block] - 1
        end = pointers[bounds[block]]
        for low in range(pointers[bounds[block]], pointers[bounds[block + 1]], _BATCH):
            count = min(_BATCH, pointers[bounds[block + 1]] - low)
            for z in range(count):
                t = low + z
                while t >= end:
                    i += 1
                    end = pointers[i + 1]
                    if t < end:
                        _pack_outer(U[i], outer)
                        _unpack(covariances[i], S)
                        for a in range(r):
                            for c in range(a + 1):
                                packed[a * (a + 1) // 2 + c] = S[a, c]
                j = indices[t]
                level = row_levels[i] * column_levels[j]
                x = values[t] - dot(U[i], V[j])
                by_row, by_column = 0.0, 0.0
                for k in range(size):
                    by_row += packed[k] * column_covariances[j, k]
                    by_column += outer[k] * column_covariances[j, k]
                for a in range(r):
                    by_row += V[j, a] * dot(S[a], V[j])
                # rounding can make a quadratic form of a nearly singular covariance negative
                by_row, by_column = max(by_row, 0.0), max(by_column, 0.0)
                energies[t] = (x * x + by_row + by_column) / level
                row_freedom = max(_MIN_FREEDOM, 1 - weights[t] * by_row)
                column_freedom = max(_MIN_FREEDOM, 1 - weights[t] * by_column)
                others = by_row / row_freedom + by_column / column_freedom
                x += weights[t] * others * (x + targets[t] - values[t])
                residuals[t] = x
                e[z] = x
                extra[z] = others
                levels[z] = level
                units[1, z] = row_bases[i] * column_bases[j] / level
            for z in range(count, _BATCH):  # padding, which counts for nothing
                e[z], extra[z], levels[z], units[1, z] = 0.0, 0.0, 1.0, 1.0
            for z in range(_BATCH):
                e[z] /= np.sqrt(levels[z])
                extra[z] /= levels[z]
                roots[1, z] = np.sqrt(units[1, z])
                base_e[z] = e[z] / roots[1, z]
                base_extra[z] = extra[z] / units[1, z]
                w[z], reliable[z] = 0.0, 0.0
            _mixture(e, extra, units, roots, log_shares, centers, variances, p, density)
            for k in range(n_components):
                for z in range(count, _BATCH):
                    p[k, z] = 0.0
                v, center = variances[k], centers[k]
                kind = 1 if _is_outlier(k, centers, variances) else 0
                for z in range(_BATCH):
                    totals[0, k, z] += p[k, z]
                if center == 0 and kind == 0:
                    for z in range(_BATCH):
                        w[z] += p[k, z] / v
                    for z in range(_BATCH):
                        reliable[z] += p[k, z]
                elif center == 0:
                    for z in range(_BATCH):
                        w[z] += p[k, z] / (v * units[1, z])
                elif is_free:
                    for z in range(_BATCH):
                        gain = v / (v + base_extra[z])
                        x = center + gain * (base_e[z] - center)
                        totals[1, k, z] += p[k, z] * x
                        totals[2, k, z] += p[k, z] * (x * x + gain * base_extra[z])
            for z in range(_BATCH):
                density[z] -= 0.5 * log64(levels[z])
            for z in range(count):
                energy[block] += w[z] * energies[low + z]
            if is_free:
                _shifted(
                    p, e, extra, units, roots, centers, variances, shift_sums, own, shift
                )  # fmt: skip
            for z in range(count):
                t = low + z
                total = w[z] + own[z]
                mean = own[z] * shift[z] / max(total, 1e-300)
                weights[t] = total / levels[z]
                targets[t] = values[t] - mean * np.sqrt(levels[z])
                clean[t] = p[0, z]
                reliability[t] = reliable[z]
                log_densities[t] = density[z]
        for a in range(3):
            for k in range(n_components):
                total = 0.0
                for z in range(_BATCH):
                    total += totals[a, k, z]
                moments[block, a, k] = total


@kernel
def level_likelihoods(first, last, bounds, pointers, energies, units, table, lowest, step, out):
    """Log likelihood of each row's noise level, one per column.

    ``units`` are those of each row's energies. ``table`` has the log density of an entry by the
    logarithm of its energy, from ``lowest`` in steps of ``step``, and by the level; it is
    interpolated.
    """
    for i in range(bounds[first], bounds[last]):
        out[i] = 0
        for t in range(pointers[i], pointers[i + 1]):
            x = (np.log(energies[t] / units[i] + 1e-300) - lowest) / step
            x = min(max(x, 0.0), table.shape[0] - 1.001)
            k = np.int64(x)
            share = x - k
            for a in range(out.shape[1]):
                out[i, a] += (1 - share) * table[k, a] + share * table[k + 1, a]


@inlined
def _without_entries(
    pointers, indices, targets, weights, i, U, V, column_covariances, B, covariances, g
):
    """B ← v_j, and covariances ← its packed covariance, without the entry (i, j)."""
    r = U.shape[1]
    for t in range(pointers[i], pointers[i + 1]):
        j, z = indices[t], t - pointers[i]
        S = column_covariances[j]
        g[:] = 0
        k = 0
        for a in range(r):
            for c in range(a):
                g[a] += 0.5 * S[k] * U[i, c]
                g[c] += 0.5 * S[k] * U[i, a]
                k += 1
            g[a] += S[k] * U[i, a]
            k += 1
        w = weights[t]
        shift = w / max(_MIN_FREEDOM, 1 - w * dot(g, U[i]))
        e = targets[t] - dot(U[i], V[j])
        k = 0
        for a in range(r):
            B[z, a] = V[j, a] - shift * e * g[a]
            for c in range(a + 1):
                covariances[z, k] = S[k] + shift * g[a] * g[c] * (1.0 if a == c else 2.0)
                k += 1


@inlined
def _log_posterior(
    B, covariances, y, levels, bases, u, precision, log_shares, centers, variances, w, outer, batch
):  # fmt: skip
    """Log posterior of u; w receives the expected precisions of the entries.

    ``batch`` are workspaces of :func:`_mixture`.
    """
    e, extra, units, roots, p, density, precisions = batch
    total = 0.0
    _pack_outer(u, outer)
    for low in range(0, y.size, _BATCH):
        count = min(_BATCH, y.size - low)
        for z in range(count):
            t = low + z
            extra[z] = max(dot(covariances[t], outer), 0.0) / levels[t]
            e[z] = (y[t] - dot(u, B[t])) / np.sqrt(levels[t])
            units[1, z] = bases[t] / levels[t]
        for z in range(count, _BATCH):  # padding
            e[z], extra[z], units[1, z] = 0.0, 0.0, 1.0
        for z in range(_BATCH):
            roots[1, z] = np.sqrt(units[1, z])
            precisions[z] = 0.0
        _mixture(e, extra, units, roots, log_shares, centers, variances, p, density)
        for k in range(variances.size):
            if centers[k] == 0:
                kind = 1 if _is_outlier(k, centers, variances) else 0
                for z in range(_BATCH):
                    precisions[z] += p[k, z] / (variances[k] * units[kind, z] + extra[z])
        for z in range(count):
            w[low + z] = precisions[z] / levels[low + z]
            total += density[z]
    for q in range(u.size):
        total -= 0.5 * precision[q] * u[q] * u[q]
    return total


@inlined
def _regress(B, y, w, precision, A, u):
    """U ← ridge regression of y on B with weights w."""
    A[:] = 0
    u[:] = 0
    for t in range(y.size):
        add_outer(A, u, B[t], w[t], y[t])
    for q in range(u.size):
        A[q, q] += precision[q]
    solve(A, u)


@inlined
def _subsets(B, scales, y, precision, order, state, entries, rows, weighted, A, u):
    """U ← fits of as many random entries as there are factors, one per lane; return the state.

    ``entries``, ``rows`` and ``weighted`` are workspaces; A and u are the systems of all lanes.
    """
    r = precision.size
    for z in range(LANES):
        for d in range(r):
            state = hashed(state)
            t = d + np.int64(((state >> np.uint64(32)) * np.uint64(y.size - d)) >> np.uint64(32))
            order[d], order[t] = order[t], order[d]
            entries[d, z] = order[d]
    for q in range(r):
        for k in range(q + 1):
            for z in range(LANES):
                A[q, k, z] = precision[q] if k == q else 0.0
        for z in range(LANES):
            u[q, z] = 0.0
    for d in range(r):
        for z in range(LANES):
            t = entries[d, z]
            rows[r, z] = scales[t]
            rows[r + 1, z] = y[t]
            for q in range(r):
                rows[q, z] = B[t, q]
        for q in range(r):
            for z in range(LANES):
                weighted[z] = rows[r, z] * rows[q, z]
            for k in range(q + 1):
                for z in range(LANES):
                    A[q, k, z] += weighted[z] * rows[k, z]
            for z in range(LANES):
                u[q, z] += weighted[z] * rows[r + 1, z]
    solve_lanes(A, u)
    return state


@inlined
def _outlier_costs(level, base, variance, log_shares, centers, variances, costs):
    """Costs ← precision, center and constant of outliers with a mean; return the least cost.

    The cost is −2 log density relative to that of an entry without noise. ``costs`` has a row for
    each component whose mean is not zero.
    """
    noise = variances[0] * level + variance
    lowest = np.inf
    number = 0
    for k in range(variances.size):
        if centers[k] != 0:
            own = variances[k] * base + variance
            costs[number, 0] = 1 / own
            costs[number, 1] = centers[k] * np.sqrt(base)
            costs[number, 2] = 2 * (log_shares[0] - log_shares[k]) + np.log(own / noise)
            lowest = min(lowest, costs[number, 2])
            number += 1
    return lowest


@inlined
def _largest_cost(log_shares, centers, variances):
    """The cost of all other outliers: that of the likeliest component with mean zero."""
    least = np.inf
    for k in range(1, variances.size):
        if centers[k] == 0:
            ratio = variances[k] / variances[0]
            least = min(least, 1 + 2 * (log_shares[0] - log_shares[k]) + np.log(ratio))
    return max(_CUTOFF, least) if least < np.inf else _CUTOFF


@inlined
def _subset_cost(B, y, scales, costs, bounds, precision, u, limit, w):
    """Σ min(e²·scale, cost as an outlier) + penalty of u, or more than ``limit``.

    ``bounds`` are those of the costs. w receives the scales of the entries that are not outliers,
    zero for the others.
    """
    lowest, largest = bounds
    total = 0.0
    for q in range(u.size):
        total += precision[q] * u[q] * u[q]
    for t in range(y.size):
        if total >= limit:
            break
        e = y[t] - dot(u, B[t])
        z = e * e * scales[t]
        least = min(z, largest)
        for k in range(costs.shape[1] if z > lowest else 0):
            d = e - costs[t, k, 1]
            least = min(least, costs[t, k, 2] + d * d * costs[t, k, 0])
        w[t] = scales[t] if z == least else 0.0
        total += least
    return total


@inlined
def _inliers(B, y, scales, u):
    """A hash of the set of entries within the cutoff: equal sets have equal regressions."""
    state = np.uint64(0)
    for t in range(y.size):
        e = y[t] - dot(u, B[t])
        if e * e * scales[t] < _CUTOFF:
            state ^= hashed(np.uint64(t))
    return state


@inlined
def _lane_costs(B, y, scales, costs, bounds, precision, u, limit, e, least, totals):
    """Totals ← the costs of the fits in all lanes as in :func:`_subset_cost`, while any is below.

    e and least are workspaces of one number per lane.
    """
    lowest, largest = bounds
    for z in range(LANES):
        totals[z] = 0.0
    for q in range(precision.size):
        for z in range(LANES):
            totals[z] += precision[q] * u[q, z] * u[q, z]
    for t in range(y.size):
        for z in range(LANES):
            e[z] = y[t]
        for q in range(precision.size):
            x = B[t, q]
            for z in range(LANES):
                e[z] -= x * u[q, z]
        highest = 0.0
        for z in range(LANES):
            square = e[z] * e[z] * scales[t]
            least[z] = min(square, largest)
            highest = max(highest, square)
        for k in range(costs.shape[1] if highest > lowest else 0):
            width, center, own = costs[t, k, 0], costs[t, k, 1], costs[t, k, 2]
            for z in range(LANES):
                d = e[z] - center
                least[z] = min(least[z], own + d * d * width)
        smallest = np.inf
        for z in range(LANES):
            totals[z] += least[z]
            smallest = min(smallest, totals[z])
        if smallest >= limit:
            break


@inlined
def _best_subset(
    B, y, scales, costs, bounds, precision, n_groups, order, state, A, u, w, lanes, best_u
):  # fmt: skip
    """best_u ← the fit of least cost to the entries, of random subsets; return the state.

    Subsets are fitted and compared in groups, one subset per lane of vector registers.
    """
    entries, rows, systems, fits, e, least, totals = lanes
    best = np.inf
    for _ in range(n_groups):
        state = _subsets(B, scales, y, precision, order, state, entries, rows, e, systems, fits)
        _lane_costs(B, y, scales, costs, bounds, precision, fits, best, e, least, totals)
        for _ in range(LANES):  # the best first: it leaves few others promising
            z = 0
            for other in range(1, LANES):
                z = other if totals[other] < totals[z] else z
            if totals[z] >= best:
                break
            totals[z] = np.inf
            for q in range(u.size):
                u[q] = fits[q, z]
            for step in range(3):  # a promising fit is repeated with all entries near it
                if step > 0:
                    _regress(B, y, w, precision, A, u)
                score = _subset_cost(B, y, scales, costs, bounds, precision, u, best, w)
                if score >= best:
                    break
                best = score
                copy(u, best_u)
    return state


@kernel
def resample_rows(  # noqa: PLR0915
    first, last, pointers, indices, values, weights, targets, U, V, column_covariances, precision,
    row_levels, base_levels, column_levels, column_bases, log_shares, centers, variances, rows,
    n_subsets, seed, gain, raised_priors, changed, new_weights,
):  # fmt: skip
    """The better of the present row and the best fit to random subsets, for ``rows[first:last]``.

    A row changes where its log posterior rises by ``gain``; its entries then receive the weights of
    the new fit in ``new_weights``. Each fit is judged with the noise level of the row and with that
    of ``base_levels``, by the larger posterior: a row in a poor local maximum looks noisy, and its
    own level would confirm that. The best one is then refined with higher levels, from the highest
    down, each ``RAISED`` times the next: a noisy row may be fitted to a few of its entries, as if
    the others were outliers, and at a high level there is one local maximum. The logarithms of the
    levels' prior probabilities, relative to that of the row, are ``raised_priors``. ``changed``
    receives 0 for a row that stays, 1 for a new fit with the level of the row, 2 for one with its
    base level, and 3 and more for one with higher levels. A fit with the same entries within the
    cutoff as an earlier one is in the same basin of attraction, and is not compared again.
    """
    r = U.shape[1]
    A, u, candidate, g = np.empty((r, r)), np.empty(r), np.empty(r), np.empty(r)
    refined, seen = np.empty(r), np.empty((_CANDIDATES + 1, 2), np.uint64)
    outer = np.empty(column_covariances.shape[1])
    batch = (
        np.empty(_BATCH), np.empty(_BATCH), np.ones((2, _BATCH)), np.ones((2, _BATCH)),
        np.empty((variances.size, _BATCH)), np.empty(_BATCH), np.empty(_BATCH),
    )  # fmt: skip
    lanes = (
        np.empty((r, LANES), np.int64), np.empty((r + 2, LANES)), np.empty((r, r, LANES)),
        np.empty((r, LANES)), np.empty(LANES), np.empty(LANES), np.empty(LANES),
    )  # fmt: skip
    largest = _largest_cost(log_shares, centers, variances)
    n_centered = 0  # not numpy.count_nonzero, whose sum takes long to compile
    for k in range(variances.size):
        n_centered += 1 if centers[k] != 0 else 0
    for a in range(first, last):
        i = rows[a]
        low, high = pointers[i], pointers[i + 1]
        count = high - low
        changed[a] = 0
        if count < r + 2:
            continue
        y = values[low:high]
        B, covariances = np.empty((count, r)), np.empty((count, outer.size))
        w, order = np.empty(count), np.empty(count, np.int64)
        for t in range(count):
            order[t] = t
        n_levels = 2 if row_levels[i] > _NOISY * base_levels[i] else 1
        levels, scales = np.empty((n_levels, count)), np.empty((n_levels, count))
        bases = np.empty(count)
        costs = np.empty((n_levels, count, n_centered, 3))
        _without_entries(
            pointers, indices, targets, weights, i, U, V, column_covariances, B, covariances, g
        )
        _pack_outer(U[i], outer)
        lowest = np.inf
        for t in range(count):
            variance = max(dot(covariances[t], outer), 0.0)
            bases[t] = base_levels[i] * column_bases[indices[low + t]]
            for k in range(n_levels):
                level = row_levels[i] if k == 0 else base_levels[i]
                levels[k, t] = level * column_levels[indices[low + t]]
                scales[k, t] = 1 / (variances[0] * levels[k, t] + variance)
                least = _outlier_costs(
                    levels[k, t], bases[t], variance, log_shares, centers, variances, costs[k, t]
                )
                lowest = min(lowest, least)
        log_ratio = 0.5 * count * np.log(row_levels[i] / base_levels[i])
        n_groups = max(1, np.int64(n_subsets[a] / (_CANDIDATES * LANES) + 0.5))
        state = hashed(np.uint64(seed) * np.uint64(0x100000001B3) + np.uint64(i))
        best = -np.inf
        # the present row and level first: others must raise the log posterior by ``gain``
        for number in range(_CANDIDATES + 1):
            if number == 0:
                copy(U[i], candidate)
            else:
                state = _best_subset(
                    B, y, scales[number % n_levels], costs[number % n_levels], (lowest, largest),
                    precision, n_groups, order, state, A, u, w, lanes, candidate,
                )  # fmt: skip
            is_new = number == 0
            for k in range(n_levels):
                seen[number, k] = _inliers(B, y, scales[k], candidate)
                is_known = False
                for earlier in range(number):
                    is_known |= seen[earlier, k] == seen[number, k]
                is_new |= not is_known
            if not is_new:
                continue
            for k in range(n_levels):
                copy(candidate, refined)
                found = -np.inf
                for step in range(_REFINEMENTS + 1):
                    found = _log_posterior(
                        B, covariances, y, levels[k], bases, refined, precision, log_shares,
                        centers, variances, w, outer, batch,
                    )  # fmt: skip
                    if step < _REFINEMENTS:
                        _regress(B, y, w, precision, A, refined)
                if k == 1:
                    found += log_ratio  # densities are those of entries in units of their levels
                if number == 0 and k == 0:
                    best = found + gain
                elif found > best:
                    best = found
                    changed[a] = 1 + k
                    copy(refined, U[i])
                    copy(w, new_weights[low:high])
        copy(U[i], refined)
        for k in range(raised_priors.shape[1] - 1, -1, -1):
            ratio = RAISED ** (k + 1.0)
            for t in range(count):
                levels[0, t] = ratio * row_levels[i] * column_levels[indices[low + t]]
            found = -np.inf
            for step in range(_REFINEMENTS + 1):
                found = _log_posterior(
                    B, covariances, y, levels[0], bases, refined, precision, log_shares,
                    centers, variances, w, outer, batch,
                )  # fmt: skip
                if step < _REFINEMENTS:
                    _regress(B, y, w, precision, A, refined)
            found += raised_priors[a, k] - 0.5 * count * np.log(ratio)
            if found > best:
                best = found
                changed[a] = 3 + k
                copy(refined, U[i])
                copy(w, new_weights[low:high])
