"""Variational inference for a low-rank matrix with outliers: passes over rows.

Each row has a posterior mean and covariance. Symmetric matrices are packed: the lower triangle by
rows. Covariances are packed with doubled off-diagonal elements, so that the trace of the product of
a covariance and a packed matrix is a dot product.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.elementary import exp64
from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.repair import hashed
from robustmf.kernels.small import add_outer, copy, dot, invert, solve

#: Smaller densities lose digits.
_MIN_DENSITY = 1e-280

#: In the comparison of subsets, entries farther than three standard deviations count the same.
_CUTOFF = 9.0

#: Groups of subsets: the best of each is compared by its posterior, after so many regressions.
_CANDIDATES = 4
_REFINEMENTS = 3

#: A row is noisy whose noise variance is this multiple of its base level. Smaller differences
#: hardly change which fit is the better one.
_NOISY = 2.0

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
    first, last, bounds, pointers, indices, values, weights, V, moments, precision, U, covariances,
    row_moments,
):  # fmt: skip
    """Mean, covariance and second moment E[uuᵀ] of each row, given the other side.

    ``weights`` are the expected precisions of the entries, ``moments`` the E[vvᵀ] of the other
    side, and ``precision`` that of the prior, per factor.
    """
    r = V.shape[1]
    size = moments.shape[1]
    A, L, S = np.empty((r, r)), np.zeros((r, r)), np.empty((r, r))
    packed, b = np.empty(size), np.empty(r)
    for i in range(bounds[first], bounds[last]):
        packed[:] = 0
        b[:] = 0
        for t in range(pointers[i], pointers[i + 1]):
            j, w = indices[t], weights[t]
            x = w * values[t]
            for q in range(r):
                b[q] += x * V[j, q]
            for k in range(size):
                packed[k] += w * moments[j, k]
        k = 0
        for a in range(r):
            for c in range(a + 1):
                A[a, c] = packed[k]
                k += 1
            A[a, a] += precision[a]
        invert(A, L, S)
        for q in range(r):
            U[i, q] = dot(S[q], b)
        k = 0
        for a in range(r):
            for c in range(a + 1):
                covariances[i, k] = S[a, c] if a == c else 2 * S[a, c]
                row_moments[i, k] = S[a, c] + U[i, a] * U[i, c]
                k += 1


@inlined
def _probabilities(e, extra, log_shares, centers, variances, out):
    """Out ← probability of each component given e, with ``extra`` variance; return the log density.

    Densities are added as they are; only where all underflow, relative to the largest. A loop that
    sums does not write: where arrays are close to each other in memory, such a loop is not
    vectorized, and the order of the sum would depend on addresses.
    """
    for k in range(variances.size):
        precision = 1 / (variances[k] + extra)
        d = e - centers[k]
        out[k] = exp64(log_shares[k] - 0.5 * d * d * precision) * np.sqrt(precision)
    total = 0.0
    for k in range(variances.size):
        total += out[k]
    largest = 0.0
    if total < _MIN_DENSITY:
        largest = -np.inf
        for k in range(variances.size):
            v = variances[k] + extra
            d = e - centers[k]
            out[k] = log_shares[k] - 0.5 * (np.log(v) + d * d / v)
        for k in range(variances.size):
            largest = max(largest, out[k])
        for k in range(variances.size):
            out[k] = np.exp(out[k] - largest)
        total = 0.0
        for k in range(variances.size):
            total += out[k]
    for k in range(variances.size):
        out[k] /= total
    return largest + np.log(total)


@kernel
def expectations(
    first, last, bounds, pointers, indices, values, U, covariances, V, column_covariances,
    column_moments, row_levels, column_levels, log_shares, centers, variances, weights, energies,
    clean, log_densities, residuals, sums,
):  # fmt: skip
    """Judge each entry by its leave-one-out residual and the predictive variance.

    An entry is compared with a prediction from which its own influence on both sides is removed,
    so that an outlier is not supported by factors that fit it.

    Parameters
    ----------
    row_levels, column_levels : array
        The noise variance of an entry is a component's variance times both levels.
    log_shares, centers, variances : array
        The components of the noise distribution. Those with a center other than zero are
        outliers, without weight.
    weights : array over the entries
        The weights of the last pass; receives the expected precisions.
    energies : array over the entries
        Receives the expected squared error, in units of the levels.
    clean : array over the entries
        Receives the probability of the first component.
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
    outer, terms = np.empty(covariances.shape[1]), np.empty(n_components)
    for block in range(first, last):
        moments[block] = 0
        energy[block] = 0
        for i in range(bounds[block], bounds[block + 1]):
            _pack_outer(U[i], outer)
            for t in range(pointers[i], pointers[i + 1]):
                j = indices[t]
                level = row_levels[i] * column_levels[j]
                e = values[t] - dot(U[i], V[j])
                by_row = dot(covariances[i], column_moments[j])
                by_column = dot(column_covariances[j], outer)
                energies[t] = (e * e + by_row + by_column) / level
                w = weights[t]
                row_freedom = max(_MIN_FREEDOM, 1 - w * by_row)
                column_freedom = max(_MIN_FREEDOM, 1 - w * by_column)
                extra = (by_row / row_freedom + by_column / column_freedom) / level
                e *= 1 + w * (by_row / row_freedom + by_column / column_freedom)
                residuals[t] = e
                e /= np.sqrt(level)
                log_density = _probabilities(e, extra, log_shares, centers, variances, terms)
                w = 0.0
                for k in range(n_components):
                    if centers[k] == 0:
                        w += terms[k] / variances[k]
                for k in range(n_components):
                    p = terms[k]
                    moments[block, 0, k] += p
                    if centers[k] != 0 and p > 1e-9:
                        gain = variances[k] / (variances[k] + extra)
                        x = centers[k] + gain * (e - centers[k])
                        moments[block, 1, k] += p * x
                        moments[block, 2, k] += p * (x * x + gain * extra)
                weights[t] = w / level
                clean[t] = terms[0]
                energy[block] += w * energies[t]
                log_densities[t] = log_density - 0.5 * np.log(level)


