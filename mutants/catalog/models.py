"""Fold-in, factorizations, entries, teams and metrics; chosen without looking at the tests."""

from mutants.mutant import Mutant

_FOLD_IN = "estimator/test_estimator.py outliers/test_scales.py solvers/test_irls.py -k 'transform or scale or fold or score'"
_NEW_ROWS = "solvers/test_fold_in.py"
_FACTORIZATION = "data/test_factorization.py"
_PARTIAL_FIT = "estimator/test_partial_fit.py"
_ENTRIES = "data/test_observed.py"
_TEAM = "kernels/test_team.py"
_METRICS = "test_metrics.py"
_WEIGHTS = "estimator/test_zero_weights.py"
_CHOICE = "initialization/test_model_choice.py -k 'beside or relative or required'"

MUTANTS = [
    Mutant(
        "solvers/fold_in.py",
        "astype(np.float64))[self.V.shape[1] :]",
        "astype(np.float64))",
        _FOLD_IN,
    ),
    Mutant(
        "solvers/fold_in.py",
        "kept = size[size <= OPTIONS.truncated_at * noise]",
        "kept = size",
        _NEW_ROWS,
    ),
    Mutant(
        "solvers/fold_in.py",
        "scales[k] = (noise / typical) ** shrinkage",
        "scales[k] = noise / typical",
        _FOLD_IN,
    ),
    Mutant(
        "solvers/fold_in.py",
        "reg = self.reg * np.maximum(counts, 1).astype(np.float64)",
        "reg = self.reg * counts.astype(np.float64)",
        _FOLD_IN,
        equivalent="a row without entries begins at zero, and stays there without a ridge too",
    ),
    Mutant("solvers/fold_in.py", "T[:, -1] = T[:, -1] * unit", "pass", _NEW_ROWS),
    Mutant(
        "solvers/fold_in.py",
        "T = self.fold_in(operations, (~out).astype(observed.dtype))",
        "T = self.fold_in(operations)",
        _FOLD_IN,
    ),
    Mutant(
        "solvers/fold_in.py",
        "weights[len(weights) - later.n_entries :]",
        "weights[: later.n_entries]",
        _NEW_ROWS,
    ),
    Mutant(
        "solvers/fold_in.py",
        "_padded(c, n)[:, 0] + c.dtype.type(known.center)",
        "_padded(c, n)[:, 0]",
        _PARTIAL_FIT,
    ),
    Mutant(
        "data/factorization.py",
        "self.column_factors, self.row_factors, self.center, self.column_bias, self.row_bias",
        "self.column_factors, self.row_factors, self.center, self.row_bias, self.column_bias",
        _FACTORIZATION,
    ),
    Mutant("data/factorization.py", "row_bias[unknown_row] = 0", "pass", _FACTORIZATION),
    Mutant("data/factorization.py", "values[unknown] = 0", "pass", _FACTORIZATION),
    Mutant(
        "data/factorization.py",
        "values[unknown] = number(fallback)",
        "pass",
        _FACTORIZATION,
    ),
    Mutant(
        "data/compressed.py",
        "equal[rows.pointers[:-1][rows.counts > 0]] = False",
        "pass",
        _ENTRIES,
    ),
    Mutant(
        "data/compressed.py",
        'duplicates == "mean")',
        'duplicates != "mean")',
        _ENTRIES,
    ),
    Mutant(
        "kernels/team.py",
        "for _ in remaining:\n                pass\n            wait(others)",
        "pass",
        _TEAM,
    ),
    Mutant(
        "kernels/team.py",
        "max(1, n_cores() + 1 + int(n_jobs))",
        "max(1, n_cores() + int(n_jobs))",
        _TEAM,
    ),
    Mutant(
        "kernels/team.py",
        "work = pointers + np.arange(rows + 1)",
        "work = pointers",
        _TEAM,
    ),
    Mutant(
        "metrics.py",
        "np.clip((n - better) / equal, 0, 1)",
        "np.clip(n - better, 0, 1)",
        _METRICS,
    ),
    Mutant(
        "metrics.py",
        "counted = target_scores > -np.inf",
        "counted = target_scores >= -np.inf",
        _METRICS,
    ),
    Mutant(
        "metrics.py",
        "(k - above.sum()) * truth[tied].mean()",
        "truth[tied][: k - above.sum()].sum()",
        _METRICS,
    ),
    Mutant(
        "estimator/training.py",
        "observed, weights = with_weight(observed, weights)",
        "pass",
        _WEIGHTS,
        aimed=True,
    ),
    Mutant(
        "estimator/training.py",
        "found.form = None if observed.form is None else observed.form.selected(used)",
        "found.form = observed.form",
        _WEIGHTS,
        aimed=True,
    ),
    Mutant(
        "estimator/robust_mf.py",
        "entries = model.fitted_entries() if weights is None else model.read(X)",
        "entries = model.fitted_entries()",
        _WEIGHTS,
        aimed=True,
    ),
    Mutant(
        "initialization/pipeline.py",
        "biases = biases.beside_factors(_positive(factors.sigma, operations))",
        "pass",
        _CHOICE,
        aimed=True,
    ),
    Mutant(
        "initialization/biases.py",
        "if self.sigma <= 0:\n            return self",
        "",
        _CHOICE,
        aimed=True,
    ),
    Mutant(
        "initialization/pipeline.py",
        "settings = replace(settings, reg=min(settings.reg, paper_reg))",
        "pass",
        _CHOICE,
        aimed=True,
    ),
    Mutant(
        "initialization/attempts.py",
        "attempts.append(_attempt_in_units_of_data(observed, rank, team, seed))",
        "pass",
        "initialization/test_attempts.py -k two_sizes",
        aimed=True,
    ),
    Mutant(
        "io/atomic.py",
        "with _buffered(descriptor, name) as file:\n            yield file\n        return",
        'with open(descriptor, "wb") as file:\n            yield file\n        return',
        "io/test_atomic.py -k device",
        aimed=True,
    ),
]
