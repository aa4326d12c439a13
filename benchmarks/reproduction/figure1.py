"""Figure 1: the losses, and the tangents that bound them from above."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.reproduction.plan import Experiment, Run
from robustmf.losses import make_loss

TOUCHING = 1.0
THETAS = {"geman": 0.5, "laplace": 0.5, "lsp": 0.5, "mcp": 0.5, "scad": 2.5}


def runs(quick: bool) -> list[Run]:
    """One a loss."""
    return [Run("figure1", loss, f"θ = {theta}", 0) for loss, theta in THETAS.items()]


def execute(run: Run) -> dict[str, Any]:
    """φ(|α|), and φ'(|β|)|α| + φ(|β|) − φ'(|β|)|β| at β = 1."""
    loss = make_loss(run.method, THETAS[run.method])
    alpha = np.linspace(-3, 3, 121)
    beta = np.array([TOUCHING])
    slope, height = loss.derivative(beta)[0], loss.value(beta)[0]
    return {
        "alpha": alpha,
        "loss": loss.value(alpha),
        "bound": slope * np.abs(alpha) + height - slope * TOUCHING,
    }


EXPERIMENT = Experiment("figure1", "The losses and their upper bounds", runs, execute)
