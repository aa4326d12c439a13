"""How well planted attacks on MovieLens are found (entries, injected users, attacked items), beside least squares and PCA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

Array = NDArray[np.float64]

RANK, RIDGE, TARGETS = 5, 5.0, 10

#: Components that PCA-VarSelect looks at, as in its paper.
_COMPONENTS = 3

Attack = Callable[[Observed, NDArray[np.intp], NDArray[np.intp], int], Attacked]

#: Each makes an attack from ratings, target items, items of a segment, and a seed.
ATTACKS: dict[str, Attack] = {
    "love/hate, an item": lambda R, targets, segment, seed: love_hate(R, random_state=seed),
    "love/hate, a rating": lambda R, targets, segment, seed: love_hate(
        R, per="rating", random_state=seed
    ),
    "random, push": lambda R, targets, segment, seed: random_attack(R, targets, random_state=seed),
    "random, nuke": lambda R, targets, segment, seed: random_attack(
        R, targets, direction="nuke", random_state=seed
    ),
    "average, push": lambda R, targets, segment, seed: average_attack(
        R, targets, random_state=seed
    ),
    "average, push, 1 % filler": lambda R, targets, segment, seed: average_attack(
        R, targets, filler_size=0.01, random_state=seed
    ),
    "bandwagon, push": lambda R, targets, segment, seed: bandwagon_attack(
        R, targets, random_state=seed
    ),
    "segment, push": lambda R, targets, segment, seed: segment_attack(
        R, segment, targets, random_state=seed
    ),
}


@dataclass(frozen=True)
class Suspicion:
    """Scores of entries (in row order), rows and columns: larger is more suspicious."""

    entries: Array
    rows: Array
    columns: Array


def _model(ratings: Observed, loss: str, seed: int) -> RobustMF:
    return RobustMF(RANK, loss=loss, bias=True, reg=RIDGE, random_state=seed, n_jobs=1).fit(ratings)


def _by_score(scores: Array) -> Array:
    return -np.log(np.maximum(scores, 1e-300))


def robust(ratings: Observed, seed: int) -> dict[str, Suspicion]:
    """RobustMF with all its evidence, and with its residuals alone."""
    model = _model(ratings, "welsch", seed)
    scores = model.outlier_scores(attacks=True), model.row_scores(), model.column_scores()
    return {
        "RobustMF, all evidence": Suspicion(*(_by_score(of) for of in scores)),
        "RobustMF, residuals": _residuals(ratings, model),
    }


def least_squares(ratings: Observed, seed: int) -> dict[str, Suspicion]:
    """The same model fitted by plain least squares."""
    return {"l2 residuals": _residuals(ratings, _model(ratings, "l2", seed))}


def _residuals(ratings: Observed, model: RobustMF) -> Suspicion:
    rows = ratings.rows
    return _means(
        ratings,
        np.abs(rows.values - model._model().predict_pairs(rows.group_of_entry(), rows.indices)),
    )


def pca(ratings: Observed, seed: int) -> dict[str, Suspicion]:
    """Detection by principal components, two ways."""
    return {"PCA residuals": pca_residuals(ratings), "PCA-VarSelect": pca_varselect(ratings)}


def pca_residuals(ratings: Observed) -> Suspicion:
    """|Residual| of the first principal components of the ratings, each item centered, what is missing set to the item's mean."""
    rows = ratings.rows
    i, j, n = rows.group_of_entry(), rows.indices, ratings.shape[1]
    mean = np.bincount(j, rows.values, n) / np.maximum(np.bincount(j, minlength=n), 1)
    centered = np.zeros(ratings.shape)
    centered[i, j] = rows.values - mean[j]
    U = _leading(centered, RANK)
    return _means(ratings, np.abs(centered - U @ (U.T @ centered))[i, j])