@kernel
def level_likelihoods(
    first, last, bounds, pointers, energies, units, table, lowest, step, offsets, out,
):  # fmt: skip
    """Log likelihood of each row's noise level, for levels exp(offsets·step).

    ``units`` are those of each row's energies; ``table`` has the log density of the noise at
    energies exp(lowest + k·step).
    """
    last_bin = table.size - 1
    for i in range(bounds[first], bounds[last]):
        out[i] = 0
        for t in range(pointers[i], pointers[i + 1]):
            x = np.log(energies[t] / units[i] + 1e-300)
            k = int(np.rint((x - lowest) / step))
            for a in range(offsets.size):
                z = min(max(k - offsets[a], 0), last_bin)
                out[i, a] += table[z] - 0.5 * step * offsets[a]


@inlined
def _without_entries(
    pointers, indices, values, weights, i, U, V, column_covariances, B, covariances, g
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
        e = values[t] - dot(U[i], V[j])
        k = 0
        for a in range(r):
            B[z, a] = V[j, a] - shift * e * g[a]
            for c in range(a + 1):
                covariances[z, k] = S[k] + shift * g[a] * g[c] * (1.0 if a == c else 2.0)
                k += 1


@inlined
def _log_posterior(
    B, covariances, y, levels, u, precision, log_shares, centers, variances, w, outer, terms
):
    """Log posterior of u; w receives the expected precisions of the entries."""
    total = 0.0
    _pack_outer(u, outer)
    for t in range(y.size):
        extra = dot(covariances[t], outer) / levels[t]
        e = (y[t] - dot(u, B[t])) / np.sqrt(levels[t])
        total += _probabilities(e, extra, log_shares, centers, variances, terms)
        weight = 0.0
        for k in range(variances.size):
            if centers[k] == 0:
                weight += terms[k] / (variances[k] + extra)
        w[t] = weight / levels[t]
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
def _subset(B, y, scales, precision, order, state, A, u):
    """U ← fit of as many random entries as there are factors; return the random state."""
    A[:] = 0
    u[:] = 0
    for d in range(u.size):
        state = hashed(state)
        z = d + np.int64((state >> np.uint64(11)) % np.uint64(y.size - d))
        order[d], order[z] = order[z], order[d]
        add_outer(A, u, B[order[d]], scales[order[d]], y[order[d]])
    for q in range(u.size):
        A[q, q] += precision[q]
    solve(A, u)
    return state


@inlined
def _truncated_squares(B, y, scales, precision, u, limit, w):
    """Σ min(e²·scale, cutoff) + penalty of u, or more than ``limit``.

    w receives the scales of the entries within the cutoff, zero for the others.
    """
    total = 0.0
    for q in range(u.size):
        total += precision[q] * u[q] * u[q]
    for t in range(y.size):
        if total >= limit:
            break
        e = y[t] - dot(u, B[t])
        z = e * e * scales[t]
        w[t] = scales[t] if z < _CUTOFF else 0.0
        total += min(z, _CUTOFF)
    return total


@inlined
def _best_subset(B, y, scales, precision, n_subsets, order, state, A, u, w, best_u):
    """best_u ← the fit with the fewest large residuals, of random subsets; return the state."""
    best = np.inf
    for _ in range(n_subsets):
        for step in range(3):  # a promising fit is repeated with all entries near it
            if step == 0:
                state = _subset(B, y, scales, precision, order, state, A, u)
            else:
                _regress(B, y, w, precision, A, u)
            score = _truncated_squares(B, y, scales, precision, u, best, w)
            if score >= best:
                break
            best = score
            copy(u, best_u)
    return state


@kernel
def resample_rows(
    first, last, pointers, indices, values, weights, U, V, column_covariances, precision,
    row_levels, base_levels, column_levels, log_shares, centers, variances, rows, n_subsets, seed,
    gain, changed, new_weights,
):  # fmt: skip
    """The better of the present row and the best fit to random subsets, for ``rows[first:last]``.

    A row changes where its log posterior rises by ``gain``; its entries then receive the weights of
    the new fit in ``new_weights``. Each fit is judged with the noise level of the row and with that
    of ``base_levels``, by the larger posterior: a row in a poor local maximum looks noisy, and its
    own level would confirm that. ``changed`` receives 0 for a row that stays, 1 for a new fit with
    the level of the row and 2 for one with its base level.
    """
    r = U.shape[1]
    A, u, candidate, g = np.empty((r, r)), np.empty(r), np.empty(r), np.empty(r)
    refined = np.empty(r)
    outer, terms = np.empty(column_covariances.shape[1]), np.empty(variances.size)
    for a in range(first, last):
        i = rows[a]
        low, high = pointers[i], pointers[i + 1]
        count = high - low
        changed[a] = 0
        if count < r + 2:
            continue
        y = values[low:high]
        B, covariances = np.empty((count, r)), np.empty((count, outer.size))
        w, order = np.empty(count), np.arange(count)
        n_levels = 2 if row_levels[i] > _NOISY * base_levels[i] else 1
        levels, scales = np.empty((n_levels, count)), np.empty((n_levels, count))
        _without_entries(
            pointers, indices, values, weights, i, U, V, column_covariances, B, covariances, g
        )
        _pack_outer(U[i], outer)
        for t in range(count):
            variance = dot(covariances[t], outer)
            for k in range(n_levels):
                level = row_levels[i] if k == 0 else base_levels[i]
                levels[k, t] = level * column_levels[indices[low + t]]
                scales[k, t] = 1 / (variances[0] * levels[k, t] + variance)
        log_ratio = 0.5 * count * np.log(row_levels[i] / base_levels[i])
        state = hashed(np.uint64(seed) * np.uint64(0x100000001B3) + np.uint64(i))
        best = -np.inf
        # the present row and level first: others must raise the log posterior by ``gain``
        for number in range(_CANDIDATES + 1):
            if number == 0:
                copy(U[i], candidate)
            else:
                state = _best_subset(
                    B, y, scales[number % n_levels], precision, 1 + n_subsets[a] // _CANDIDATES,
                    order, state, A, u, w, candidate,
                )  # fmt: skip
            for k in range(n_levels):
                copy(candidate, refined)
                found = -np.inf
                for step in range(_REFINEMENTS + 1):
                    found = _log_posterior(
                        B, covariances, y, levels[k], refined, precision, log_shares, centers,
                        variances, w, outer, terms,
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
