"""A fitted model in a few lines: for notebooks, pages and the command line."""

from __future__ import annotations

from html import escape
from typing import Any


def facts(model: Any) -> dict[str, str]:
    """What a fit was made of and how it ended, by name; nothing is computed."""
    m, n = len(model.row_factors_), len(model.column_factors_)
    kept_entries = (
        model.entries_
    )  # all of them, or of a fit on a cluster some, and how many each row has
    entries = (
        int(kept_entries["row_counts"].sum())
        if "row_counts" in kept_entries
        else len(kept_entries["values"])
    )
    best, loss = model.best_iteration_, getattr(model.loss_, "name", type(model.loss_).__name__)
    kept = f", number {best} kept" if best != model.n_iter_ else ""
    found = {
        "matrix": f"{m:,} rows × {n:,} columns",
        "entries": f"{entries:,} ({100 * entries / max(m * n, 1):.3g} % observed, {kept_entries['values'].dtype})",
        "model": f"rank {len(model.components_)}{', biases' if model._has_bias else ''}, {loss} loss",
        "θ": f"{model.theta_:.4g}" if model.loss_.has_scale else "none: the loss has no scale",
        "λ": f"{model.reg_:.4g}{' times the entries of a row or column' if model.reg_by_count else ''}",
        "solver": f"{model.solver_} ({model.solver_reason_})",
        "iterations": f"{model.n_iter_} ({model.stop_reason_}{kept})",
    }
    if "validation" in model.history_:
        found["validation error"] = (
            f"{model.history_['validation'][best]:.4g} (mean absolute, on entries set aside)"
        )
    return found


def facts_html(model: Any) -> str:
    """The facts as a small table, for notebooks."""
    left = 'style="text-align:left;padding-right:1em"'
    lines = "".join(
        f'<tr><th scope="row" {left}>{escape(name)}</th><td {left}>{escape(text)}</td></tr>'
        for name, text in facts(model).items()
    )
    return f'<table class="robustmf-fit"><caption style="text-align:left">fitted</caption><tbody>{lines}</tbody></table>'
