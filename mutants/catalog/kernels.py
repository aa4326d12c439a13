"""Compiled kernels: half-step, sums, products, the dual step."""

from __future__ import annotations

from mutants.mutant import Mutant

_HALF = "backends/test_half_step.py -k 'every_rank or without_entries or towards or weight'"
_CONFORM = "backends/test_conformance_operations.py"
_FAULTS = "kernels/test_guards.py"
_NONNEGATIVE = "kernels/test_nonnegative.py"

MUTANTS = [
    Mutant(
        "kernels/vector.py",
        'b.fcmp_ordered(">", a, emit.zero), a, emit.zero',
        'b.fcmp_unordered(">", a, emit.zero), a, emit.zero',
        _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/vector.py",
        'b.fcmp_ordered("<", positive, top), positive, top',
        'b.fcmp_ordered("<", positive, top), positive, positive',
        _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/vector.py",
        '        good = b.fcmp_ordered(">", a, floor)',
        '        good = b.fcmp_ordered(">", a, emit.zero)',
        _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/half_step.py",
        "            for q in range(rank):\n                ridge = reg[i, 0]",
        "            for q in range(rank - 1):\n                ridge = reg[i, 0]",
        _HALF,
    ),
    Mutant(
        "kernels/half_step.py", "        share = k + (1 - k) * a[t]", "        share = k", _HALF
    ),
    Mutant(
        "kernels/half_step.py",
        "(1 - share) * e[np.uint64(begin + t)]",
        "(1 - share) * e[np.uint64(t)]",
        _HALF,
    ),
    Mutant(
        "kernels/half_step.py",
        "            weight[t] *= sample[np.uint64(s + t)]",
        "            weight[t] *= sample[np.uint64(t)]",
        _HALF + " " + _CONFORM,
    ),
    Mutant(
        "kernels/half_step.py",
        "near_zero += a[t] if sample[np.uint64(s + t)] > 0 else eps2 * 0",
        "near_zero += a[t]",
        _HALF,
    ),
    Mutant(
        "kernels/half_step.py",
        "- shifts[np.uint64(indices[at])]",
        "+ shifts[np.uint64(indices[at])]",
        "backends/test_half_step.py -k shifts",
    ),
    Mutant(
        "kernels/half_step.py",
        "min(max(values[np.uint64(s + t)], bounds[0]), bounds[1])",
        "values[np.uint64(s + t)]",
        "backends/test_half_step.py -k shifts",
    ),
    Mutant(
        "kernels/loss_sums.py",
        "                total += loss[t] * sample[np.uint64(s + t)]",
        "                total += loss[t]",
        _CONFORM + " -k loss_sum",
    ),
    Mutant(
        "kernels/loss_sums.py",
        "np.sqrt(difference * difference + eps2[q])",
        "np.sqrt(difference * difference)",
        _CONFORM + " -k loss_sum",
    ),
    Mutant(
        "kernels/loss_sums.py",
        "                    begin += filled\n",
        "",
        _CONFORM + " -k batch_of_entries",
        aimed=True,
    ),
    Mutant(
        "kernels/loss_sums.py",
        "        if filled > 0:\n",
        "        if filled > 1:\n",
        _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/reductions.py",
        'np.einsum("ij,ij->", A, A, dtype=np.float64)',
        'np.einsum("ij,ij->", A, A)',
        _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/reductions.py",
        'np.einsum("t,t->", a, b, dtype=np.float64)',
        'np.einsum("t,t->", a, b)',
        _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/entries.py",
        "                e -= shifts[j]",
        "                e += shifts[j]",
        _CONFORM + " -k shifts",
    ),
    Mutant(
        "kernels/entries.py",
        "                    part[j, q] += x[t] * U[i, q]",
        "                    part[j, q] += x[t] * V[j, q]",
        _CONFORM + " -k products",
    ),
    Mutant(
        "kernels/entries.py",
        "        for block in range(1, len(parts)):",
        "        for block in range(1, len(parts) - 1):",
        _CONFORM + " " + _FAULTS,
        aimed=True,
    ),
    Mutant(
        "kernels/entries.py",
        "            total = 0.0\n",
        "            total = x[0] - x[0]\n",
        _CONFORM + " -k accumulated",
        aimed=True,
    ),
    Mutant(
        "kernels/dual.py",
        "new = min(max(z + rho / c, -w[t]), w[t])",
        "new = min(max(z + rho / c, -2 * w[t]), w[t])",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/dual.py",
        "restart += c * (z - new) * (new - x[t])",
        "restart += c * (new - z) * (new - x[t])",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/dual.py",
        "gap += w[t] * np.abs(rho) - x[t] * rho",
        "gap += w[t] * np.abs(rho) + x[t] * rho",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/dual.py",
        "        sums[block, 0] = 0.5 * value",
        "        sums[block, 0] = value",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/dual.py",
        "p = products[i, q] + momentum * (products[i, q] - products_before[i, q])",
        "p = products[i, q] - momentum * (products[i, q] - products_before[i, q])",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/dual.py",
        "moved += inverse[i] * d * d",
        "moved += d * d",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/dual.py",
        "z = x[t] + momentum * (x[t] - x_before[t])",
        "z = x[t] + momentum * x[t]",
        _CONFORM + " -k dual",
    ),
    Mutant(
        "kernels/entries.py",
        "            for q in range(rank):\n                e -= U[i, q] * V[j, q]",
        "            for q in range(rank - 1):\n                e -= U[i, q] * V[j, q]",
        _CONFORM + " -k residuals",
    ),
    Mutant(
        "kernels/half_step.py",
        "            even = fnma(load(system, k * row + q * step), load(solution, q * step), even)",
        "            even = fnma(load(system, k * row + q * step), load(solution, k * step), even)",
        _HALF,
    ),
    Mutant(
        "kernels/half_step.py",
        "                    for t in range(n):\n                        weight[t] = 1",
        "                    for t in range(n):\n                        weight[t] = 2",
        _HALF,
    ),
    Mutant(
        "kernels/loss_sums.py",
        "            sums[block, q] = 0\n",
        "            pass\n",
        _CONFORM + " -k loss_sum",
    ),
    # chosen without looking at the tests
    Mutant(
        "kernels/nonnegative.py",
        "if not x[q * step + lane] > 0:",
        "if x[q * step + lane] < 0:",
        _NONNEGATIVE,
    ),
    Mutant(
        "kernels/nonnegative.py",
        "            share = x[at] / (x[at] - solution[at])\n",
        "",
        _NONNEGATIVE,
    ),
    Mutant(
        "kernels/nonnegative.py",
        "for k in range(q, rank + 1):",
        "for k in range(q, rank):",
        _NONNEGATIVE,
        equivalent="the factorization multiplies the whole row, right side included, by the "
        "inverse root of its diagonal element, which is 0 for a removed one",
    ),
    Mutant("kernels/nonnegative.py", "PASSES = 2", "PASSES = 0", _NONNEGATIVE),
    Mutant(
        "kernels/nonnegative.py", "    if finite:\n", "    if finite or limit < 0:\n", _NONNEGATIVE
    ),
    Mutant(
        "kernels/variational.py",
        "found += log_ratio",
        "found -= log_ratio",
        "initialization/test_search_parts.py -k noisy",
        aimed=True,
    ),
]
