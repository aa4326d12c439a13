"""Summary of a fitted model for notebooks, pages and the command line."""

from __future__ import annotations

from html import escape
from typing import Any

from robustmf.estimator.parameters import rank_text
from robustmf.initialization.candidates import ModelCandidate


def summary(estimator: Any) -> dict[str, str]:
    """Return the size of the data, the model and the result of the iteration as texts by name.

    Parameters
    ----------
    estimator : RobustMF
        A fitted estimator.
    """
    model = estimator.model_
    m, n = model.shape
    entries = model.entries
    # A fit on a cluster keeps a sample of its entries, and the number of entries of each row.
    n_entries = len(entries["values"])
    if "row_counts" in entries:
        n_entries = int(entries["row_counts"].sum())
    observed = 100 * n_entries / max(m * n, 1)
    best = model.summary.best_iteration
    selected = f", iteration {best} selected" if best != model.summary.n_iter else ""
    loss = getattr(model.loss, "name", type(model.loss).__name__)
    by_count = " times the entries of a row or column" if model.reg_by_count else ""
    biases = ", biases" if model.factors.has_bias else ""
    signs = ", non-negative" if model.nonnegative else ""
    rank = rank_text(estimator)
    found = {
        "matrix": f"{m:,} rows × {n:,} columns",
        "entries": f"{n_entries:,} ({observed:.3g} % observed, {entries['values'].dtype})",
        "model": f"{rank}{biases}{signs}, {loss} loss",
        "θ": f"{model.loss.theta:.4g}" if model.loss.has_scale else "none: the loss has no scale",
        "λ": f"{model.reg:.4g}{by_count}",
        "solver": f"{model.summary.solver} ({model.summary.solver_reason})",
        "iterations": f"{model.summary.n_iter} ({model.summary.stop_reason}{selected})",
    }
    if model.summary.candidates:
        found["models compared"] = "; ".join(map(_candidate, model.summary.candidates))
    if model.summary.failed_checks:
        found["failed checks"] = "; ".join(model.summary.failed_checks)
    if "validation" in model.summary.history:
        error = model.summary.history["validation"][best]
        found["validation error"] = f"{error:.4g} (mean absolute, on held-out entries)"
    return found


def _candidate(candidate: ModelCandidate) -> str:
    """Return a model that was compared, with its mean absolute error on entries left out."""
    rank = f" of rank {candidate.rank}" if candidate.rank else ""
    chosen = " (chosen)" if candidate.chosen else ""
    error = f"{candidate.error:.4g} ± {candidate.standard_error:.2g}"
    return f"{candidate.model}{rank}: error {error}{chosen}"


def summary_html(estimator: Any) -> str:
    """Return the summary as an HTML table for notebooks."""
    left = 'style="text-align:left;padding-right:1em"'
    rows = "".join(
        f'<tr><th scope="row" {left}>{escape(name)}</th><td {left}>{escape(text)}</td></tr>'
        for name, text in summary(estimator).items()
    )
    caption = '<caption style="text-align:left">fitted</caption>'
    return f'<table class="robustmf-fit">{caption}<tbody>{rows}</tbody></table>'
