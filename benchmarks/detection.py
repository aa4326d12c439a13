"""Attacks injected into MovieLens latest-small: how well entries, users and items are found.

Entry AUC is the probability that an attacked rating is ranked above a genuine one; precision is the
share of attackers among the k most suspicious users (attacked items among the k most suspicious
items), k being their number. RobustMF is compared with least squares and principal components.
Needs ``ml-latest-small`` in the data folder (environment variable ROBUSTMF_DATA).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import announce, grouped, markdown
from benchmarks.problems import predicted_at, prediction_factors
from robustmf.data.observed import Observed
from robustmf.datasets import (
    Attacked,
    average_attack,
    bandwagon_attack,
    load_movielens,
    love_hate,
    random_attack,
    segment_attack,
)
from robustmf.estimator import RobustMF
from robustmf.metrics import detection_auc, precision_at_k

SMALL = {"seeds": 1}

Array = NDArray[np.float64]

RANK = 5
RIDGE = 5.0

#: Items attacked, each with 5 to 49 ratings.
TARGETS = 10

#: Components that PCA-VarSelect uses, as in its paper.
_COMPONENTS = 3

#: Attacks that inject profiles aimed at the target items.
_INJECTED: dict[str, Callable[..., Attacked]] = {
    "random, push": random_attack,
    "random, nuke": partial(random_attack, direction="nuke"),
    "average, push": average_attack,
    "average, push, 1 % filler": partial(average_attack, filler_size=0.01),
    "bandwagon, push": bandwagon_attack,
}

ATTACKS = ("love/hate, per item", "love/hate, per rating", *_INJECTED, "segment, push")


@dataclass(frozen=True)
class Suspicion:
    """Scores of entries (in row order), rows and columns; larger is more suspicious."""

    entries: Array
    rows: Array
    columns: Array


def run(seeds: int = 3, first_seed: int = 100, data: Path | None = None) -> list[dict[str, Any]]:
    """One record per attack, seed and method."""
    ratings = load_movielens("latest-small", data, download=False).ratings
    records = []
    for attack in ATTACKS:
        for seed in range(first_seed, first_seed + seeds):
            announce(f"{attack}, seed {seed}")
            under_attack = attacked(ratings, attack, seed)
            for method, found in suspicions(under_attack.ratings, seed).items():
                figures = measure(under_attack, found)
                records.append({"attack": attack, "seed": seed, "method": method, **figures})
    return records


def attacked(ratings: Observed, attack: str, seed: int) -> Attacked:
    """The ratings under an attack; a segment is 20 of the 100 most rated items."""
    rng = np.random.default_rng([seed, 77])
    counts = ratings.columns.counts
    targets = rng.choice(np.flatnonzero((counts >= 5) & (counts < 50)), TARGETS, replace=False)
    segment = rng.choice(np.argsort(-counts, kind="stable")[:100], 20, replace=False)
    if attack.startswith("love/hate"):
        per: Any = attack.removeprefix("love/hate, per ")
        return love_hate(ratings, per=per, random_state=seed)
    if attack.startswith("segment"):
        return segment_attack(ratings, segment, targets, random_state=seed)
    return _INJECTED[attack](ratings, targets, random_state=seed)


def suspicions(ratings: Observed, seed: int) -> dict[str, Suspicion]:
    """Suspicion by every method."""
    settings: dict[str, Any] = {"bias": True, "reg": RIDGE, "random_state": seed, "n_jobs": 1}
    model = RobustMF(RANK, loss="welsch", **settings).fit(ratings)
    plain = RobustMF(RANK, loss="l2", **settings).fit(ratings)
    scores = model.outlier_scores(attacks=True), model.row_scores(), model.column_scores()
    return {
        "RobustMF, all evidence": Suspicion(*(-np.log(np.maximum(s, 1e-300)) for s in scores)),
        "RobustMF, residuals": _residuals(ratings, model),
        "l2 residuals": _residuals(ratings, plain),
        "PCA residuals": pca_residuals(ratings),
        "PCA-VarSelect": pca_varselect(ratings),
    }


def _residuals(ratings: Observed, model: RobustMF) -> Suspicion:
    predicted = predicted_at(ratings, prediction_factors(model))
    return _means(ratings, np.abs(ratings.rows.values - predicted))


def pca_residuals(ratings: Observed) -> Suspicion:
    """|Residual| of the leading principal components; missing ratings are the item's mean."""
    rows = ratings.rows
    i = rows.group_of_entry()
    j = rows.indices
    n = ratings.shape[1]
    mean = np.bincount(j, rows.values, n) / np.maximum(np.bincount(j, minlength=n), 1)
    centered = np.zeros(ratings.shape)
    centered[i, j] = rows.values - mean[j]
    U = _leading(centered, RANK)
    return _means(ratings, np.abs(centered - U @ (U.T @ centered))[i, j])


