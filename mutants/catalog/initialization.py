"""The search for initial factors: variational inference, noise distribution, spectra."""

from __future__ import annotations

from mutants.mutant import Mutant

_PARTS = (
    "initialization/test_search_parts.py initialization/test_attempts.py "
    "initialization/test_extension.py "
    "initialization/test_noise_mixture.py initialization/test_spectral.py"
)
_UNITS = (
    "initialization/test_variational.py "
    "-k 'posterior or judged or balanced or subsets or mixture or textbook or levels or medians'"
)
_RANK = "initialization/test_variational.py -k 'bethe or theta'"
_KERNELS = "kernels/variational.py"
_SEARCH = "initialization/variational.py"
_ATTEMPTS = "initialization/attempts.py"
_POSTERIOR = "initialization/posterior.py"
_NOISE = "initialization/noise_mixture.py"
_SPECTRUM = "initialization/spectral.py"
_CHOICE = "initialization/test_model_choice.py"
_BLOCKS = "initialization/test_search_blocks.py initialization/test_extension.py"
_NONNEGATIVE = "initialization/test_nonnegative.py"

MUTANTS = [
    # kernels
    Mutant(_KERNELS, "S[a, c] if a == c else 2 * S[a, c]", "S[a, c]", _UNITS),
    Mutant(
        _KERNELS,
        "covariances[i, k] = S[a, c] if a == c else 2 * S[a, c]",
        "covariances[i, k] = S[a, c]",
        _UNITS,
    ),
    Mutant(_KERNELS, "(x * x + by_row + by_column) / level", "(x * x + by_row) / level", _UNITS),
    Mutant(_KERNELS, "known = (information[z] - square[z])", "known = information[z]", _PARTS),
    Mutant(_KERNELS, "shift[z] = e[z] - mean / known", "shift[z] = e[z]", _PARTS),
    Mutant(
        _KERNELS,
        "centers[k] != 0 or variances[k] > OUTLIER_VARIANCE * variances[0]",
        "centers[k] != 0",
        _PARTS,
    ),
    Mutant(
        _KERNELS,
        "units[1, z] = row_bases[i] * column_bases[j] / level",
        "units[1, z] = 1.0",
        _PARTS,
    ),
    Mutant(_KERNELS, "units[1, z] = bases[t] / levels[t]", "units[1, z] = 1.0", _PARTS),
    Mutant(
        _KERNELS,
        "costs[number, 1] = centers[k] * np.sqrt(base)",
        "costs[number, 1] = centers[k]",
        _PARTS,
    ),
    Mutant(_NOISE, "of_noise[at] - 0.5 * offsets", "of_noise[at]", _PARTS),
    Mutant(
        _KERNELS,
        "row_freedom = max(_MIN_FREEDOM, 1 - weights[t] * by_row)",
        "row_freedom = 1 - weights[t] * by_row",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _KERNELS,
        "x += weights[t] * others * (x + targets[t] - values[t])",
        "x += weights[t] * by_row * (x + targets[t] - values[t])",
        _UNITS,
    ),
    Mutant(
        _KERNELS,
        "elif center == 0:",
        "elif True:",
        _PARTS,
        aimed=True,
    ),
    Mutant(_KERNELS, "weights[t] = total / levels[z]", "weights[t] = total", _PARTS, aimed=True),
    Mutant(
        _KERNELS,
        "density[z] -= 0.5 * log64(levels[z])",
        "density[z] -= 0",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _KERNELS,
        "out[i, a] += (1 - share) * table[k, a] + share * table[k + 1, a]",
        "out[i, a] += table[k, 0]",
        _UNITS,
    ),
    Mutant(
        _KERNELS, "B[z, a] = V[j, a] - shift * e * g[a]", "B[z, a] = V[j, a]", _PARTS, aimed=True
    ),
    Mutant(
        _KERNELS,
        "shift * g[a] * g[c] * (1.0 if a == c else 2.0)",
        "shift * g[a] * g[c]",
        _PARTS,
        aimed=True,
    ),
    Mutant(_KERNELS, "            elif found > best:", "            elif found < best:", _UNITS),
    Mutant(_KERNELS, "best = found + gain", "best = found\n", _PARTS, aimed=True),
    # noise
    Mutant(
        _NOISE,
        "self.shares[min(max(1, k), count - 1)] +=",
        "self.shares[min(k, count - 1)] +=",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _NOISE,
        "self.shares[0] += 1 - OPTIONS.outlier_share",
        "self.shares[0] = 1 - OPTIONS.outlier_share",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _NOISE,
        "shares += OPTIONS.prior_share * self._possible",
        "shares += 0.0",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _NOISE,
        "informative = counts[self.first_centers[used] == 0].sum()",
        "informative = counts.sum()",
        _UNITS + " " + _PARTS,
    ),
    Mutant(
        _NOISE,
        "terms = np.log(self.shares[used]) - 0.5 * (np.log(self.variances[used]) + z)",
        "terms = np.log(self.shares[used]) - 0.5 * z",
        _PARTS,
        aimed=True,
    ),
    Mutant(_NOISE, "/ max(slope, 1e-12) ** 2", "/ max(slope, 1e-12)", _UNITS),
    Mutant(
        _NOISE,
        "            if theta <= loss.theta_above:\n                break\n",
        "",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _NOISE, "if variance < least * (1 - OPTIONS.theta_gain):", "if variance > least:", _RANK
    ),
    Mutant(_NOISE, "logs -= np.median(logs)", "logs -= 0", _PARTS, aimed=True),
    Mutant(_NOISE, "return min(0.0, max(-2.0, slope))", "return slope", _PARTS, aimed=True),
    Mutant(_NOISE, "posterior = shifted * self.prior", "posterior = shifted * 1.0", _UNITS),
    Mutant(
        _NOISE,
        "unequal = self.log_deviation > OPTIONS.equal_levels",
        "unequal = self.log_deviation > 0",
        _PARTS,
        aimed=True,
    ),
    # spectra
    Mutant(
        _SPECTRUM, "medians * between / (between + variance)", "medians * 1.0", _PARTS, aimed=True
    ),
    Mutant(_SPECTRUM, "log_size[order], kept[order]", "log_size[order], kept", _PARTS, aimed=True),
    Mutant(
        "kernels/medians.py",
        "lower = max(lower, work[t])",
        "lower = work[t]",
        "kernels/test_medians.py",
    ),
    Mutant(
        _SPECTRUM, "coupling = half * np.sqrt(1 + degree)", "coupling = half", _PARTS, aimed=True
    ),
    Mutant(_SPECTRUM, "row_degree = 1 + np.bincount", "row_degree = np.bincount", _RANK),
    Mutant(
        _SPECTRUM,
        "if is_certain and was_certain == above:",
        "if True:",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _SPECTRUM,
        'order = np.argsort(-sizes, kind="stable")',
        'order = np.argsort(sizes, kind="stable")',
        _PARTS,
        aimed=True,
    ),
    # the search
    Mutant(
        _SEARCH, "T = np.linalg.solve(LA.T, X * np.sqrt(s))", "T = np.linalg.solve(LA.T, X)", _UNITS
    ),
    Mutant(
        _POSTERIOR,
        "K *= np.where(p == q, 0.5, 1.0)",
        "K *= 0.5",
        _UNITS,
    ),
    Mutant(
        _SEARCH,
        "least = max(floor * float(self.variances.max()), 1e-12)",
        "least = 1e-12",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _SEARCH,
        "if variance > OPTIONS.repairable_noise * self.value_variance:",
        "if False:",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _SEARCH,
        'rows = rows[np.argsort(-deficit[rows], kind="stable")]',
        'rows = rows[np.argsort(deficit[rows], kind="stable")]',
        _PARTS,
        aimed=True,
    ),
    Mutant(_SEARCH, "OPTIONS.max_failures // 2, 1)", "0, 0)", _PARTS, aimed=True),
    Mutant(
        _SEARCH,
        "kept = means > OPTIONS.pruned * self.variances",
        "kept = means > 0",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _POSTERIOR,
        "added = np.where(a == c, variance, 0.0)[len",
        "added = np.where(a == c, variance, variance)[len",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _SEARCH,
        "            self._predicted_residuals() * scales,\n",
        "            self._predicted_residuals(),\n",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _SEARCH,
        "* self.unit * row_unit * column_unit",
        "* self.unit * row_unit",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _ATTEMPTS,
        "max(attempts, key=lambda attempt: attempt.evidence())",
        "min(attempts, key=lambda attempt: attempt.evidence())",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _ATTEMPTS,
        "for attempt in attempts[n_complete:]:",
        "for attempt in attempts[-1:]:",
        _PARTS,
        aimed=True,
    ),
    Mutant(_ATTEMPTS, "if search.is_clear or (", "if (", _PARTS, aimed=True),
    Mutant(_ATTEMPTS, "smallest_share >= least_prior", "smallest_share >= 2.0", _PARTS),
    Mutant(_ATTEMPTS, "gain += float(", "gain -= float(", _PARTS),
    Mutant(_SEARCH, "del trials[OPTIONS.finalists :]", "del trials[1:]", _PARTS),
    Mutant(_SEARCH, "if value >= least:", "if True:", _PARTS),
    Mutant(
        "initialization/blocks.py",
        "np.argsort(-counts[shuffled]",
        "np.argsort(counts[shuffled]",
        _BLOCKS,
        aimed=True,
    ),
    Mutant(
        "initialization/blocks.py",
        "(self.n_entries >= n_entries) & (self.per_row >= per_row)",
        "self.n_entries >= n_entries",
        _BLOCKS,
        aimed=True,
    ),
    Mutant(
        "initialization/search.py",
        "        _regress(operations, loss, ridges[0], U, V, other_rows, typical)\n",
        "",
        _PARTS,
        aimed=True,
    ),
    Mutant("initialization/search.py", "    U[rows] = found.U\n", "", _PARTS),
    Mutant(
        _SEARCH,
        "return fit - sum(side.divergence",
        "return fit + sum(side.divergence",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _POSTERIOR,
        "- log_det - n * float(np.log(precision).sum())",
        "- log_det",
        _PARTS,
        aimed=True,
    ),
    Mutant(_NOISE, "        learned &= self.is_free\n", "", _PARTS, aimed=True),
    Mutant(
        _NOISE, "np.clip(variance, np.minimum(widest, 1.0), widest)", "variance", _PARTS, aimed=True
    ),
    Mutant(_NOISE, "np.maximum(np.abs(mean) / sd, least)", "np.abs(mean) / sd", _PARTS, aimed=True),
    Mutant(
        _KERNELS,
        "totals[2, k, z] += p[k, z] * (x * x + gain * base_extra[z])",
        "totals[2, k, z] += p[k, z] * x * x",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        _KERNELS,
        "w[t] = scales[t] if z == least else 0.0",
        "w[t] = scales[t]",
        "initialization/test_search_parts.py -k cost_of_outliers",
        aimed=True,
    ),
    # chosen without looking at the tests
    Mutant(
        "initialization/candidates.py",
        "difference.mean() <= standard_error(difference, observed)",
        "difference.mean() <= 0",
        _CHOICE,
    ),
    Mutant(
        "initialization/candidates.py",
        "max(clustered, independent)",
        "independent",
        _CHOICE,
    ),
    Mutant(
        "initialization/model_choice.py",
        "other.evidence - simple.evidence <= error",
        "other.evidence - simple.evidence <= 0",
        _CHOICE,
    ),
    Mutant(
        "initialization/model_choice.py",
        "sorted(models, key=lambda one: one.complexity)",
        "models",
        _CHOICE,
    ),
    Mutant("initialization/biases.py", " + n / (n + own)", "", _CHOICE),
    Mutant(
        "initialization/model_choice.py",
        "    if deviation > OPTIONS.unequal_noise:\n        return plain\n",
        "",
        _CHOICE,
    ),
    Mutant(
        "initialization/candidates.py",
        "errors.std() / np.sqrt(len(errors))",
        "errors.std()",
        _CHOICE,
    ),
    Mutant("initialization/candidates.py", "found.rank >= 0", "found.rank >= 1", _CHOICE),
    Mutant(
        "initialization/model_choice.py",
        "noise = min(",
        "noise = max(",
        _CHOICE,
    ),
    Mutant(
        "initialization/model_choice.py",
        "np.maximum(1 - leverage, OPTIONS.min_freedom)",
        "np.maximum(1 + leverage, OPTIONS.min_freedom)",
        _CHOICE,
    ),
    Mutant(
        "initialization/model_choice.py",
        "[np.clip(own, least, most) for own in errors]",
        "list(errors)",
        _CHOICE,
    ),
    Mutant(
        "initialization/biases.py",
        "np.mean(z * z + 1 / (counts[filled] + ridge))",
        "np.mean(z * z)",
        _CHOICE,
    ),
    Mutant(
        "initialization/biases.py",
        "weights * (rows[entries.group_of_entry()]",
        "(rows[entries.group_of_entry()]",
        _CHOICE,
    ),
    Mutant(
        "initialization/nonnegative.py",
        "better = objectives(T) < objectives(U)",
        "better = objectives(T) > objectives(U)",
        _NONNEGATIVE,
    ),
    Mutant(
        "initialization/nonnegative.py",
        "        parts.sort(key=lambda part: -part[0])",
        "        parts.sort(key=lambda part: part[0])",
        _NONNEGATIVE,
    ),
    Mutant(
        "initialization/nonnegative.py",
        "u *= np.sqrt(product) / norms[0]",
        "u *= np.sqrt(product)",
        _NONNEGATIVE,
    ),
    Mutant(
        "initialization/nonnegative.py",
        "        _solve_again(operations.transposed, loss, reg, V, U)\n",
        "",
        _NONNEGATIVE,
    ),
    Mutant(
        "initialization/nonnegative.py",
        "losses + 0.5 * reg * np.einsum",
        "losses - 0.5 * reg * np.einsum",
        _NONNEGATIVE,
    ),
    Mutant(
        "initialization/nonnegative.py",
        'A.dtype.kind in "if" and (A < 0).any()',
        'A.dtype.kind in "if" and (A < 0).all()',
        _NONNEGATIVE,
    ),
    Mutant(
        "initialization/model_choice.py",
        "np.clip(own, least, most)",
        "np.minimum(own, most)",
        "initialization/test_model_choice.py -k exact",
        aimed=True,
    ),
    Mutant(
        _SEARCH,
        "                own.levels.reset(rows[improved == 2])\n",
        "",
        f"{_PARTS} -k noisy",
        aimed=True,
    ),
    Mutant(
        _SEARCH,
        "        share *= np.sqrt(np.minimum(own.levels.base / own.levels.values, 1.0))\n",
        "",
        f"{_PARTS} -k noisy",
        aimed=True,
    ),
    # chosen without looking at the tests: the search from a small block to a larger one
    Mutant("initialization/blocks.py", "np.maximum(lengths, length)", "length", _BLOCKS),
    Mutant("initialization/blocks.py", "(ends - counts)", "ends", _BLOCKS),
    Mutant(
        "initialization/search.py",
        "if entries.n_entries >= needed * max(entries.shape):",
        "if True:",
        _BLOCKS,
    ),
    Mutant("initialization/search.py", "* found.rank * sum", "* sum", _BLOCKS),
    Mutant(
        "initialization/search.py", "(found, coarse) if better", "(found, block) if better", _BLOCKS
    ),
    Mutant(
        "initialization/attempts.py",
        "if not grown and not required:",
        "if not required:",
        _BLOCKS,
    ),
    Mutant(
        "initialization/attempts.py",
        "search.rank >= shown and not many_outliers",
        "search.rank >= shown",
        "initialization/test_attempts.py",
    ),
    Mutant(
        "initialization/attempts.py",
        "if search.rank - before < OPTIONS.surviving * added:",
        "if search.rank - before < 0:",
        "initialization/test_attempts.py",
    ),
    Mutant(_SEARCH, "influence * (self.residuals", "(self.residuals", _CHOICE),
    Mutant("initialization/candidates.py", "rows @ rows", "0.0", _CHOICE),
    Mutant("initialization/candidates.py", "columns @ columns", "0.0", _CHOICE),
    Mutant("initialization/posterior.py", "products / rank", "products", _PARTS),
    Mutant(_SEARCH, "self.rank + others * chance", "others * chance", _PARTS),
    Mutant(_SEARCH, "(deficit > OPTIONS.poor) | ", "", _PARTS),
]
