"""How good a fit is whose start was looked for on a share of the rows, against a start on all of them: the table of docs/design/dask.md.

No cluster is needed: the functions that workers run (``sample_rows``, ``start_on``, ``folded``) are called here, and then the sweeps of
one machine. Run as ``python benchmarks/cluster_start.py [seeds]``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from robustmf import Observed, RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.fold import folded
from robustmf.backends.dask.start import sample_rows, seeded, start_on
from robustmf.data.observed import Compressed
from robustmf.datasets import load_movielens, make_synthetic
from robustmf.fitting import Fit, _iterated
from robustmf.initialization.prepare import Prepared
from robustmf.io.checkpoint import Progress
from robustmf.kernels.team import Team
from robustmf.validation import as_generator

SHARES = (1.0, 0.9, 0.8, 0.5)
BLOCKS = 4


def blocks_of(observed: Observed) -> Iterator[Block]:
    """Neighbouring rows, so that numbers over all blocks are those of the rows."""
    bounds = np.linspace(0, observed.shape[0], BLOCKS + 1).astype(int)
    for low, high in pairwise(bounds):
        rows = observed.later_rows(int(low)).rows
        end = rows.pointers[high - low]
        part = Compressed(rows.pointers[: high - low + 1], rows.indices[:end], rows.values[:end])
        yield Block(
            Observed(part, (int(high - low), observed.shape[1])),
            None,
            int(low),
            np.arange(observed.shape[1]),
            None,
        )


def fitted(train: Observed, share: float, seed: int, **settings: Any) -> Fit:
    """A fit whose start was looked for on this share of the entries, in whole rows; the rest folded in."""
    model = RobustMF(solver="irls", random_state=seed, n_jobs=1, **settings)
    wanted = model._settings(train, ())
    rng = as_generator(seed).spawn(1)[0].spawn(1)[0]
    sides = [list(blocks_of(one)) for one in (train, train.transposed)]
    samples = [sample_rows(block, share) for block in sides[0]]
    names = [[(np.arange(size), np.arange(size))] for size in train.shape]
    started = start_on(samples, names, train.n_entries, wanted, rng)
    known = [
        [seeded(started, side, block.first, block.observed.shape[0]) for block in of]
        for side, of in enumerate(sides)
    ]
    for side in (0, 1):
        known[side] = [
            folded(block, own, known[1 - side], started.basis, wanted.reg_by_count)
            for block, own in zip(sides[side], known[side], strict=True)
        ]
    basis = started.basis
    if basis.center is None:
        (U, V), (b, c) = (
            map(np.concatenate, known),
            (np.zeros((size, 1), train.dtype) for size in train.shape),
        )
    else:
        (U, b), (V, c) = (
            (A[:, :-1].copy(), A[:, -1:] * basis.bias_unit) for A in map(np.concatenate, known)
        )
    prepared = Prepared(
        U, V, basis.sigma, basis.center, b, c, basis.reg, basis.bias_unit, "irls", ""
    )
    with Team(1) as team:
        return _iterated(wanted, prepared, CPUOperations(train, team), None, None, Progress())


def synthetic(m: int, outliers: float, seed: int) -> list[float]:
    """RMSE against the clean matrix: by default, then with the start on each share."""
    data = make_synthetic(m, outliers=outliers, random_state=seed)
    alone = RobustMF(5, random_state=seed, n_jobs=1).fit(data.train)
    errors = [data.test_rmse(alone.row_factors_, alone.column_factors_)]
    for share in SHARES:
        found = fitted(data.train, share, seed, rank=5)
        errors.append(data.test_rmse(*found.predictors()))
    return errors


def movielens(rank: int, seed: int) -> list[float]:
    """RMSE on a tenth of the ratings that the fit has not seen, in rows and columns that it has: by default, then with each share."""
    ratings = load_movielens("latest-small").ratings
    rng = np.random.default_rng(seed)
    aside = rng.random(ratings.n_entries) < 0.1
    train = ratings.select(~aside)
    i, j, values = (
        ratings.rows.group_of_entry()[aside],
        ratings.rows.indices[aside],
        ratings.rows.values[aside],
    )
    known = np.bincount(train.rows.indices, minlength=train.shape[1])[j] > 0
    i, j, values = i[known], j[known], values[known]
    alone = RobustMF(rank, random_state=seed, n_jobs=1).fit(train)
    predicted = [alone._model().predict_pairs(i, j)]
    for share in SHARES:
        left, right = fitted(train, share, seed, rank=rank).predictors()
        predicted.append(np.einsum("tq,tq->t", left[i], right[j]))
    return [float(np.sqrt(np.mean(np.square(values - one)))) for one in predicted]


def main(seeds: int) -> None:
    """Mean, and in brackets the largest over the seeds."""
    warnings.simplefilter("ignore")
    print(
        "| data | one machine | " + " | ".join(f"start on {share:.0%}" for share in SHARES) + " |"
    )
    problems = [
        (f"synthetic {m}, {outliers:.0%} outliers", synthetic, (m, outliers))
        for m in (500, 1000)
        for outliers in (0.05, 0.1, 0.2)
    ]
    for name, measure, arguments in [
        *problems,
        *((f"MovieLens small, rank {rank}", movielens, (rank,)) for rank in (5, 10)),
    ]:
        errors = np.array([measure(*arguments, seed) for seed in range(seeds)])
        print(
            f"| {name} | "
            + " | ".join(f"{np.mean(e):.4f} ({np.max(e):.4f})" for e in errors.T)
            + " |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
