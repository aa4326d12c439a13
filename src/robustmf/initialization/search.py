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
    max_entries, max_work : int, float
        Entries, and entries × rank², up to which factors are searched by variational inference,
        which takes some seconds at this size.
    """

    max_entries: int = 250_000
    max_work: float = 6e7


OPTIONS = SearchOptions()


def is_searchable(n_entries: int, rank: int) -> bool:
    """Whether data of this size are searched by variational inference."""
    return n_entries <= OPTIONS.max_entries and n_entries * rank**2 <= OPTIONS.max_work


def searched_factors(
    operations: EntryOperations, rank: int | None, rng: np.random.Generator
) -> Candidate | None:
    """At most ``rank`` factors, as many as the data support.

    None where there are none, and for data that are too large.
    """
    if not is_searchable(operations.observed.n_entries, rank or 1):
        return None
    host = operations.host()
    found = search_factors(host.observed, rank, host.team, rng)
    if found is None:
        return None
    U, V = (operations.array(A.astype(host.observed.dtype)) for A in (found.U, found.V))
    return Candidate(U, V, found.sigma, found.noise, found.ridge, found.log_density)


def sampled_rank(operations: EntryOperations, rng: np.random.Generator) -> int:
    """The number of factors that a sample of the rows shows, at least 1."""
    host = operations.host()
    observed = host.observed
    every = int(np.ceil(observed.n_entries / OPTIONS.max_entries))
    if every == 1:
        return 1  # the search of all entries found nothing
    kept = np.arange(observed.shape[0]) % every == 0
    sample = observed.select(np.repeat(kept, observed.rows.counts))
    found = search_factors(sample, None, host.team, rng)
    return 1 if found is None else found.U.shape[1]
