"""The result of an initialization, and its form in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.ridge import FactorRidge, Ridges
from robustmf.data.factorization import Factorization
from robustmf.exceptions import CheckpointError
from robustmf.initialization.candidates import ModelCandidate
from robustmf.losses import Loss
from robustmf.solvers.base import require_number
from robustmf.solvers.registry import get_solver
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


class Restorer(Protocol):
    """The data of a fit, by which saved factors are checked."""

    def restored(self, parts: dict[str, Any], rank: int | None) -> Factorization:
        """A factorization from a file; its arrays must be those of this fit."""

    def require_weights(self, weights: Array) -> None:
        """Refuse weights from a file that are not those of the entries of this fit."""


@dataclass(frozen=True)
class Initialization:
    """Where the iterations start.

    Attributes
    ----------
    factorization : Factorization
        The initial factors, and biases if the model has them.
    sigma : float
        The noise level there.
    reg : float
        λ.
    bias_unit : float
        The ridge on biases is λ/bias_unit².
    solver, reason : str
        The solver to use, and why.
    theta : float or None
        θ for the distribution of the noise, where that was learned.
    scales : (array, array) or None
        Scales of rows and columns: the noise of an entry is ``sigma`` times both.
    ridges : (FactorRidge, FactorRidge) or None
        The ridge of each augmented factor of rows and columns, where it was learned.
    candidates : tuple of ModelCandidate, default=()
        The models that were compared.
    reliability : array over the entries, or None, default=None
        The probability that an entry is no outlier, where that was learned with the ridges: a
        factor of its loss.
    """

    factorization: Factorization
    sigma: float
    reg: float
    bias_unit: float
    solver: str
    reason: str
    theta: float | None = None
    scales: tuple[Array, Array] | None = None
    ridges: Ridges | None = None
    candidates: tuple[ModelCandidate, ...] = ()
    reliability: Array | None = None

    def parts(self) -> dict[str, Any]:
        """The initialization as plain values for a checkpoint."""
        ridges = None if self.ridges is None else [vars(side) for side in self.ridges]
        return plain_parts(self) | {"ridges": ridges}

    @classmethod
    def from_parts(
        cls, parts: dict[str, Any], settings: Settings, data: Restorer
    ) -> Initialization:
        """The inverse of :meth:`parts`."""
        require_valid(parts)
        require_number(parts["sigma"], above=0)
        if parts["theta"] is not None:
            require_number(parts["theta"], above=0)
        found = data.restored(parts["factorization"], settings.max_rank)
        require_scales(parts["scales"], found)
        ridges = None
        if parts["ridges"] is not None:
            rows, columns = (FactorRidge(**side) for side in parts["ridges"])
            n_factors = found.rank + found.has_bias
            rows.require_shape(found.row_factors.shape[0], n_factors)
            columns.require_shape(found.column_factors.shape[0], n_factors)
            ridges = (rows, columns)
        if parts["reliability"] is not None:
            data.require_weights(parts["reliability"])
        restored = {"factorization": found, "ridges": ridges}
        return cls(**parts | restored | {"candidates": restored_candidates(parts)})

    def loss(self, settings: Settings) -> Loss:
        """The loss with the θ that is used."""
        if self.theta is None:
            return settings.loss_at(self.sigma)
        return settings.loss.at_scale(self.theta * self.sigma)

    @property
    def transposed(self) -> Initialization:
        """The same for the transposed matrix."""
        scales = None if self.scales is None else (self.scales[1], self.scales[0])
        ridges = None if self.ridges is None else (self.ridges[1], self.ridges[0])
        return replace(
            self, factorization=self.factorization.transposed, scales=scales, ridges=ridges
        )


def placed_scales(operations: EntryOperations, scales: tuple[Array, Array]) -> tuple[Array, Array]:
    """The scales of rows and columns on the device and in the precision of the entries."""
    dtype = operations.observed.dtype
    rows, columns = (operations.array(scale.astype(dtype)) for scale in scales)
    return rows, columns


def require_valid(parts: dict[str, Any]) -> None:
    """Require that what a saved initialization and a saved result have in common is valid."""
    require_number(parts["reg"], least=0)
    require_number(parts["bias_unit"], above=0)
    get_solver(parts["solver"])
    if not isinstance(parts["reason"], str):
        raise CheckpointError("the reason for its solver is invalid")
    if parts["factorization"]["center"] is not None:
        require_number(parts["factorization"]["center"])


def require_scales(saved: tuple[Array, Array] | None, found: Factorization) -> None:
    """Require one positive scale per row and column of a saved factorization, or None."""
    if saved is None:
        return
    for scales, biases in zip(saved, (found.row_bias, found.column_bias), strict=True):
        if scales.shape != biases.shape or not (scales > 0).all():
            raise CheckpointError("its scales must be a positive number per row and column")


def plain_parts(record: Any) -> dict[str, Any]:
    """The fields of an initialization or a result, with factorization and candidates as dicts."""
    plain = {part.name: getattr(record, part.name) for part in fields(record)}
    candidates = [vars(candidate) for candidate in record.candidates]
    return plain | {"factorization": dict(vars(record.factorization)), "candidates": candidates}


def restored_candidates(parts: dict[str, Any]) -> tuple[ModelCandidate, ...]:
    """The candidates of a saved initialization or result."""
    try:
        return tuple(ModelCandidate.from_plain(plain) for plain in parts["candidates"])
    except ValueError as error:
        raise CheckpointError(str(error)) from None