def pca_varselect(ratings: Observed) -> Suspicion:
    """PCA-VarSelect (Mehta and Nejdl, UMUAI 19, 2009): profiles with the least weight in the first components.

    Profiles are standardised over all items, what is missing being 0; suspicion is minus the sum of |coefficients| in three components.
    Items are treated like users; an entry is as suspicious as its user.
    """
    dense = ratings.to_sparse().toarray()
    by_row, by_column = _least_varying(dense), _least_varying(dense.T)
    return Suspicion(by_row[ratings.rows.group_of_entry()], by_row, by_column)


def _least_varying(profiles: Array) -> Array:
    spread = profiles.std(axis=1, keepdims=True)
    standardised = (profiles - profiles.mean(axis=1, keepdims=True)) / np.where(
        spread > 0, spread, 1.0
    )
    return np.asarray(-np.abs(_leading(standardised, _COMPONENTS)).sum(axis=1))


def _leading(A: Array, k: int) -> Array:
    """The first k left singular vectors, by way of the shorter side."""
    if len(A) <= A.shape[1]:
        return np.asarray(np.linalg.eigh(A @ A.T)[1][:, : -k - 1 : -1])
    squares, right = np.linalg.eigh(A.T @ A)
    return np.asarray(A @ right[:, : -k - 1 : -1] / np.sqrt(squares[: -k - 1 : -1]))


def _means(ratings: Observed, size: Array) -> Suspicion:
    (m, n), rows = ratings.shape, ratings.rows
    by_row = np.bincount(rows.group_of_entry(), size, m) / np.maximum(rows.counts, 1)
    return Suspicion(
        size,
        by_row,
        np.bincount(rows.indices, size, n) / np.maximum(np.bincount(rows.indices, minlength=n), 1),
    )


#: Each gives one or more kinds of suspicion by their names.
JUDGES: tuple[Callable[[Observed, int], dict[str, Suspicion]], ...] = (robust, least_squares, pca)


def attacked(ratings: Observed, attack: str, seed: int) -> Attacked:
    """The ratings under an attack: on ten items with 5 to 49 ratings, posing (segment) as a friend of 20 of the 100 best known."""
    rng = np.random.default_rng([seed, 77])
    counts = ratings.columns.counts
    targets = rng.choice(np.flatnonzero((counts >= 5) & (counts < 50)), TARGETS, replace=False)
    segment = rng.choice(np.argsort(-counts, kind="stable")[:100], 20, replace=False)
    return ATTACKS[attack](ratings, targets, segment, seed)


def run(
    seeds: int, first_seed: int, data: Path | None, announce: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One record for each attack, seed and method; None where an attack has no injected users."""
    ratings = load_movielens("latest-small", data, download=False).ratings
    records = []
    for attack in ATTACKS:
        for seed in range(first_seed, first_seed + seeds):
            announce(f"{attack}, seed {seed} …")
            under_attack = attacked(ratings, attack, seed)
            for judge in JUDGES:
                for method, found in judge(under_attack.ratings, seed).items():
                    records.append(
                        {
                            "attack": attack,
                            "seed": seed,
                            "method": method,
                            **measure(under_attack, found),
                        }
                    )
    return records


def measure(under_attack: Attacked, found: Suspicion) -> dict[str, float | None]:
    """Entry AUC, user and item precision at k (k = the number of bad ones)."""
    return {
        "entry_auc": detection_auc(under_attack.entries, found.entries),
        "user_precision": precision_at_k(under_attack.rows, found.rows)
        if under_attack.rows.any()
        else None,
        "item_precision": precision_at_k(under_attack.columns, found.columns),
    }


def summary(records: list[dict[str, Any]]) -> list[list[str]]:
    """One line an attack and method: means over the seeds."""
    lines = [["attack", "method", "entry AUC", "user precision at k", "item precision at k"]]
    for attack, method in dict.fromkeys((record["attack"], record["method"]) for record in records):
        chosen = [
            record for record in records if (record["attack"], record["method"]) == (attack, method)
        ]
        figures = [
            "–"
            if chosen[0][name] is None
            else f"{np.mean([record[name] for record in chosen]):.{digits}f}"
            for name, digits in (("entry_auc", 3), ("user_precision", 2), ("item_precision", 2))
        ]
        lines.append([attack, method, *figures])
    return lines
