"""Certificates: duality gap, criticality, impossible bounds."""

from __future__ import annotations

from mutants.mutant import Mutant

_CRITICALITY = "solvers/mm/test_mm.py -k 'criticality and not thousandth'"
_CERTIFICATES = "solvers/mm/test_certificates.py"
_SURROGATE = "solvers/mm/test_surrogate.py"

MUTANTS = [
    Mutant(
        "solvers/mm/criticality.py",
        "    if polish and free.any():",
        "    if False:",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "np.clip(dual_point[free], -slopes[free], slopes[free])",
        "dual_point[free]",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "    x[free] = 0 if dual_point is None else",
        "    x[free] = 0 if True else",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant("solvers/mm/criticality.py", "& objective.loss.concave", "", _CERTIFICATES, aimed=True),
    Mutant(
        "solvers/mm/criticality.py",
        "        residual=np.zeros_like(x[free]),",
        "        residual=np.ones_like(x[free]),",
        _CERTIFICATES,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "        weights=slopes[free],",
        "        weights=10 * slopes[free],",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "        pulls=(reg * U - XV, reg * V - XtU),",
        "        pulls=(reg * U, reg * V),",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "squared_norm(reg * U - XV) + squared_norm(reg * V - XtU)",
        "squared_norm(reg * U - XV)",
        _CRITICALITY,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "    width = OPTIONS.zero_width * typical if typical > exact else exact",
        "    width = 1e-5 * float(np.median(np.abs(values)))",
        _CRITICALITY,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "    return max(width, rounding)",
        "    return width",
        _CRITICALITY,
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "np.quantile(sizes, 0.5 * (1 + share))",
        "np.median(sizes)",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/criticality.py", "if typical > exact else exact", "", _CERTIFICATES, aimed=True
    ),
    Mutant(
        "solvers/mm/criticality.py",
        "np.median(np.abs(values - np.median(values)))",
        "np.median(np.abs(values))",
        "solvers/mm/test_mm.py -k offset",
        aimed=True,
    ),
    Mutant(
        "solvers/mm/solver.py",
        "        self._require_possible(surrogate.at_zero, found)\n",
        "",
        "solvers/mm/test_mm.py -k 'impossible or gap'",
    ),
    Mutant(
        "solvers/mm/solver.py",
        "            self._require_rounding(value, found)\n",
        "",
        "solvers/mm/test_mm.py -k 'wrongly or concave'",
    ),
    Mutant(
        "solvers/mm/solver.py",
        "        lower = found.value - found.gap",
        "        lower = found.value",
        "solvers/mm/test_mm.py -k 'never or objective or impossible or gap'",
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "self.dual_offset = self._offset + objective.penalty(U, V)",
        "self.dual_offset = self._offset",
        _SURROGATE + " -k 'agree or certifies or conic'",
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "        return 0.5 * quadratic - inner_product(x, self.residual)",
        "        return quadratic - inner_product(x, self.residual)",
        _SURROGATE + " -k 'agree or certifies or differences'",
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "self.reg * (squared_norm(U + dU) + squared_norm(V + dV))",
        "self.reg * (squared_norm(U) + squared_norm(V))",
        _SURROGATE + " -k majorizer",
    ),
    Mutant(
        "solvers/mm/ladmpsap.py",
        "value, value - lower, iterations)",
        "value, 0.0, iterations)",
        _CERTIFICATES,
        aimed=True,
    ),
    Mutant(
        "solvers/mm/options.py",
        "gap <= self.gap * decrease",
        "gap <= self.gap",
        _SURROGATE + " -k gap",
        aimed=True,
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "        row_sums, column_sums = operations.sums(self.weights)",
        "        column_sums, row_sums = operations.sums(self.weights)",
        _SURROGATE + " -k majorizer",
    ),
    Mutant(
        "solvers/mm/surrogate.py",
        "alpha = np.maximum(a * by_row, least)",
        "alpha = np.maximum(0.01 * a * by_row, least)",
        _SURROGATE + " -k 'curvature or differences'",
    ),
    Mutant(
        "solvers/mm/acceleration.py",
        "            or found.gap <= rounding\n",
        "",
        _SURROGATE,
        equivalent="the limit of steps ends the iteration later, at the same point",
    ),
]
