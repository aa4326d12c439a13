"""How a model learns: ``fit`` and ``partial_fit``, here or on a cluster, and what a fit leaves behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.data.accumulate import accumulate
from robustmf.data.factorization import Factorization
from robustmf.data.observed import Observed
from robustmf.fitting import Fit, fit
from robustmf.io.checkpoint import Checkpoint, as_checkpoint
from robustmf.kernels.team import Team
from robustmf.publishing import Published
from robustmf.solvers.base import Callback
from robustmf.solvers.fold_in import extend
from robustmf.solvers.settings import Init, Settings
from robustmf.validation import (
    entry_weights,
    generator,
    require_here,
    require_integer,
    require_magnitude,
    warn_of_empty,
)

Array = NDArray[np.floating[Any]]

#: Statistics of the values are taken over at most about this many of them.
_SAMPLE = 1_000_000

#: partial_fit starts anew when the entries have grown by this factor since the last start.
_GROWTH = 2


class Learner(Published):
    """The methods that fit; a subclass has the parameters, says what they mean and refuses bad ones."""

    rank: int
    bias: bool | Literal["auto"]
    init: Init
    n_init: int
    certify: bool
    max_iter: int
    validation_fraction: float | None
    random_state: int | np.random.Generator | None
    verbose: int

    def _settings(self, observed: Observed, shown: Sequence[Callback]) -> Settings:
        """What to fit and how; ``shown`` are callbacks beside the user's own."""
        raise NotImplementedError

    def _check_settings(self) -> None:
        """Refuse, by name, what can be seen to be wrong without data."""
        raise NotImplementedError

    def _check_parameters(self, observed: Observed) -> None:
        """The same with what depends on the data."""
        raise NotImplementedError

    def fit(
        self,
        X: Any,
        y: None = None,
        weights: ArrayLike | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: str | os.PathLike[str] | None = None,
        client: Any = None,
    ) -> Self:
        """Factorize X: sparse (every stored entry is observed, zeros too), dense (NaN is missing), or :class:`Observed`.

        ``weights`` multiply each entry's loss: one number ≥ 0 an observed entry, in row order, or an m × n array. (They weigh entries; what
        scikit-learn calls sample_weight weighs rows.)

        Parameters
        ----------
        checkpoint : path, optional
            A file to write the state of the fit to. If it exists, and is of the same fit (data, parameters, seed, release), the fit goes
            on from it, and ends with the same bits as one that was never disturbed. At the end it holds the result: fitted again,
            the model is there at once. ``n_jobs``, ``verbose`` and ``callbacks`` may change; callbacks hear of new iterations only.
        checkpoint_every : float
            Seconds between two writings; 0 writes after each iteration. The start is written as soon as it is found.
        resume : path, optional
            As ``checkpoint``, but the file must exist.
        client : dask.distributed.Client, optional
            Fit on this cluster (extra ``dask``). X is then a Dask DataFrame of triplets, a Parquet file or a folder of them, a list of
            tables, or :class:`robustmf.backends.dask.Triplets`, which names the columns; weights are a column. The checkpoint is a folder.

        Raises
        ------
        CheckpointError
            The file is damaged, of another version, or of another fit. It is left as it is.
        CheckpointWriteError
            The file cannot be written; the last one that could is intact.
        """
        kept = as_checkpoint(
            checkpoint, checkpoint_every, resume, self.random_state is not None, self.device
        )
        if client is not None:
            return self._fit_on_cluster(X, weights, client, kept)
        require_here(X)
        observed = self._entries_of(X, reset=True)
        return self._fit(
            observed, None if weights is None else entry_weights(weights, observed), checkpoint=kept
        )

    def partial_fit(self, X: Any, y: None = None, weights: ArrayLike | None = None) -> Self:
        """Go on with more entries: rows that arrive over time, and with ids also columns, and more entries of rows that are known.

        Without ids all rows of X are new ones. With ids (:meth:`Observed.from_triplets`, as in the first call) rows and columns are
        found by their ids, new ones are appended, and a new value replaces an old one.

        New rows and columns are folded in, and all entries so far are iterated on from there, which takes a few sweeps; a whole fit from a
        new start is made whenever the entries have doubled since the last one, so all the starts together cost at most twice
        the last. The entries are kept in the model, 8 (float32) or 12 bytes each. ``validation_fraction`` is for whole fits only.
        """
        if not hasattr(self, "row_factors_"):
            return self.fit(X, weights=weights)
        if "pointers" not in self.entries_:
            raise ValueError(
                "partial_fit needs the entries of the fit, and they stayed on the cluster; "
                "fit old and new ones together with client=, or have new rows folded in with transform"
            )
        new = self._entries_of(X, reset=False).to_host()
        new_weights = None if weights is None else entry_weights(weights, new)
        observed, all_weights = accumulate(
            self._fitted_entries(), self.entries_["weights"], new, new_weights
        )
        grown = observed.n_entries >= _GROWTH * self._started_with
        same_model = self.rank == len(self.components_) and self.bias in ("auto", self._has_bias)
        return self._fit(
            self._placed(observed),
            all_weights,
            self._warm() if same_model and not grown else None,
            more=True,
        )

    def _fit(
        self,
        observed: Observed,
        weights: Array | None,
        warm: Factorization | None = None,
        more: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> Self:
        self._check_parameters(observed)
        require_magnitude(observed)
        # a stream of its own: with the stream that drew the data, a Gaussian start would be the truth
        rng = generator(self.random_state).spawn(1)[0]
        with Team(self.n_jobs) as team, self._progress() as shown:
            operations = self._operations(observed, team, int(self.rank) + int(self.bias is True))
            settings, on_entries = (
                self._settings(observed, shown),
                None if weights is None else operations.array(weights),
            )
            if warm is not None:
                known = extend(operations, on_entries, self._columns(), warm)
                settings = replace(
                    settings, init=known, bias=self._has_bias, n_init=1, validation_fraction=None
                )
                if settings.auto_reg:
                    settings = replace(
                        settings, reg=self.reg_, auto_reg=False, bias_unit=self.bias_unit_
                    )
            elif more and not isinstance(self.init, str):
                settings = replace(settings, init="auto")  # what was given is for the first entries
            found = fit(settings, operations, on_entries, rng, checkpoint)
        if warm is None:
            self._started_with = observed.n_entries
        self._take(found, observed, weights)
        warn_of_empty(observed, found.bias)
        if self.verbose:
            print(
                f"{type(self).__name__}: solver {self.solver_} ({self.solver_reason_}); {self.stop_reason_}",
                file=sys.stderr,
            )
        return self

    def _fit_on_cluster(
        self, X: Any, weights: Any, client: Any, checkpoint: Checkpoint | None
    ) -> Self:
        from robustmf.backends import dask as cluster  # noqa: PLC0415 - Dask is an extra, imported only when a fit asks for it

        cluster.require_dask()
        from robustmf.backends.dask import fitting, source  # noqa: PLC0415 - as above

        if weights is not None:
            raise ValueError(
                "weights must be a column of the data with client=: give X as robustmf.backends.dask.Triplets(data, weight=name)"
            )
        fitting.require_cluster(self.solver, self.n_init, self.certify, self.device)
        require_integer("rank", self.rank, 1)
        self._check_settings()  # before the data are read
        triplets, rng = source.as_triplets(X), generator(self.random_state).spawn(1)[0]
        job = fitting.Job(client, triplets, checkpoint, self.validation_fraction, rng)
        matrix: Any = job.matrix  # has the shape, which is all that is asked of it
        self._check_parameters(matrix)
        with self._progress() as shown:
            found, seen = job.fit(self._settings(matrix, shown))
        self._started_with = seen.n_entries
        self._take(found, seen, None)
        return self

    def _take(self, found: Fit, observed: Any, weights: Array | None) -> None:
        """Set the attributes of a fit."""
        self.row_factors_, self.column_factors_ = np.asarray(found.U), np.asarray(found.V)
        self.components_ = self.column_factors_.T
        self._has_bias = found.bias
        self.center_, self.row_bias_, self.column_bias_ = (
            found.center,
            np.asarray(found.row_bias),
            np.asarray(found.column_bias),
        )
        self.bias_unit_ = found.bias_unit
        self.loss_, self.theta_, self.reg_ = found.loss, found.loss.theta, found.reg
        self.solver_, self.solver_reason_ = found.solver, found.reason
        self.history_, self.n_iter_ = found.outcome.history, found.outcome.iterations
        self.converged_, self.stop_reason_ = found.outcome.converged, found.outcome.reason
        self.best_iteration_ = (
            self.n_iter_ if found.outcome.best is None else found.outcome.best_iteration
        )
        self.criticality_ = found.criticality
        self.row_ids_, self.column_ids_ = observed.row_ids, observed.column_ids
        self.n_features_in_ = observed.shape[1]
        self.entries_ = observed.to_keep(weights)
        some = observed.rows.values[:: max(1, observed.n_entries // _SAMPLE)]
        self.median_, self.scale_ = float(np.median(some)), float(np.median(np.abs(some)))

    def _entries_of(self, X: Any, *, reset: bool) -> Observed:
        """X as entries to fit, its columns checked against those known (``reset``: remembered as those to know)."""
        observed = self._placed(X)
        self._check_columns(X, observed, reset=reset)
        return observed

    def _warm(self) -> Factorization:
        return Factorization(
            self.row_factors_,
            self.column_factors_,
            self.center_ if self._has_bias else None,
            self.row_bias_,
            self.column_bias_,
        )

    def fit_transform(self, X: Any, y: None = None, weights: ArrayLike | None = None) -> Array:
        """Fit, and return the factors of the rows as fitted (with biases, the row's bias as the last column)."""
        self.fit(X, weights=weights)
        return (
            np.hstack([self.row_factors_, self.row_bias_[:, None]])
            if self._has_bias
            else self.row_factors_
        )

    @contextmanager
    def _progress(self) -> Iterator[Sequence[Callback]]:
        if not self.verbose:
            yield ()
            return
        from robustmf.solvers.progress import ProgressBar  # noqa: PLC0415 - rich is imported only when something is shown

        with ProgressBar(f"{type(self).__name__} rank {self.rank}", self.max_iter) as bar:
            yield (bar,)