def pca_varselect(ratings: Observed) -> Suspicion:
    """PCA-VarSelect (Mehta and Nejdl, UMUAI 19, 2009): little weight in the leading components.

    Profiles are standardized over all items, missing ratings being 0; suspicion is minus the sum of
    |coefficients| in three components. Items are treated as users are, and an entry has the
    suspicion of its user.
    """
    dense = ratings.to_sparse().toarray()
    by_row = _least_varying(dense)
    by_column = _least_varying(dense.T)
    return Suspicion(by_row[ratings.rows.group_of_entry()], by_row, by_column)


def _least_varying(profiles: Array) -> Array:
    deviation = profiles.std(axis=1, keepdims=True)
    centered = profiles - profiles.mean(axis=1, keepdims=True)
    standardized = centered / np.where(deviation > 0, deviation, 1.0)
    return np.asarray(-np.abs(_leading(standardized, _COMPONENTS)).sum(axis=1))


def _leading(A: Array, k: int) -> Array:
    """The first k left singular vectors, from the Gram matrix of the shorter side."""
    if len(A) <= A.shape[1]:
        return np.asarray(np.linalg.eigh(A @ A.T)[1][:, : -k - 1 : -1])
    squares, right = np.linalg.eigh(A.T @ A)
    return np.asarray(A @ right[:, : -k - 1 : -1] / np.sqrt(squares[: -k - 1 : -1]))


def _means(ratings: Observed, size: Array) -> Suspicion:
    """Suspicion of entries; that of a row or column is the mean over its entries."""
    m, n = ratings.shape
    rows = ratings.rows
    by_row = np.bincount(rows.group_of_entry(), size, m) / np.maximum(rows.counts, 1)
    counts = np.maximum(np.bincount(rows.indices, minlength=n), 1)
    return Suspicion(size, by_row, np.bincount(rows.indices, size, n) / counts)


def measure(under_attack: Attacked, found: Suspicion) -> dict[str, float | None]:
    """Entry AUC; precision for users (None where no profile was injected) and items."""
    users = under_attack.rows
    return {
        "entry_auc": detection_auc(under_attack.entries, found.entries),
        "user_precision": precision_at_k(users, found.rows) if users.any() else None,
        "item_precision": precision_at_k(under_attack.columns, found.columns),
    }


def table(results: list[dict[str, Any]]) -> str:
    """One row per attack and method: means over the seeds."""
    rows = []
    for (attack, method), runs in grouped(results, "attack", "method").items():
        figures = []
        for name, digits in (("entry_auc", 3), ("user_precision", 2), ("item_precision", 2)):
            values = [run[name] for run in runs]
            figures.append("–" if values[0] is None else f"{np.mean(values):.{digits}f}")
        rows.append([attack, method, *figures])
    header = ["attack", "method", "entry AUC", "user precision at k", "item precision at k"]
    return markdown("Means over the seeds", header, rows)
