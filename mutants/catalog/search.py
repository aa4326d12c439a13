"""Attempts of the search for factors, learned noise, and blocks of large matrices."""

from __future__ import annotations

from mutants.mutant import Mutant

_ATTEMPT_TESTS = "initialization/test_attempts.py"
_MIXTURE_TESTS = "initialization/test_noise_mixture.py"
_BLOCK_TESTS = "initialization/test_search_blocks.py initialization/test_extension.py"

MUTANTS = [
    Mutant(
        "initialization/attempts.py",
        "    if n_complete == 0:",
        "    if False:",
        _ATTEMPT_TESTS,
    ),
    Mutant(
        "initialization/attempts.py",
        "min(determined, min(observed.shape) - 1)",
        "min(determined, min(observed.shape))",
        _ATTEMPT_TESTS,
        equivalent="entries_per_parameter is above 1: mn/(m + n) is below m and n in any case",
    ),
    Mutant(
        "initialization/attempts.py",
        "    values[search.gross] = np.median(values)\n",
        "",
        _ATTEMPT_TESTS + " " + "initialization/test_variational.py",
    ),
    Mutant(
        "initialization/attempts.py",
        "best.update(by_prediction=few_outliers)",
        "best.update()",
        _ATTEMPT_TESTS,
    ),
    Mutant(
        "initialization/attempts.py",
        "        search.noise.is_free = True\n",
        "",
        _ATTEMPT_TESTS + " " + "initialization/test_variational.py",
    ),
    Mutant(
        "initialization/noise_mixture.py",
        "        step *= np.where(step * self.last_step < 0, OPTIONS.level_damping, 1.0)\n",
        "",
        _MIXTURE_TESTS,
    ),
    Mutant(
        "initialization/noise_mixture.py",
        "counts * np.minimum(1.0, width / np.maximum(size, width))",
        "counts * 1.0",
        _MIXTURE_TESTS,
    ),
    Mutant(
        "initialization/noise_mixture.py",
        "max(self.variance * float(energy / informative), self.least)",
        "self.variance * float(energy / informative)",
        _MIXTURE_TESTS + " " + "estimator/test_numerical_range.py",
    ),
    Mutant(
        "initialization/noise_mixture.py",
        "np.logaddexp(others, self._mean_log_density(log_energies, outliers))",
        "self._mean_log_density(log_energies, outliers)",
        _MIXTURE_TESTS,
    ),
    Mutant(
        "initialization/noise_mixture.py",
        "np.maximum(logs, -OPTIONS.low_deviations * deviation)",
        "logs",
        _MIXTURE_TESTS,
    ),
    Mutant(
        "initialization/search.py",
        "count / (count + OPTIONS.prior_entries)",
        "np.ones(len(count))",
        _BLOCK_TESTS,
    ),
    Mutant(
        "initialization/search.py",
        "mean / np.median(mean[kept])",
        "mean",
        _BLOCK_TESTS,
    ),
    Mutant(
        "initialization/blocks.py",
        "cells**0.5",
        "cells",
        _BLOCK_TESTS,
    ),
]
