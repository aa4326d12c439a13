"""The contract between solvers and backends.

A solver is written once, in terms of :class:`EntryOperations`: passes over the observed entries. A
:class:`Backend` provides them for one kind of hardware and declares in its :class:`Capabilities`
which requirements of solvers it satisfies. The conformance suite in ``tests/backends`` tests the
capabilities and :class:`Sweeps` of every backend, and the operations of every
:class:`LocalBackend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from robustmf.data.observed import Observed
from robustmf.losses import Loss, Smoothed

if TYPE_CHECKING:
    from robustmf.backends.biases import BiasModel
    from robustmf.backends.ridge import Ridge, Ridges
    from robustmf.kernels.team import Team

#: A NumPy array, or an array of the backend that accepts NumPy's functions.
Array = Any

#: A pair of (augmented) factors in whatever representation a backend keeps them: arrays, or blocks
#: on many workers. Both have ``shape`` and ``dtype``.
Point = tuple[Any, Any]


@dataclass(frozen=True)
class Capabilities:
    """Requirements of solvers that a backend satisfies.

    Attributes
    ----------
    entry_operations : bool, default=True
        The backend is a :class:`LocalBackend`: any solver that is written in terms of
        :class:`EntryOperations`, and the certificate of optimality.
    host_arrays : bool, default=True
        Entries and factors are NumPy arrays: variable projection, and the inner solvers of MM that
        form dense matrices.
    float32_sweeps : bool, default=True
        Half-steps and loss sums have a faster float32 version for float64 entries
        (the parameter ``single``).
    several_initializations : bool, default=True
        A fit can be repeated from several initial points (``n_init``).
    nonnegative : bool, default=True
        Factors can be constrained to be non-negative.
    max_rank : int or None, default=None
        The largest number of factors including one for a bias; None if there is no limit.
    """

    entry_operations: bool = True
    host_arrays: bool = True
    float32_sweeps: bool = True
    several_initializations: bool = True
    nonnegative: bool = True
    max_rank: int | None = None

    def allows_rank(self, rank: int) -> bool:
        """Whether ``rank`` factors, one for a bias included, can be fitted."""
        return self.max_rank is None or rank <= self.max_rank


def common_base(losses: Sequence[Loss]) -> Loss | None:
    """The loss of which all ``losses`` are smoothed versions (or itself); None if there is none."""
    first, *others = (loss.base if isinstance(loss, Smoothed) else loss for loss in losses)
    return first if all(other == first for other in others) else None


class EntryOperations(Protocol):
    """Passes over one set of observed entries: what solvers call.

    Factors are arrays of shape (m, r) and (n, r) with the dtype of the entries. Arrays over the
    entries are in row order. Sums that decide anything are float64. The same input gives the same
    bits, whatever the number of threads.
    """

    capabilities: ClassVar[Capabilities]

    @property
    def observed(self) -> Observed:
        """The entries."""

    @property
    def team(self) -> Team:
        """The threads that run passes on the host."""

    @property
    def transposed(self) -> EntryOperations:
        """The same operations with the roles of rows and columns exchanged."""

    def on(self, observed: Observed) -> EntryOperations:
        """The same operations on other entries of this backend."""

    def host(self) -> EntryOperations:
        """Operations of the CPU backend on the same entries; the object itself if it is one."""

    def array(self, values: Any) -> Array:
        """``values`` as a C-contiguous array of this backend."""

    def sweeps(
        self,
        reg: float | Ridges,
        biases: BiasModel,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
        nonnegative: bool = False,
    ) -> Sweeps:
        """Sweeps over these entries.

        Parameters
        ----------
        reg : float or (FactorRidge, FactorRidge)
            λ, or the ridge of each factor of the rows and of the columns.
        biases : BiasModel
            The bias model.
        sample_weights : array over the entries, optional
            The factor of each entry's loss.
        reg_by_count : bool, default=False
            Multiply λ by the number of entries of the row or column.
        nonnegative : bool, default=False
            Constrain the factors to be non-negative; for a model without biases, and initial
            factors that are non-negative. The backend must have the capability ``nonnegative``.
        """

    def residuals(self, U: Array, V: Array, shifts: Array | None = None) -> Array:
        """Residuals M − UVᵀ at the entries, minus a shift for each column if given."""

    def loss_sum(
        self, loss: Loss, U: Array, V: Array, sample_weights: Array | None = None
    ) -> float:
        """Σ s·φ(|e|) over the entries, where e are the residuals and s the sample weights."""

    def loss_sums(
        self,
        losses: Sequence[Loss],
        U: Array,
        V: Array,
        sample_weights: Array | None = None,
        single: bool = False,
    ) -> list[float]:
        """Σ s·φ(|e|) for each loss; losses that differ only in their smoothing width share a pass.

        Parameters
        ----------
        losses : sequence of Loss
            The functions φ.
        U, V : arrays of shapes (m, r) and (n, r)
            The factors.
        sample_weights : array over the entries, optional
            The weights s; 1 by default.
        single : bool, default=False
            Compute residuals in float32, and losses too if they are declared to be stable in
            float32. Sums are always float64. Backends without ``float32_sweeps`` ignore it.
        """

    def products(self, x: Array, U: Array, V: Array) -> tuple[Array, Array]:
        """XV and XᵀU for the sparse matrix X with entries x."""

    def sums(self, x: Array) -> tuple[Array, Array]:
        """Row sums and column sums of the entries x, in float64."""

    def curvatures(self, U: Array, V: Array) -> tuple[Array, Array]:
        """Upper bounds of squared spectral norms.

        The first array has, for each row, that of the rows of V which it observes; the second, for
        each column, that of the rows of U which it observes.
        """

    def half_step(
        self,
        loss: Loss,
        reg: float | Array | Ridge,
        U: Array,
        V: Array,
        sample_weights: Array | None = None,
        shifts: Array | None = None,
        clip: tuple[float, float] = (-np.inf, np.inf),
        curvature: float = np.inf,
        single: bool = False,
        nonnegative: bool = False,
    ) -> None:
        """Update every row of U in place with V fixed: min Σ s·w(e)·e² + reg‖U‖².

        The weights w are those of the loss at the current residuals. Rows whose solution is not
        finite keep their values.

        Parameters
        ----------
        loss : Loss
            Its ``weight`` gives w. If its formula cannot be compiled, the weights are computed in
            a pass of their own, and ``curvature`` is ignored.
        reg : float, array of shape (m,), or Ridge
            The ridge parameter: one for all rows, one per row, or one per factor of each row.
        U, V : arrays of shapes (m, r) and (n, r)
            The factors.
        sample_weights : array over the entries, optional
            The weights s; 1 by default.
        shifts : array of shape (n,), optional
            A term of the prediction for each column: e = M − shift − UVᵀ.
        clip : pair of float, default=(-inf, inf)
            Values are clipped to this range first.
        curvature : float, default=inf
            If finite, and the loss is smoothed: take a longer step, towards Newton's, in rows where
            more than ``curvature * r`` entries with s > 0 lie within the smoothing width. The step
            may increase the objective.
        single : bool, default=False
            Compute in float32. Backends without ``float32_sweeps`` ignore it.
        nonnegative : bool, default=False
            Constrain U, which must be non-negative already, to be non-negative. The quadratic
            function above does not rise; it is lowered from the present U, not always to its
            minimum.
        """

    def explained_shares(self, U: Array, V: Array, theta: float) -> Array:
        """For each row the share of its entries that UVᵀ explains: the mean Welsch weight at θ."""

    def repair_rows(
        self,
        U: Array,
        V: Array,
        ridge: float,
        theta: float,
        rows: Array,
        n_subsets: Array,
        seed: int,
    ) -> Array:
        """Refit rows of U in place from random subsets of their entries.

        Parameters
        ----------
        U, V : arrays of shapes (m, r) and (n, r)
            The factors.
        ridge : float
            The ridge parameter of the rows.
        theta : float
            The scale of the Welsch loss that compares the candidates.
        rows : array of int
            The rows to refit.
        n_subsets : array of int
            For each of these rows, how many subsets to try.
        seed : int
            Seed of the random subsets.

        Returns
        -------
        array of bool
            Which of the rows were improved and changed.
        """

    def dual_pass(self, rank: int) -> DualPass:
        """Buffers for repeated steps on the dual of the MM surrogate at this rank."""

    def linearised_loss(
        self, e: Array, w: Array, U: Array, V: Array, dU: Array, dV: Array, x: Array
    ) -> tuple[float, float]:
        """Σ w|ρ| and Σ (w|ρ| − xρ), where ρ = e − dU Vᵀ − U dVᵀ at the entries."""


class DualPass(Protocol):
    """One accelerated gradient step on the dual as a pass over the entries."""

    def step(
        self,
        e: Array,
        w: Array,
        curvatures: tuple[Array, Array],
        momentum: float,
        scale: float,
        factors: tuple[Array, Array],
        increments: tuple[Array, Array],
        x: Array,
        x_before: Array,
        x_new: Array,
        products: tuple[Array, Array],
    ) -> tuple[float, float, float]:
        """Write x_new = clip(z + ρ(z)/c), where z = x + momentum·(x − x_before), and its products.

        c is ``scale`` times the sum of the curvatures of the entry's row and column. Returns
        Σ c(x_new − z)², ⟨x_new, e⟩ and Σ c(z − x_new)(x_new − x). If the last one is positive,
        momentum should restart.
        """

    def quadratics(
        self, side: int, inverse: Array, pull: Array, products: Array, products_at_z: Array
    ) -> tuple[float, float]:
        """½ Σ ‖products − pull‖²·inverse and Σ ‖products − products_at_z‖²·inverse.

        The sums are over the rows (side 0) or the columns (side 1).
        """

    def extrapolate(
        self,
        side: int,
        inverse: Array,
        pull: Array,
        products: Array,
        products_before: Array,
        momentum: float,
        at_z: Array,
        increments: Array,
    ) -> None:
        """Write products and increments at z = x + momentum·(x − x_before)."""


@dataclass(frozen=True)
class Measurement:
    """Sums over all entries at one point.

    Attributes
    ----------
    loss_sums : sequence of float
        Σ s·φ(|e|) for each of the requested losses φ, with the entry weights s.
    weight : float
        Σ s, the number of entries where there are no entry weights.
    n_weighted : int
        The number of entries with a positive weight.
    penalty : float
        Σ λ/2‖·‖² over all rows and columns.
    """

    loss_sums: Sequence[float]
    weight: float
    n_weighted: int
    penalty: float


class Sweeps(Protocol):
    """Sweeps of alternating weighted least squares, for solvers that require nothing else.

    An implementation holds the entries, their weights, λ and the bias model. It knows where factors
    are stored; the solver decides what to do with them.
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the entries."""

    @property
    def n_entries(self) -> int:
        """The number of entries."""

    @property
    def supports_single(self) -> bool:
        """Whether passes over float64 entries can be computed in float32."""

    def entries_size(self) -> tuple[float, float, int]:
        """Σ of the squared values, Σ of the weights, and the number of positive weights."""

    def place(self, U: Any, V: Any) -> Point:
        """The initial factors, in the representation of this backend."""

    def predictors(self, point: Point) -> Point:
        """Factors whose product is the prediction, biases included."""

    def sweep(
        self,
        point: Point,
        previous: Point,
        extrapolation: float,
        loss: Loss,
        losses: Sequence[Loss],
        *,
        curvature: float,
        single: bool,
    ) -> tuple[Point, Measurement]:
        """Solve for all rows, then for all columns, each side with the other held fixed.

        Parameters
        ----------
        point, previous : Point
            The current and the previous iterate. The sweep starts at
            ``point + extrapolation·(point − previous)``; neither is changed.
        loss : Loss
            Its weights at the residuals define the least-squares problems.
        losses : sequence of Loss
            The losses to sum at the new point.
        curvature : float
            See :meth:`EntryOperations.half_step`.
        single : bool
            Compute in float32.

        Returns
        -------
        (Point, Measurement)
            The new iterate, and what is measured there.
        """

    def measure(self, point: Point, losses: Sequence[Loss], *, single: bool) -> Measurement:
        """Sums of losses and penalties at a point."""


@dataclass(frozen=True)
class ProblemSize:
    """The numbers that memory depends on.

    Attributes
    ----------
    shape : pair of int
        Rows and columns.
    n_entries : int
        Observed entries.
    rank : int
        Factors, one for a bias included.
    itemsize : int
        Bytes of a value: 4 or 8.
    """

    shape: tuple[int, int]
    n_entries: int
    rank: int
    itemsize: int


@dataclass(frozen=True)
class SolverMemory:
    """What a solver keeps in memory beside the entries and the factors.

    Attributes
    ----------
    entry_arrays : int, default=0
        Arrays over the entries, in their dtype.
    float64_entry_arrays : int, default=0
        Arrays over the entries in float64, such as those in which a loss is evaluated.
    factor_arrays : int, default=0
        Arrays of the size of both factors.
    dual_pass : bool, default=False
        Whether it takes steps on the dual (:meth:`EntryOperations.dual_pass`).
    other_bytes : callable of a ProblemSize, optional
        Bytes of anything else.
    """

    entry_arrays: int = 0
    float64_entry_arrays: int = 0
    factor_arrays: int = 0
    dual_pass: bool = False
    other_bytes: Callable[[ProblemSize], int] | None = None


@dataclass(frozen=True)
class FitPlan:
    """What a fit will do, as far as its memory depends on it.

    Attributes
    ----------
    solver : SolverMemory
        The declaration of the solver.
    scale_sample : int, default=0
        The number of entries on which scales are estimated, at most.
    graduated : bool, default=False
        Whether graduated non-convexity is possible, which repairs rows: with ``init="auto"``.
    searched : ProblemSize or None, default=None
        The part of the matrix on which initial factors are searched.
    held_out : bool, default=False
        Whether entries are held out.
    bias : bool, default=False
        Whether the model has biases.
    source_bytes : int, default=0
        Bytes per entry of what the entries are made from and that is released before the fit.
    """

    solver: SolverMemory
    scale_sample: int = 0
    graduated: bool = False
    searched: ProblemSize | None = None
    held_out: bool = False
    bias: bool = False
    source_bytes: int = 0


class Backend(Protocol):
    """Where a fit is computed."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def check_available(self) -> None:
        """Raise an ImportError or DeviceError, in one line, if this machine cannot run it."""


class LocalBackend(Backend, Protocol):
    """A backend that holds all entries in one memory and offers operations on them.

    Its ``capabilities.entry_operations`` is true. The Dask backend is not one: its entries are
    distributed, and it offers :class:`Sweeps` only.
    """

    def observe(self, X: Any) -> Observed:
        """The entries of what ``fit`` accepts, in the memory of this backend."""

    def operations(
        self, observed: Observed, team: Team, rank: int, solver: SolverMemory
    ) -> EntryOperations:
        """Operations on the entries that :meth:`observe` returned.

        Raises ValueError if ``rank``, one factor for a bias included, exceeds the maximum, and
        MemoryError if a fit by a solver with this declaration will not fit into memory.
        """

    def fit_bytes(self, size: ProblemSize, plan: FitPlan) -> int:
        """Bytes at the peak of a fit, in the memory of this backend."""
