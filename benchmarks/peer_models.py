"""Other packages (extra ``bench``) behind the interface of the baselines."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.solvers.base import Callback

Array = NDArray[np.floating[Any]]


class NotInstalledError(ImportError):
    """A package that a benchmark compares with is not installed."""


class _Peer:
    """An estimator whose subclasses give the factors; callbacks receive no iterates."""

    package = ""
    #: Sweeps where ``max_iter`` is not given.
    sweeps = 200

    def __init__(
        self,
        rank: int,
        *,
        reg: float,
        random_state: int,
        n_jobs: int,
        callbacks: Sequence[Callback] = (),
        max_iter: int | None = None,
    ) -> None:
        self.rank = rank
        self.reg = reg
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.max_iter = max_iter or self.sweeps

    def fit(self, observed: Observed) -> Self:
        """Fit, or raise NotInstalledError."""
        if importlib.util.find_spec(self.package) is None:
            raise NotInstalledError(
                f"the package {self.package} is not installed (pip install 'robustmf[bench]')"
            )
        # factors of rows and columns without entries are NaN
        U, V = self._factors(observed)
        self.row_factors_ = np.nan_to_num(U)
        self.column_factors_ = np.nan_to_num(V)
        self.n_iter_ = self.max_iter
        self.stop_reason_ = f"max_iter={self.max_iter} reached"
        return self

    def _factors(self, observed: Observed) -> tuple[Array, Array]:
        raise NotImplementedError

    def predict(self, rows: Any, columns: Any) -> Array:
        """Predicted values, pair by pair."""
        left = self.row_factors_[rows]
        right = self.column_factors_[columns]
        return np.asarray(np.einsum("tq,tq->t", left, right))


class LIBMF(_Peer):
    """LIBMF's stochastic gradient with the l1 loss. It accepts no seed."""

    package = "libmf"

    def _factors(self, observed: Observed) -> tuple[Array, Array]:
        P, Q = libmf_factors(
            triplets(observed), self.rank, self.max_iter, 0.1, self.reg, self.n_jobs
        )
        # LIBMF gives no factors to rows and columns after the last entry
        return _padded(P, observed.shape[0]), _padded(Q, observed.shape[1])


class CMFREC(_Peer):
    """cmfrec's exact alternating least squares."""

    package = "cmfrec"
    sweeps = 60

    def _factors(self, observed: Observed) -> tuple[Array, Array]:
        return cmfrec_factors(
            sp.coo_matrix(observed.to_sparse()), self.rank, self.max_iter, self.reg, self.n_jobs
        )


def triplets(observed: Observed) -> Array:
    """Row, column and value of each entry, in the layout of LIBMF."""
    rows = observed.rows
    return np.column_stack([rows.group_of_entry(), rows.indices, rows.values]).astype(np.float32)


def libmf_factors(
    data: Array, rank: int, iterations: int, eta: float, ridge: float, threads: int
) -> tuple[Array, Array]:
    """LIBMF's factors, without those of the last rows and columns that have no entry."""
    with contextlib.redirect_stdout(io.StringIO()):
        from libmf import mf  # noqa: PLC0415 - an extra, which prints when imported

    # lambda_.1 are l1 penalties, lambda_.2 ridges
    engine = mf.MF(
        fun=mf.P_L1_MFR,
        k=rank,
        nr_iters=iterations,
        eta=eta,
        nr_threads=threads,
        nr_bins=20,
        quiet=True,
        lambda_p1=0.0,
        lambda_q1=0.0,
        lambda_p2=ridge,
        lambda_q2=ridge,
    )
    engine.fit(data)
    return np.asarray(engine.p_factors()), np.asarray(engine.q_factors())


def cmfrec_factors(
    X: sp.coo_matrix, rank: int, iterations: int, ridge: float, threads: int
) -> tuple[Array, Array]:
    """Factors of cmfrec's exact alternating least squares."""
    from cmfrec import CMF  # noqa: PLC0415 - an extra

    model = CMF(
        k=rank,
        lambda_=ridge,
        method="als",
        use_cg=False,
        user_bias=False,
        item_bias=False,
        center=False,
        niter=iterations,
        nthreads=threads,
        verbose=False,
        precompute_for_predictions=False,
        random_state=1,
    )
    model.fit(X)
    return np.asarray(model.A_), np.asarray(model.B_)


def _padded(A: Array, size: int) -> Array:
    return np.vstack([A, np.zeros((size - len(A), A.shape[1]), A.dtype)])
