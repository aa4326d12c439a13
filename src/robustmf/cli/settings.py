"""The settings of a fit as options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from robustmf.estimator import RobustMF

_PANEL = "How the fit is made"

Rank = Annotated[
    int, typer.Option("--rank", "-r", min=1, help="Number of factors.", rich_help_panel=_PANEL)
]
Loss = Annotated[
    str,
    typer.Option(
        "--loss",
        help="How residuals count: welsch, l1, l2, huber, cauchy, tukey, lsp, …",
        rich_help_panel=_PANEL,
    ),
]
Theta = Annotated[
    str,
    typer.Option(
        "--theta",
        help="Residuals well beyond it are outliers: auto, or a number.",
        rich_help_panel=_PANEL,
    ),
]
Reg = Annotated[
    str,
    typer.Option(
        "--reg", help="Regularisation λ: auto, paper, or a number.", rich_help_panel=_PANEL
    ),
]
Bias = Annotated[
    bool | None,
    typer.Option(
        "--bias/--no-bias",
        help="A center, and a bias a row and a column; if not given, the data decides.",
        rich_help_panel=_PANEL,
    ),
]
Solver = Annotated[
    str, typer.Option("--solver", help="auto, irls, varpro or mm.", rich_help_panel=_PANEL)
]
MaxIter = Annotated[
    int, typer.Option("--max-iter", min=0, help="Iterations at most.", rich_help_panel=_PANEL)
]
Tol = Annotated[
    float,
    typer.Option(
        "--tol",
        help="Stop when the objective changes by less than this share.",
        rich_help_panel=_PANEL,
    ),
]
ValidationFraction = Annotated[
    float | None,
    typer.Option(
        "--validation-fraction",
        help="Set this share of the entries aside to see when to stop.",
        rich_help_panel=_PANEL,
    ),
]
Bounds = Annotated[
    str | None,
    typer.Option("--bounds", help="Clip predictions, e.g. 1,5 for stars.", rich_help_panel=_PANEL),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", min=0, help="Of the start, and of what is set aside.", rich_help_panel=_PANEL
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Write the fit's state here each minute; go on from it if it exists.",
        rich_help_panel=_PANEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="All cores if not given; results do not depend on it.",
        rich_help_panel=_PANEL,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", help="cpu, or cuda for one NVIDIA GPU (extra 'gpu').", rich_help_panel=_PANEL
    ),
]


def make_model(
    rank: int, *, theta: str, reg: str, bias: bool | None, bounds: str | None = None, seed: int, threads: int | None,
    device: str = "cpu", **others: Any,
) -> RobustMF:  # fmt: skip
    """The estimator that the options ask for; with a progress bar where someone is watching."""
    from robustmf.backends.registry import get_backend  # noqa: PLC0415 - so that --help is quick
    from robustmf.estimator import RobustMF  # noqa: PLC0415

    get_backend(device).check_available()  # before any file is read
    return RobustMF(
        rank,
        theta=_number("--theta", theta, ("auto",)),
        reg=_number("--reg", reg, ("auto", "paper")),
        bias="auto" if bias is None else bias,
        bounds=None if bounds is None else _bounds(bounds),
        random_state=seed,
        n_jobs=threads,
        device=device,
        verbose=int(sys.stderr.isatty()),
        **others,
    )


def _number(option: str, given: str, words: tuple[str, ...]) -> Any:
    if given in words:
        return given
    try:
        return float(given)
    except ValueError:
        raise typer.BadParameter(
            f"must be {', '.join(words)} or a number, got {given!r}", param_hint=option
        ) from None


def _bounds(given: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in given.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"must be two numbers with a comma between, such as 1,5, got {given!r}",
            param_hint="--bounds",
        ) from None
    return low, high
