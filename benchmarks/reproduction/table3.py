"""Table 3 and Figure 4: MovieLens under the love/hate attack."""

from __future__ import annotations

from benchmarks.reproduction import ratings
from benchmarks.reproduction.plan import Experiment, Run, seeded

SEEDS = 5

#: Printed: RMSE, deviation, CPU seconds, deviation on MovieLens-100K, -1M, -10M; None where the
#: paper has no number.
PRINTED: dict[str, list[tuple[float, float, float, float] | None]] = {
    "AltGrad": [(0.954, 0.004, 1.0, 0.2), (0.856, 0.005, 30.6, 2.5), (0.872, 0.003, 1130.4, 9.6)],
    "RP": [(0.968, 0.008, 0.2, 0.1), (0.867, 0.002, 4.4, 0.4), (0.948, 0.011, 199.9, 39.0)],
    "ScaledASD": [(0.951, 0.004, 0.3, 0.1), (0.878, 0.003, 8.7, 0.2), (0.884, 0.001, 230.2, 7.7)],
    "ALT-Impute": [(0.942, 0.021, 0.2, 0.1), (0.859, 0.001, 10.7, 0.2), (0.872, 0.001, 198.9, 2.6)],
    "OMDL": [(0.958, 0.003, 0.1, 0.1), (0.873, 0.008, 2.6, 0.5), (0.881, 0.003, 63.4, 4.2)],
    "GRASTA": [(1.057, 0.218, 4.6, 0.3), (0.842, 0.011, 31.1, 0.6), (0.876, 0.047, 1304.3, 18.0)],
    "RMC": [(0.920, 0.001, 1.4, 0.2), (0.849, 0.001, 40.6, 2.2), (0.855, 0.001, 526.0, 29.5)],
    "RMF-MM": [(0.901, 0.003, 402.3, 80.0), None, None],
    "RMFNL LSP": [
        (0.885, 0.006, 5.9, 1.5),
        (0.828, 0.001, 34.9, 1.0),
        (0.817, 0.004, 1508.2, 69.1),
    ],
    "RMFNL Geman": [
        (0.885, 0.005, 6.6, 1.2),
        (0.829, 0.005, 35.3, 0.3),
        (0.817, 0.004, 1478.5, 72.8),
    ],
    "RMFNL Laplace": [
        (0.885, 0.005, 4.9, 1.1),
        (0.828, 0.001, 35.1, 0.2),
        (0.817, 0.005, 1513.4, 12.2),
    ],
}
ADDED = ("GRASTA, 20 passes", "LIBMF", "cmfrec", "RobustMF", "RobustMF, biases")
#: Methods of a quick plan.
_FAST = ("ScaledASD", "OMDL", "GRASTA")
DATA = ("MovieLens-100K", "MovieLens-1M", "MovieLens-10M")


def runs(quick: bool) -> list[Run]:
    """Five seeds per cell; a quick plan has one of a few fast methods on the smallest set.

    RMF-MM runs on MovieLens-100K only, as in the paper.
    """

    def seeds(method: str, data: str) -> int:
        if method == "RMF-MM" and data != "MovieLens-100K":
            return 0
        if not quick:
            return SEEDS
        return int(data == DATA[0] and method in _FAST)

    return seeded("table3", (*PRINTED, *ADDED), DATA, seeds)


def probe(method: str) -> float:
    """Test error on attacked ratings of a small data set."""
    return ratings.probe("table3", method)


EXPERIMENT = Experiment(
    "table3",
    "MovieLens under the love/hate attack",
    runs,
    ratings.execute,
    ratings.settings,
    probe,
)
