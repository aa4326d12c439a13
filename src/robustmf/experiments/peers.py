"""Peers from the package registry, where installed, behind the interface of the baselines."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from robustmf.observed import Observed
from robustmf.solvers.loop import Callback

Array = NDArray[np.floating[Any]]


class NotInstalledError(ImportError):
    """The peer is not on this machine."""


class _Peer:
    """A peer is a ``_factors`` that fits; it shows no iterates."""

    package = ""

    def __init__(
        self, rank: int, *, reg: float, random_state: int, n_jobs: int, callbacks: Sequence[Callback] = (), max_iter: int = 200
    ) -> None:
        self.rank, self.reg, self.random_state, self.n_jobs, self.max_iter = rank, reg, random_state, n_jobs, max_iter

    def fit(self, observed: Observed) -> Self:
        """Fit, or say that the package is not there."""
        if importlib.util.find_spec(self.package) is None:
            raise NotInstalledError(f"the package {self.package} is not installed (pip install 'robustmf[bench]')")
        self.row_factors_, self.column_factors_ = self._factors(observed)
        self.n_iter_, self.stop_reason_ = self.max_iter, f"{self.max_iter} sweeps made"
        return self

    def _factors(self, observed: Observed) -> tuple[Array, Array]:
        raise NotImplementedError

    def predict(self, rows: Any, cols: Any) -> Array:
        """Predicted values, pair by pair."""
        return np.asarray(np.einsum("tq,tq->t", self.row_factors_[rows], self.column_factors_[cols]))


class LIBMF(_Peer):
    """LIBMF's stochastic gradient with the l1 loss. It takes no seed."""

    package = "libmf"

    def _factors(self, observed: Observed) -> tuple[Array, Array]:
        with contextlib.redirect_stdout(io.StringIO()):
            from libmf import mf  # noqa: PLC0415 - an optional competitor, which prints when imported

        rows = observed.rows
        triplets = np.column_stack([rows.group_of_entry(), rows.indices, rows.values])
        # lambda_.1 are l1 penalties, lambda_.2 ridges
        engine = mf.MF(
            fun=mf.P_L1_MFR, k=self.rank, nr_iters=self.max_iter, eta=0.1, nr_threads=self.n_jobs, nr_bins=20, quiet=True,
            lambda_p1=0.0, lambda_q1=0.0, lambda_p2=self.reg, lambda_q2=self.reg,
        )  # fmt: skip
        engine.fit(triplets)
        # rows and columns beyond the last entry have no factors there
        return tuple(_padded(np.asarray(A), size) for A, size in zip((engine.p_factors(), engine.q_factors()), observed.shape, strict=True))  # type: ignore[return-value]


class CMFREC(_Peer):
    """cmfrec's exact alternating least squares."""

    package = "cmfrec"

    def _factors(self, observed: Observed) -> tuple[Array, Array]:
        from cmfrec import CMF  # noqa: PLC0415 - an optional competitor

        model = CMF(
            k=self.rank, lambda_=self.reg, niter=self.max_iter, use_cg=False, user_bias=False, item_bias=False, center=False,
            nthreads=self.n_jobs, verbose=False, use_float=False, random_state=self.random_state,
        )  # fmt: skip
        model.fit(observed.to_sparse().tocoo())
        return np.asarray(model.A_), np.asarray(model.B_)


def _padded(A: Array, size: int) -> Array:
    return np.vstack([A, np.zeros((size - len(A), A.shape[1]), A.dtype)])
