"""The result of a fit, and its form in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.factorization import Factorization
from robustmf.exceptions import CheckpointError
from robustmf.initialization.candidates import ModelCandidate
from robustmf.initialization.state import (
    Restorer,
    plain_parts,
    require_scales,
    require_valid,
    restored_candidates,
)
from robustmf.io.model_state import require_row_ridge
from robustmf.losses import Loss
from robustmf.solvers.base import Outcome
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FitResult:
    """A fitted model, and how it was found.

    Attributes
    ----------
    factorization : Factorization
    bias_unit : float
        The ridge on biases is λ/bias_unit².
    loss : Loss
        With the θ that was used.
    reg : float
        λ.
    outcome : Outcome
        How the iteration ended.
    criticality : float
        The norm of the smallest element of the Clarke subdifferential; NaN where it was not
        measured.
    solver, reason : str
        The solver that was used, and why.
    scales : (array, array) or None, default=None
        Scales of the noise of rows and columns, by which the entries were divided.
    candidates : tuple of ModelCandidate, default=()
        The models that were compared.
    reliability : array over the entries, or None, default=None
        The factor of each entry's loss beside its weight, where that was learned.
    row_ridge : array of shape (2, k), or None, default=None
        The ridge of each factor of a new row, and what it grows by with each entry of the row;
        None for λ.
    """

    factorization: Factorization
    bias_unit: float
    loss: Loss
    reg: float
    outcome: Outcome
    criticality: float
    solver: str
    reason: str
    scales: tuple[Array, Array] | None = None
    candidates: tuple[ModelCandidate, ...] = ()
    reliability: Array | None = None
    row_ridge: Array | None = None

    def parts(self) -> dict[str, Any]:
        """The result as plain values for a checkpoint, the loss by its θ."""
        return plain_parts(self) | {"loss": self.loss.theta, "outcome": self.outcome.parts()}

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: Settings, data: Restorer) -> FitResult:
        """The inverse of :meth:`parts`, for a fit with the loss of the settings at any θ."""
        require_valid(parts)
        theta = parts["loss"]
        loss = settings.loss
        found = data.restored(parts["factorization"], settings.max_rank)
        require_scales(parts["scales"], found)
        if parts["reliability"] is not None:
            data.require_weights(parts["reliability"])
        if parts["row_ridge"] is not None:
            require_row_ridge(parts["row_ridge"], found.rank + found.has_bias, CheckpointError)
        return cls(
            **parts
            | {
                "factorization": found,
                "loss": loss if theta == loss.theta else loss.at_scale(theta),
                "outcome": Outcome.from_parts(parts["outcome"]),
                "candidates": restored_candidates(parts),
            }
        )
