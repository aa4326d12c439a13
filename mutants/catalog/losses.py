"""Formulas of the losses, and their compilation."""

from __future__ import annotations

from mutants.mutant import Mutant

_LOSSES = "losses/test_losses.py"
_WEIGHTS = "backends/test_half_step.py -k compiled_weights"

MUTANTS = [
    Mutant("losses/cauchy.py", "np.log1p(z * z)", "np.log1p(z)", _LOSSES),
    Mutant(
        "losses/cauchy.py", "1 / (1 + (a / theta) * (a / theta))", "1 / (1 + a / theta)", _LOSSES
    ),
    Mutant("losses/cauchy.py", "efficient_theta = 2.3849", "efficient_theta = 2.2", _LOSSES),
    Mutant("losses/tukey.py", "(3 - 3 * s + s * s)", "(3 - 3 * s)", _LOSSES),
    Mutant("losses/tukey.py", ", 0) ** 2", ", 0)", _LOSSES),
    Mutant("losses/tukey.py", "degree = 2", "degree = 1", _LOSSES),
    Mutant(
        "losses/geman.py",
        "        return a / (self.theta + a)",
        "        return a / (1 + a)",
        _LOSSES,
    ),
    Mutant(
        "losses/geman.py",
        "return theta / (theta + a) / (theta + a) / a",
        "return theta / (theta + a) / a",
        _LOSSES,
    ),
    Mutant("losses/mcp.py", "np.maximum(1 - a / self.theta, 0)", "(1 - a / self.theta)", _LOSSES),
    Mutant("losses/mcp.py", "near * near / (2 * self.theta)", "near * near / self.theta", _LOSSES),
    Mutant("losses/mcp.py", "            raise ValueError(", "            print(", _LOSSES),
    Mutant("losses/scad.py", "theta_above = 2.0", "theta_above = 0.0", _LOSSES),
    Mutant(
        "losses/scad.py",
        "np.clip((self.theta - a) / (self.theta - 1), 0, 1)",
        "np.clip((self.theta - a) / self.theta, 0, 1)",
        _LOSSES,
    ),
    Mutant(
        "losses/smoothed.py",
        " - self.base._value(np.asarray(epsilon))",
        "",
        _LOSSES,
    ),
    Mutant(
        "losses/smoothed.py",
        "return a / s * self.base.derivative(s)",
        "return self.base.derivative(s)",
        _LOSSES,
    ),
    Mutant(
        "losses/smoothed.py",
        "smoothing=epsilon / loss.theta",
        "smoothing=epsilon",
        "losses/test_losses.py -k unit",
        aimed=True,
    ),
    Mutant(
        "losses/base.py", "self.theta > self.theta_above", "self.theta >= self.theta_above", _LOSSES
    ),
    Mutant("losses/welsch.py", "efficient_theta = ", "efficient_theta = 0.1 + ", _LOSSES),
    Mutant("losses/huber.py", "degree = 2", "degree = 1", _LOSSES),
    Mutant("losses/lsp.py", "concave = True", "concave = False", _LOSSES),
    Mutant(
        "losses/l2.py",
        "unit_weight = True",
        "unit_weight = False",
        "losses/test_losses.py backends/test_half_step.py -k 'weight or every_rank'",
        equivalent="weights are then computed by the formula, which is 1",
    ),
    Mutant("losses/laplace.py", "concave = True", "concave = False", _LOSSES),
    Mutant("losses/geman_mcclure.py", "degree = 2", "degree = 0", _LOSSES),
    Mutant(
        "losses/base.py",
        "            return self._derivative(np.abs(residual))",
        "            return self._derivative(residual)",
        _LOSSES,
    ),
    Mutant(
        "losses/base.py",
        "            return self._value(np.abs(residual))",
        "            return self._value(residual)",
        _LOSSES,
    ),
]
