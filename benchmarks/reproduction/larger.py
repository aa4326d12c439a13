"""Appendix: Netflix and Yahoo under the love/hate attack, as Table 3."""

from __future__ import annotations

from benchmarks.reproduction import ratings
from benchmarks.reproduction.plan import Experiment, Run, seeded

#: Printed: RMSE and minutes on Netflix and on Yahoo.
PRINTED = {
    "RP": [(0.910, 142.3), (0.842, 105.4)],
    "ScaledASD": [(0.918, 213.9), (0.864, 74.2)],
    "ALT-Impute": [(0.931, 309.1), (0.802, 77.4)],
    "OMDL": [(0.923, 16.5), (0.831, 12.3)],
    "GRASTA": [(0.857, 247.3), (0.751, 238.5)],
    "RMFNL LSP": [(0.805, 221.0), (0.668, 81.2)],
    "RMFNL Geman": [(0.806, 228.4), (0.670, 98.7)],
    "RMFNL Laplace": [(0.805, 216.8), (0.669, 89.2)],
}
DATA = ("Netflix", "Yahoo", ratings.NETFLIX_PART)


def runs(quick: bool) -> list[Run]:
    """One seed per cell, as printed; a quick plan has one method on a share of Netflix."""
    methods = ("ScaledASD",) if quick else (*PRINTED, "RobustMF")
    data = DATA[-1:] if quick else DATA
    return seeded("larger", methods, data, lambda method, data: 1)


def probe(method: str) -> float:
    """Test error on attacked ratings of a small data set."""
    return ratings.probe("larger", method)


EXPERIMENT = Experiment(
    "larger",
    "Netflix and Yahoo under the love/hate attack",
    runs,
    ratings.execute,
    ratings.settings,
    probe,
)
