"""Table 2 and Figure 3: every method on synthetic data; RMSE on unobserved clean entries."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduction import synthetic
from benchmarks.reproduction.plan import Experiment, Run, seeded

SIZES = (250, 500, 1000)
SEEDS = 5
NOISE = 0.1
ORACLE = synthetic.ORACLE

#: Printed: RMSE, deviation, CPU seconds, deviation at m = 250, 500, 1000.
PRINTED = {
    "AltGrad": [(1.062, 0.040, 1.0, 0.6), (0.950, 0.005, 1.8, 0.3), (0.853, 0.010, 6.0, 4.2)],
    "RP": [(1.048, 0.071, 0.1, 0.1), (0.953, 0.012, 0.4, 0.2), (0.848, 0.009, 1.1, 0.1)],
    "ScaledASD": [(1.042, 0.066, 0.2, 0.1), (0.950, 0.009, 0.4, 0.3), (0.847, 0.009, 1.2, 0.5)],
    "ALT-Impute": [(1.030, 0.060, 0.2, 0.1), (0.937, 0.010, 0.3, 0.1), (0.838, 0.009, 1.0, 0.2)],
    "OMDL": [(1.089, 0.055, 0.1, 0.1), (0.945, 0.018, 0.2, 0.1), (0.847, 0.009, 0.5, 0.2)],
    "GRASTA": [(0.338, 0.033, 1.5, 0.1), (0.306, 0.002, 2.9, 0.3), (0.244, 0.009, 6.1, 0.4)],
    "RMC": [(0.226, 0.040, 2.8, 1.0), (0.201, 0.001, 2.7, 0.5), (0.195, 0.006, 4.2, 2.5)],
    "RMF-MM": [
        (0.194, 0.032, 13.4, 0.6),
        (0.145, 0.009, 154.9, 12.5),
        (0.122, 0.004, 827.7, 116.3),
    ],
    "RMFNL LSP": [(0.110, 0.004, 3.2, 0.6), (0.073, 0.001, 5.5, 1.0), (0.047, 0.002, 14.0, 5.2)],
    "RMFNL Geman": [(0.114, 0.004, 3.1, 0.5), (0.073, 0.001, 8.3, 1.1), (0.047, 0.001, 19.0, 4.9)],
    "RMFNL Laplace": [
        (0.111, 0.004, 2.8, 0.4),
        (0.074, 0.001, 5.6, 1.0),
        (0.047, 0.002, 15.9, 6.1),
    ],
}
ADDED = (
    "AltGrad (λ chosen)",
    "OMDL, one row per batch",
    "GRASTA, 20 passes",
    "RMFNL LSP, Gaussian init",
    "LIBMF",
    "cmfrec",
    "RobustMF",
    ORACLE,
)

#: Methods that a quick plan leaves out.
_SLOW = ("RMF-MM", "RMFNL LSP, Gaussian init", "LIBMF", "cmfrec")


def runs(quick: bool) -> list[Run]:
    """Five seeds per cell; a quick plan has one at m = 250, without the slow methods."""

    def seeds(method: str, data: str) -> int:
        if not quick:
            return SEEDS
        return int(method not in _SLOW and data == f"m = {SIZES[0]}")

    return seeded("table2", (*PRINTED, *ADDED), [f"m = {m}" for m in SIZES], seeds)


def execute(run: Run) -> dict[str, Any]:
    """Fit on the training half, choose on the validation half, measure on unobserved entries."""
    return synthetic.execute(run, NOISE)


def settings(run: Run) -> dict[str, Any]:
    """Data and method."""
    return synthetic.settings(run, NOISE)


def probe(method: str) -> float:
    """RMSE at m = 60."""
    return float(execute(Run("table2", method, synthetic.PROBE, 0))["rmse"])


EXPERIMENT = Experiment("table2", "All methods on synthetic data", runs, execute, settings, probe)
