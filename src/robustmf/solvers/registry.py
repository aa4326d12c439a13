"""Which solver for which problem, and why, in words."""

from __future__ import annotations

from robustmf.data.observed import Observed
from robustmf.losses import Loss

SOLVERS = ("irls", "varpro", "mm")

#: Up to this many unknowns of the short side, and from this ratio of the sides, V is worth eliminating.
_SMALL_SIDE, _ELONGATED = 600, 2.0

#: From this share of observed entries, sweeps with a smooth loss end as low as elimination does, in a tenth of the time.
_WELL_FILLED = 0.5

#: With fewer entries for each free parameter neither finds the valley of a smooth loss, and elimination takes up to forty times as long.
_ENTRIES_EACH = 1.25


def choose_solver(
    solver: str, observed: Observed, rank: int, loss: Loss, plain_model: bool, projects: bool = True
) -> tuple[str, str]:
    """The solver to use, and the reason.

    ``plain_model``: no biases, no weights, λ not by count. ``projects``: ``varpro`` can work where the entries lie.
    """
    if solver != "auto":
        if solver not in SOLVERS:
            raise ValueError(
                f"solver must be 'auto', {', '.join(map(repr, SOLVERS))}, got solver={solver!r}"
            )
        if solver != "irls" and not plain_model:
            raise ValueError(
                f"bias, weights and reg_by_count need solver='irls' (or 'auto'), got solver={solver!r}"
            )
        if solver == "varpro" and not projects:
            raise ValueError(
                "solver='varpro' needs device='cpu'; on a GPU use solver='irls' or 'mm'"
            )
        return solver, "asked for"
    m, n = observed.shape
    if (
        projects
        and plain_model
        and is_worth_eliminating(observed.shape, observed.n_entries, rank, loss.concave)
    ):
        return (
            "varpro",
            f"{min(m, n)} × {rank} unknowns on the short side of a {m} × {n} matrix: the long side can be eliminated",
        )
    return "irls", f"{m} × {n} with {observed.n_entries} entries: sweeps of small regressions"


def is_worth_eliminating(shape: tuple[int, int], n_entries: int, rank: int, kinked: bool) -> bool:
    """Whether one side is so short that the other is best eliminated, and sweeps would do worse."""
    short, long = min(shape), max(shape)
    hard = (
        kinked
        or _ENTRIES_EACH * rank * (short + long - rank) <= n_entries < _WELL_FILLED * short * long
    )
    return hard and short * rank <= _SMALL_SIDE and long >= _ELONGATED * short
