"""Whether scores of rows and columns mean what they say: how many honest ones score low, on several kinds of data without an attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF

RANK = 5
LEVELS = (0.01, 0.05)

_ROWS, _COLUMNS, _NOISE = 1000, 600, 0.1

Array = NDArray[np.float64]


def _measurements(rng: np.random.Generator, share: Array | float) -> Observed:
    """A low-rank matrix with noise; ``share`` is that of the entries seen, of all rows or of each."""
    truth = rng.standard_normal((_ROWS, RANK)) @ rng.standard_normal((_COLUMNS, RANK)).T
    return _seen(truth + _NOISE * rng.standard_normal(truth.shape), rng.random(truth.shape) < share)


def _seen(values: Array, seen: NDArray[np.bool_]) -> Observed:
    i, j = np.nonzero(seen)
    return Observed.from_indices(i, j, values[seen], (_ROWS, _COLUMNS))


def _uneven(rng: np.random.Generator) -> Array:
    """From 2 to 60 % of a row, evenly on a logarithmic scale."""
    return np.exp(rng.uniform(np.log(0.02), np.log(0.6), (_ROWS, 1)))


def _ratings(rng: np.random.Generator) -> Observed:
    """Steps from 1 to 5, with biases, a weak low-rank part and much noise; users and items of very different activity."""
    bias = 3.5 + 0.4 * rng.standard_normal((_ROWS, 1)) + 0.5 * rng.standard_normal(_COLUMNS)
    taste = rng.standard_normal((_ROWS, RANK)) @ rng.standard_normal((_COLUMNS, RANK)).T
    stars = np.clip(np.rint(bias + 0.25 * taste + 0.8 * rng.standard_normal(taste.shape)), 1, 5)
    popular = np.exp(rng.standard_normal(_COLUMNS))
    share = np.minimum(_uneven(rng) * popular / popular.mean(), 0.9)
    return _seen(stars, rng.random(stars.shape) < share)


def _with_errors(rng: np.random.Generator) -> Observed:
    """Measurements, 5 % of them wrong, wherever they are: every row is as honest as the others."""
    clean = _measurements(rng, 0.15)
    wrong = rng.random(clean.n_entries) < 0.05
    return clean.with_values(
        clean.rows.values + 5 * wrong * rng.choice([-1.0, 1.0], clean.n_entries)
    )


def _unequal_noise(rng: np.random.Generator) -> Observed:
    """Measurements whose noise is another in each row, by a factor of e^±0.5 mostly."""
    truth = rng.standard_normal((_ROWS, RANK)) @ rng.standard_normal((_COLUMNS, RANK)).T
    noise = (
        _NOISE * np.exp(0.5 * rng.standard_normal((_ROWS, 1))) * rng.standard_normal(truth.shape)
    )
    return _seen(truth + noise, rng.random(truth.shape) < 0.15)


KINDS: dict[str, Callable[[np.random.Generator], Observed]] = {
    "measurements, 15 % seen": lambda rng: _measurements(rng, 0.15),
    "rows from 2 to 60 % seen": lambda rng: _measurements(rng, _uneven(rng)),
    "noise of its own in each row": _unequal_noise,
    "5 % of the entries wrong": _with_errors,
    "ratings from 1 to 5, uneven": _ratings,
}


def run_one(kind: str, seed: int) -> dict[str, Any]:
    """The share of rows, of columns and of new rows with scores up to each level."""
    data = KINDS[kind](np.random.default_rng([seed, 6]))
    keep = 4 * _ROWS // 5
    start = int(data.rows.pointers[keep])
    first = Observed.from_indices(
        data.rows.group_of_entry()[:start],
        data.rows.indices[:start],
        data.rows.values[:start],
        (keep, _COLUMNS),
    )
    model = RobustMF(RANK, random_state=seed, n_jobs=1).fit(first)
    scores = {
        "rows": model.row_scores(),
        "columns": model.column_scores(),
        "new rows": model.row_scores(data.later_rows(keep), rows="new"),
    }
    return {
        "lines": kind,
        "seed": seed,
        "alarms": {
            name: [float((of <= level).mean()) for level in LEVELS] for name, of in scores.items()
        },
    }
