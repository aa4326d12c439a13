"""``MM``: the options of the majorization–minimization solver."""

from __future__ import annotations

from dataclasses import dataclass, replace

from robustmf.validation import require_integer, require_positive

#: Names of the inner solvers, see :func:`robustmf.solvers.mm.make_inner`.
INNER_SOLVERS = ("apg", "apg-dense", "ladmpsap")


@dataclass(frozen=True)
class CertifyingOptions:
    """Constants of a certifying run.

    Attributes
    ----------
    gap : float
        The relative duality gap of its inner solves, unless another is given.
    """

    gap: float = 0.1


OPTIONS = CertifyingOptions()


@dataclass(frozen=True)
class MM:
    """The solver ``mm`` (the paper's RMFNL) and when its inner solves stop.

    Parameters
    ----------
    inner : {"apg", "apg-dense", "ladmpsap"}, default="apg"
        How the convex surrogate is minimized: accelerated proximal gradient on its dual, on the
        observed entries only; the same on dense m × n arrays; or linearized alternating directions
        (LADMPSAP). The last two are for comparison and need m × n memory.
    max_iter : int, default=300
        The largest number of steps of an inner solve (300 in the paper), unless its increments do
        not yet decrease the surrogate.
    tol : float, default=1e-6
        An inner solve stops when its objective changes by less than this, relative to its value,
        between two steps (1e-6 in the paper).
    gap : float or None, default=None
        If given, an inner solve stops by the duality gap instead: when it is at most this share of
        the decrease reached. The decrease is then at least 1/(1 + gap) of the largest possible one,
        whatever the scale of the data.

    Examples
    --------
    >>> from robustmf import MM, RobustMF
    >>> RobustMF(5, loss="lsp", solver=MM(gap=0.1, max_iter=2000)).solver
    MM(inner='apg', max_iter=2000, tol=1e-06, gap=0.1)
    """

    inner: str = "apg"
    max_iter: int = 300
    tol: float = 1e-6
    gap: float | None = None

    def __post_init__(self) -> None:
        try:
            if self.inner not in INNER_SOLVERS:
                raise ValueError(
                    f"inner must be one of {', '.join(INNER_SOLVERS)}, got inner={self.inner!r}"
                )
            require_integer("max_iter", self.max_iter, 1)
            require_positive("tol", self.tol)
            if self.gap is not None:
                require_positive("gap", self.gap)
        except (TypeError, ValueError) as error:
            raise type(error)(f"MM: {error}") from None

    @property
    def needs_host_arrays(self) -> bool:
        """Whether the inner solver forms dense NumPy arrays."""
        return self.inner != "apg"

    def is_accurate(self, gap: float, decrease: float) -> bool:
        """Whether a duality gap is small enough, where the gap decides."""
        return self.gap is not None and gap <= self.gap * decrease

    def certifying(self) -> MM:
        """The options of a run that certifies a critical point: the duality gap decides."""
        return replace(self, gap=self.gap or OPTIONS.gap)
