"""Table 2 with noise of standard deviation 1.7/√m, which may explain the printed numbers.

The printed errors of RMFNL at m = 500 and 1000 lie below those of an oracle for noise of standard
deviation 0.1. They would fit noise that decreases with the size of the matrix.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.reproduction import synthetic, table2
from benchmarks.reproduction.plan import Experiment, Run, seeded

#: Standard deviation of the noise times √m.
FACTOR = 1.7
METHODS = (
    "ScaledASD",
    "GRASTA",
    "RMC",
    "RMFNL LSP",
    "RMFNL Geman",
    "RMFNL Laplace",
    synthetic.ORACLE,
)


def deviation(run: Run) -> float:
    """Standard deviation of the noise."""
    return FACTOR / math.sqrt(synthetic.size(run))


def runs(quick: bool) -> list[Run]:
    """Five seeds per cell; a quick plan has one of two methods at m = 250."""
    methods = ("RMFNL LSP", synthetic.ORACLE) if quick else METHODS
    sizes = table2.SIZES[:1] if quick else table2.SIZES
    return seeded(
        "noise", methods, [f"m = {m}" for m in sizes], lambda m, d: 1 if quick else table2.SEEDS
    )


def execute(run: Run) -> dict[str, Any]:
    """As Table 2."""
    return synthetic.execute(run, deviation(run))


def settings(run: Run) -> dict[str, Any]:
    """Data and method."""
    return synthetic.settings(run, deviation(run))


def probe(method: str) -> float:
    """RMSE at m = 60."""
    return float(execute(Run("noise", method, synthetic.PROBE, 0))["rmse"])


EXPERIMENT = Experiment(
    "noise", "Table 2 with noise that decreases with m", runs, execute, settings, probe
)
