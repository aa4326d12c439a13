"""Losses, one per module, and the registry of their names.

A user-defined loss is a subclass of :class:`Loss` that is passed as an object; it needs no entry
here. A new loss of the package is added to ``_CLASSES``.
"""

from __future__ import annotations

from collections.abc import Callable

from robustmf.losses.base import Loss
from robustmf.losses.cauchy import Cauchy
from robustmf.losses.geman import Geman
from robustmf.losses.geman_mcclure import GemanMcClure
from robustmf.losses.huber import Huber
from robustmf.losses.l1 import L1
from robustmf.losses.l2 import L2
from robustmf.losses.laplace import Laplace
from robustmf.losses.lsp import LSP
from robustmf.losses.mcp import MCP
from robustmf.losses.scad import SCAD
from robustmf.losses.smoothed import Smoothed, smoothed
from robustmf.losses.tukey import Tukey
from robustmf.losses.welsch import Welsch

__all__ = [
    "L1",
    "L2",
    "LSP",
    "MCP",
    "SCAD",
    "Cauchy",
    "Geman",
    "GemanMcClure",
    "Huber",
    "Laplace",
    "Loss",
    "Smoothed",
    "Tukey",
    "Welsch",
    "loss_names",
    "make_loss",
    "smoothed",
]

#: The losses of the package. Those that are concave are registered in smoothed form as well.
_CLASSES: tuple[type[Loss], ...] = (
    L1,
    L2,
    LSP,
    Geman,
    Laplace,
    MCP,
    SCAD,
    Huber,
    Cauchy,
    Welsch,
    Tukey,
    GemanMcClure,
)


def _smoothed(base: type[Loss]) -> Callable[[], Loss]:
    """A function that creates the smoothed loss with the default parameters."""
    return lambda: Smoothed(theta=base().theta, base=base())


_REGISTRY: dict[str, Callable[[], Loss]] = {cls.name: cls for cls in _CLASSES}
_REGISTRY |= {f"smoothed-{cls.name}": _smoothed(cls) for cls in _CLASSES if cls.concave}


def loss_names() -> list[str]:
    """The names of the losses that :func:`make_loss` accepts."""
    return list(_REGISTRY)


def make_loss(loss: str | Loss, theta: float | None = None) -> Loss:
    """Create a loss from its name.

    Parameters
    ----------
    loss : str or Loss
        One of :func:`loss_names`, or a loss, which is used as given.
    theta : float, default=None
        The scale θ; None keeps that of the loss.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        If the name is not registered, or θ is outside the domain of the loss.
    TypeError
        If ``loss`` is neither a name nor a :class:`Loss`.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf.losses import make_loss
    >>> make_loss("welsch", theta=2.0)
    Welsch(theta=2.0)
    >>> make_loss("huber", theta=1.0).value(np.array([0.5, 10.0]))
    array([0.125, 9.5  ])
    """
    if isinstance(loss, str):
        if loss not in _REGISTRY:
            raise ValueError(
                f"loss must be one of {', '.join(_REGISTRY)} or a Loss object, got loss={loss!r}"
            )
        loss = _REGISTRY[loss]()
    if not isinstance(loss, Loss):
        raise TypeError(
            f"loss must be a name or a robustmf.losses.Loss object, got {type(loss).__name__}"
        )
    return loss if theta is None else loss.at_scale(theta)
