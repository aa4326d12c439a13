"""Options of the estimator."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli.output import is_terminal

if TYPE_CHECKING:
    from robustmf.estimator import RobustMF


def fit_option(*names: str, help: str, **settings: Any) -> Any:
    """Create an option that is listed among those of the fit."""
    return typer.Option(*names, help=help, rich_help_panel="Options of the fit", **settings)


@dataclass(frozen=True)
class ModelOptions:
    """Options of every command that fits a model."""

    loss: Annotated[
        str, fit_option("--loss", help="Loss: welsch, l1, l2, huber, cauchy, tukey, lsp, …")
    ] = "welsch"
    theta: Annotated[
        str,
        fit_option(
            "--theta",
            help="Scale of the loss, beyond which residuals are outliers: auto or a number.",
        ),
    ] = "auto"
    reg: Annotated[str, fit_option("--reg", help="Regularization λ: auto, paper or a number.")] = (
        "auto"
    )
    seed: Annotated[
        int,
        fit_option("--seed", min=0, help="Seed of the initialization and of held-out entries."),
    ] = 0
    threads: Annotated[
        int | None,
        fit_option(
            "--threads",
            min=1,
            help="Number of threads, by default all cores; results do not depend on it.",
        ),
    ] = None


@dataclass(frozen=True)
class SolverOptions:
    """Further options of ``robustmf fit``."""

    solver: Annotated[str, fit_option("--solver", help="auto, irls, varpro or mm.")] = "auto"
    validation_fraction: Annotated[
        float | None,
        fit_option(
            "--validation-fraction",
            help="Hold out this fraction of the entries to decide when to stop.",
        ),
    ] = None
    bounds: Annotated[
        str,
        fit_option(
            "--bounds",
            help="Clip predictions to an interval, e.g. 1,5 for stars or 0,inf for counts; auto"
            " (the ends of a rating scale are recognized) or none.",
        ),
    ] = "auto"
    nonnegative: Annotated[
        bool,
        fit_option("--nonnegative", help="Constrain all factors to be non-negative."),
    ] = False
    max_iter: Annotated[
        int, fit_option("--max-iter", min=0, help="Maximum number of iterations.")
    ] = 300
    tol: Annotated[
        float,
        fit_option("--tol", help="Stop when the relative change of the objective is below this."),
    ] = 1e-4
    device: Annotated[
        str, fit_option("--device", help="cpu, or cuda for one NVIDIA GPU (extra 'gpu').")
    ] = "cpu"


Rank = Annotated[
    str,
    fit_option("--rank", "-r", help="Number of factors: auto (found from the data) or an integer."),
]
Bias = Annotated[
    bool | None,
    fit_option(
        "--bias/--no-bias",
        help="Whether to fit a center and a bias per row and column; by default chosen from the"
        " data.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    fit_option(
        "--checkpoint",
        help="Save the state of the fit to this file every minute; resume from it if it exists.",
    ),
]


def make_model(
    rank: str,
    bias: bool | None,
    model: ModelOptions,
    solver: SolverOptions | None = None,
) -> RobustMF:
    """Create the estimator, with a progress bar if standard error is a terminal."""
    from robustmf.backends.registry import get_backend  # noqa: PLC0415 - fast --help
    from robustmf.estimator import RobustMF  # noqa: PLC0415 - as above

    solver = solver or SolverOptions()
    get_backend(solver.device).check_available()  # before any file is read
    return RobustMF(
        _rank(rank),
        loss=model.loss,
        theta=_number("--theta", model.theta, ("auto",)),
        reg=_number("--reg", model.reg, ("auto", "paper")),
        bias="auto" if bias is None else bias,
        nonnegative=solver.nonnegative,
        solver=solver.solver,
        validation_fraction=solver.validation_fraction,
        bounds=_bounds(solver.bounds),
        max_iter=solver.max_iter,
        tol=solver.tol,
        random_state=model.seed,
        n_jobs=model.threads,
        device=solver.device,
        verbose=int(is_terminal(sys.stderr)),
    )


def _rank(text: str) -> Any:
    """Return "auto" or an integer."""
    if text == "auto":
        return text
    try:
        rank = int(text)
    except ValueError:
        rank = 0
    if rank < 1:
        raise typer.BadParameter(
            f"must be auto or an integer >= 1, got {text!r}", param_hint="--rank"
        )
    return rank


def _number(option: str, text: str, words: tuple[str, ...]) -> Any:
    """Return one of the words or a number."""
    if text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"must be {', '.join(words)} or a number, got {text!r}", param_hint=option
        ) from None


def _bounds(text: str) -> Any:
    """Return the interval to which predictions are clipped, "auto" or None."""
    if text in ("auto", "none"):
        return text if text == "auto" else None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"must be auto, none or two numbers separated by a comma, such as 1,5, got {text!r}",
            param_hint="--bounds",
        ) from None
    return low, high
