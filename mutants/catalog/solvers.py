"""Solvers, their loop, and the choice among several initializations."""

from __future__ import annotations

from mutants.mutant import Mutant

_ACCELERATION = "solvers/mm/test_acceleration.py"
_SURROGATE = "solvers/mm/test_surrogate.py"
_LOOP = "estimator/test_callbacks_and_validation.py"
_IRLS = "solvers/test_irls.py -k 'never_rises or gradient_vanishes'"
_SELF = "solvers/test_self_checks.py"
_RIDGE = "backends/test_ridge.py"
_PROGRESS = "solvers/test_progress.py"

MUTANTS = [
    Mutant(
        "fitting.py",
        "    return min(results, key=value)",
        "    return results[-1]",
        "estimator/test_several_initializations.py",
        aimed=True,
    ),
    Mutant(
        "fitting.py",
        "    return min(results, key=value)",
        "    return max(results, key=value)",
        "estimator/test_several_initializations.py",
        aimed=True,
    ),
    Mutant(
        "fitting.py",
        "return min(results, key=lambda result: result.outcome.best_error)",
        "return results[0]",
        _LOOP + " -k several",
    ),
    Mutant(
        "solvers/base.py",
        "            if not np.isfinite(objective):",
        "            if False:",
        "solvers/test_self_checks.py estimator/test_callbacks_and_validation.py -k 'not ctrl and not bar'",
        aimed=True,
    ),
    Mutant(
        "solvers/base.py",
        "if error < outcome.best_error or outcome.best is None:",
        "if error > outcome.best_error or outcome.best is None:",
        _LOOP + " -k validation",
    ),
    Mutant(
        "solvers/base.py",
        "outcome.iterations - outcome.best_iteration >= patience",
        "outcome.iterations - outcome.best_iteration > patience",
        _LOOP + " -k 'validation or loop'",
    ),
    Mutant(
        "solvers/base.py",
        "    if before - objective <= tol * abs(before):",
        "    if before - objective <= tol:",
        _LOOP + " -k loop",
    ),
    Mutant(
        "solvers/base.py",
        "    return factors[0].copy(), factors[1].copy()",
        "    return factors[0], factors[1]",
        _LOOP + " -k copies",
    ),
    Mutant(
        "solvers/base.py",
        "        answers = [callback(snapshot) for callback in self.callbacks]\n        return any(answers)",
        "        return any(callback(snapshot) for callback in self.callbacks)",
        "estimator/test_estimator.py estimator/test_callbacks_and_validation.py -k 'callback or loop'",
    ),
    Mutant(
        "solvers/irls.py",
        "        if not plain and not measured.values[0] <= self._value:",
        "        if False:",
        _IRLS + " " + _SELF,
        aimed=True,
    ),
    Mutant(
        "solvers/irls.py",
        "            self._require_rounding(-decrease)",
        "            pass",
        _SELF,
        aimed=True,
    ),
    Mutant(
        "solvers/irls.py",
        "        bound = value + math.sqrt(2 * largest * value * energy)",
        "        bound = value",
        _SELF,
        aimed=True,
    ),
    Mutant(
        "solvers/irls.py",
        "        self._value = measured.values[reductions]",
        "        self._value = measured.values[0]",
        "solvers/test_irls.py -k reduced_width",
        aimed=True,
    ),
    Mutant(
        "backends/sweeps.py",
        "        self._require_layout(previous, point)\n",
        "",
        _SELF,
        aimed=True,
    ),
    Mutant(
        "backends/sweeps.py", "        self._require_layout(point, point)\n", "", _SELF, aimed=True
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "        if not np.isfinite(row_sums).all():",
        "        if False:",
        _SELF,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/ladmpsap.py",
        "            -collect(surrogate.operations.observed, s.Y), -surrogate",
        "            collect(surrogate.operations.observed, s.Y), -surrogate",
        "solvers/mm/test_certificates.py",
        aimed=True,
    ),
    Mutant(
        "solvers/mm/ladmpsap.py",
        "        s.Y = s.Y + beta * C",
        "        s.Y = s.Y - beta * C",
        _SURROGATE + " -k 'ladmpsap or same_increments'",
    ),
    Mutant(
        "solvers/mm/ladmpsap.py",
        "self._W / (_BLOCKS * beta), 0)",
        "self._W / beta, 0)",
        _SURROGATE + " -k 'ladmpsap or same_increments'",
    ),
    Mutant(
        "solvers/mm/acceleration.py",
        "        if step.turning > 0:\n            t = 1.0",
        "        if step.turning < 0:\n            t = 1.0",
        _SURROGATE,
        equivalent="slower, but converges to the same point",
    ),
    Mutant(
        "solvers/mm/acceleration.py",
        "while scale < 1 and step.curved > step.allowed:",
        "while False:",
        _ACCELERATION,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/acceleration.py",
        "np.clip(self._dual_point, -w, w)",
        "self._dual_point",
        _ACCELERATION,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/apg.py", "        value = -linear\n", "        value = linear\n", _SURROGATE
    ),
    Mutant(
        "solvers/smoothing.py",
        "measured.weight * lowering",
        "lowering",
        "solvers/test_smoothing.py",
    ),
    Mutant(
        "solvers/smoothing.py",
        "self._rate = min(max(decrease / self._decrease, low), high)",
        "self._rate = high",
        "solvers/test_smoothing.py",
    ),
    Mutant(
        "solvers/smoothing.py",
        "            self._decrease = 0.0\n",
        "",
        "solvers/test_smoothing.py",
    ),
    Mutant(
        "solvers/objective.py",
        "return 0.5 * self.reg * (squared_norm(U) + squared_norm(V))",
        "return self.reg * (squared_norm(U) + squared_norm(V))",
        _SURROGATE + " -k majorizer",
    ),
    Mutant(
        "solvers/objective.py",
        "residual.astype(np.float64, copy=False)",
        "residual",
        "kernels/test_guards.py",
        aimed=True,
    ),
    Mutant(
        "solvers/mm/solver.py",
        "        if not found.value < surrogate.at_zero:",
        "        if False:",
        "solvers/mm/test_mm.py -k 'descent or never or rises or critical or objective'",
        equivalent="a step that does not lower the surrogate is refused by the objective",
    ),
    Mutant(
        "solvers/precision.py",
        "return OPTIONS.roundings * float(np.finfo(np.float32).eps) * size",
        "return 0.0",
        "solvers/test_precision.py",
    ),
    Mutant(
        "solvers/precision.py",
        "dtype == np.float64 and n_entries >= max(OPTIONS.min_entries, 1)",
        "dtype == np.float64",
        "solvers/test_precision.py",
    ),
    Mutant(
        "solvers/projection.py",
        "self._g -= problem.ridge_u * point.U",
        "self._g += problem.ridge_u * point.U",
        "solvers/test_varpro.py -k gradient",
        aimed=True,
    ),
    Mutant(
        "solvers/base.py",
        "            outcome.iterations += 1\n",
        "            outcome.iterations += 2\n",
        _LOOP + " -k 'loop or bar'",
    ),
    Mutant(
        "solvers/base.py",
        '    outcome.stopped = True\n    outcome.reason = "interrupted"',
        '    outcome.reason = "interrupted"',
        _LOOP,
    ),
    Mutant(
        "solvers/irls.py",
        "        return self._smoothing.width if self._objective.loss.concave else self._sigma",
        "        return self._sigma",
        "solvers/test_precision.py -k leaves_float32",
        aimed=True,
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "np.divide(1.0, a, out=np.zeros_like(a), where=a > 0)",
        "1.0 / a",
        "solvers/mm/test_certificates.py",
        aimed=True,
    ),
    Mutant(
        "fitting.py",
        "with one_blas_thread(), ",
        "with ",
        "backends/test_blas.py -k rank",
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "@one_blas_thread()\n    def squared_coordinates",
        "def squared_coordinates",
        "backends/test_blas.py -k noise_model",
        aimed=True,
    ),
    # chosen without looking at the tests
    Mutant(
        "backends/ridge.py",
        'constant=np.pad(self.constant, (0, missing), mode="maximum")',
        'constant=np.pad(self.constant, (0, missing), mode="minimum")',
        _RIDGE,
    ),
    Mutant(
        "backends/ridge.py",
        "np.bincount(rows.group_of_entry(), sample_weights, minlength=len(counts))",
        "np.bincount(rows.group_of_entry(), minlength=len(counts))",
        _RIDGE,
    ),
    Mutant(
        "backends/ridge.py", "            first = first * self.rows\n", "            pass\n", _RIDGE
    ),
    Mutant(
        "backends/ridge.py",
        "zip((reg.first, reg.second), reg.factors",
        "zip((reg.second, reg.first), reg.factors",
        _RIDGE,
    ),
    Mutant(
        "backends/ridge.py",
        "((values >= 0) & np.isfinite(values)).all()",
        "np.isfinite(values).all()",
        _RIDGE,
    ),
    Mutant("phases.py", "        _display.reset(token)", "        pass", _PROGRESS),
    Mutant("phases.py", "display.step(done, detail)", 'display.step(done, "")', _PROGRESS),
]
