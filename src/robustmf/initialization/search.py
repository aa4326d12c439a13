"""The search for initial factors, and for the rank where it is not given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.variational import search_factors

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SearchOptions:
    """Constants of the search.

    Attributes
    ----------
    max_work : float
        Entries × rank² up to which factors are searched by variational inference, which takes a
        few seconds at this size.
    typical_rank : int
        The rank that is assumed in this product where it is not given.
    """

    max_work: float = 1.6e7
    typical_rank: int = 8


OPTIONS = SearchOptions()


def searched_factors(
    operations: EntryOperations, rank: int, rng: np.random.Generator
) -> Candidate | None:
    """At most ``rank`` factors, as many as the data support; None for large data."""
    if operations.observed.n_entries * rank**2 > OPTIONS.max_work:
        return None
    return _on_host(operations, rank, rng)


def find_rank(
    operations: EntryOperations, rng: np.random.Generator
) -> tuple[int, Candidate | None]:
    """The number of factors that the data show, at least 1, and these factors.

    Of large data a sample of the rows is searched, and no factors are returned.
    """
    observed = operations.observed.to_host()
    every = int(np.ceil(observed.n_entries * OPTIONS.typical_rank**2 / OPTIONS.max_work))
    if every == 1:
        found = _on_host(operations, None, rng)
        return found.U.shape[1], found
    kept = np.arange(observed.shape[0]) % every == 0
    sample = observed.select(np.repeat(kept, observed.rows.counts))
    return _on_host(operations.host().on(sample), None, rng).U.shape[1], None


def _on_host(operations: EntryOperations, rank: int | None, rng: np.random.Generator) -> Candidate:
    host = operations.host()
    found = search_factors(host.observed, rank, host.team, rng)
    factors = [found.U, found.V]
    if found.U.shape[1] == 0:
        factors = [np.zeros((len(A), 1)) for A in factors]
    U, V = (operations.array(A.astype(host.observed.dtype)) for A in factors)
    return Candidate(U, V, found.sigma, found.noise)
