"""Figure 1: the losses and the tangents that majorize them."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.reproduction.plan import Experiment, Run
from robustmf.losses import make_loss

#: Where the tangent touches the loss.
TOUCHING = 1.0
THETAS = {"geman": 0.5, "laplace": 0.5, "lsp": 0.5, "mcp": 0.5, "scad": 2.5}


def runs(quick: bool) -> list[Run]:
    """One run per loss."""
    return [Run("figure1", loss, f"θ = {theta}", 0) for loss, theta in THETAS.items()]


def execute(run: Run) -> dict[str, Any]:
    """φ(|α|), and φ'(|β|)|α| + φ(|β|) − φ'(|β|)|β| at β = 1."""
    loss = make_loss(run.method, THETAS[run.method])
    alpha = np.linspace(-3, 3, 121)
    beta = np.array([TOUCHING])
    slope = loss.derivative(beta)[0]
    bound = slope * np.abs(alpha) + loss.value(beta)[0] - slope * TOUCHING
    return {"alpha": alpha, "loss": loss.value(alpha), "bound": bound}


def settings(run: Run) -> dict[str, Any]:
    """θ and β."""
    return {"theta": THETAS[run.method], "touching": TOUCHING}


def probe(method: str) -> float:
    """Mean of the tangent."""
    return float(np.mean(execute(Run("figure1", method, "", 0))["bound"]))


EXPERIMENT = Experiment(
    "figure1", "The losses and their upper bounds", runs, execute, settings, probe
)
