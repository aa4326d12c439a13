"""Calibration on synthetic truth: false alarm rates of scores, coverage of intervals.

A score p should be exceeded downwards by a share p of the clean entries, and an interval of 90 %
should cover 90 % of the clean values. Rows and columns are scored on data without an attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import announce, grouped, markdown
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.estimator import RobustMF
from robustmf.intervals import ConformalIntervals

SMALL = {"seeds": 1, "cases": 1}

Array = NDArray[np.float64]

RANK = 5
LEVELS = (0.01, 0.05)
COVERAGES = (0.8, 0.9, 0.95)

#: Rows, columns and noise of the data on which rows and columns are scored.
_ROWS = 1000
_COLUMNS = 600
_NOISE = 0.1


@dataclass(frozen=True)
class Case:
    """One kind of synthetic problem.

    ``tail`` is the number of degrees of freedom of Student's t noise, None for normal noise;
    ``observed`` is the share of observed entries, None for the paper's.
    """

    m: int = 500
    noise: float = 0.1
    outliers: float = 0.05
    magnitude: float = 5.0
    tail: int | None = None
    observed: float | None = None

    def draw_noise(self, shape: Any, rng: np.random.Generator) -> Array:
        """Noise of the entries."""
        if self.tail is None:
            return self.noise * rng.standard_normal(shape)
        return self.noise * np.asarray(rng.standard_t(self.tail, shape))


CASES = (
    Case(m=250),
    Case(),
    Case(outliers=0.0),
    Case(outliers=0.1),
    Case(outliers=0.2),
    Case(noise=0.5),
    Case(noise=1.0, magnitude=20.0),
    Case(m=200, observed=0.6),
    Case(tail=5),
    Case(tail=3),
)


def run(
    seeds: int = 5, first_seed: int = 40_000, cases: int = 100
) -> dict[str, list[dict[str, Any]]]:
    """The first ``cases``, then as many kinds of data for rows and columns, with every seed."""
    chosen = range(first_seed, first_seed + seeds)
    entries = []
    sides = []
    for case in CASES[:cases]:
        announce(str(case))
        entries += [run_entries(case, seed) for seed in chosen]
    for kind in list(KINDS)[:cases]:
        announce(kind)
        sides += [run_rows_and_columns(kind, seed) for seed in chosen]
    return {"entries": entries, "rows_and_columns": sides}


def _rates(scores: dict[str, Array]) -> dict[str, list[float]]:
    """Shares of the scores at or below each level."""
    return {name: [float((of <= level).mean()) for level in LEVELS] for name, of in scores.items()}


def run_entries(case: Case, seed: int) -> dict[str, Any]:
    """False alarm rates of fitted, held-out and new entries; coverage and width of intervals."""
    rng = np.random.default_rng([seed, 5])
    data = make_synthetic(
        case.m,
        rank=RANK,
        noise=0.0,
        outliers=case.outliers,
        magnitude=case.magnitude,
        observed=case.observed,
        random_state=seed,
    )
    train, validation = (
        part.with_values(part.rows.values + case.draw_noise(part.n_entries, rng))
        for part in (data.train, data.validation)
    )
    model = RobustMF(RANK, random_state=seed, n_jobs=1).fit(train)
    new, new_outliers = _new_rows(case, data, rng)
    scores = {
        "fitted": model.outlier_scores()[~data.train_outliers],
        "held out": model.outlier_scores(validation)[~data.validation_outliers],
        "new rows": model.outlier_scores(new, rows="new")[~new_outliers],
    }
    i, j = np.nonzero(data.test_mask)
    chosen = rng.choice(len(i), 20_000)
    i = i[chosen]
    j = j[chosen]
    values = data.clean[i, j] + case.draw_noise(len(i), rng)
    intervals = ConformalIntervals(model, validation)
    ends = {str(level): intervals.predict(i, j, level) for level in COVERAGES}
    intervals.clean_share_ = 1.0  # as if all calibration entries were clean
    ends["0.9, uncorrected"] = intervals.predict(i, j, 0.9)
    coverage = {
        level: float(((lower <= values) & (values <= upper)).mean())
        for level, (lower, upper) in ends.items()
    }
    width = {level: float((upper - lower).mean()) for level, (lower, upper) in ends.items()}
    return {
        **asdict(case),
        "seed": seed,
        "false_alarms": _rates(scores),
        "coverage": coverage,
        "width": width,
    }


def _new_rows(
    case: Case, data: Synthetic, rng: np.random.Generator
) -> tuple[Observed, NDArray[np.bool_]]:
    """300 rows that the model was not fitted to, and which of their entries are outliers."""
    shape = (300, data.train.shape[1])
    values = rng.standard_normal((300, RANK)) @ data.column_factors.T
    values += case.draw_noise(shape, rng)
    bad = rng.random(shape) < case.outliers
    values += case.magnitude * bad * rng.choice([-1.0, 1.0], shape)
    seen = rng.random(shape) < data.train.n_entries / np.prod(data.train.shape)
    i, j = np.nonzero(seen)
    return Observed.from_indices(i, j, values[seen], shape), bad[seen]


def _low_rank(rng: np.random.Generator) -> Array:
    return rng.standard_normal((_ROWS, RANK)) @ rng.standard_normal((_COLUMNS, RANK)).T


def _selected(values: Array, selected: NDArray[np.bool_]) -> Observed:
    i, j = np.nonzero(selected)
    return Observed.from_indices(i, j, values[selected], (_ROWS, _COLUMNS))


def _measurements(rng: np.random.Generator, share: Array | float) -> Observed:
    """A low-rank matrix with noise; ``share`` of the entries of all rows or of each is observed."""
    truth = _low_rank(rng)
    noisy = truth + _NOISE * rng.standard_normal(truth.shape)
    return _selected(noisy, rng.random(truth.shape) < share)


def _uneven(rng: np.random.Generator) -> Array:
    """From 2 to 60 % of a row, uniform on a logarithmic scale."""
    return np.exp(rng.uniform(np.log(0.02), np.log(0.6), (_ROWS, 1)))


def _ratings(rng: np.random.Generator) -> Observed:
    """Ratings from 1 to 5 with biases, weak factors and much noise, unevenly observed."""
    bias = 3.5 + 0.4 * rng.standard_normal((_ROWS, 1)) + 0.5 * rng.standard_normal(_COLUMNS)
    taste = _low_rank(rng)
    stars = np.clip(np.rint(bias + 0.25 * taste + 0.8 * rng.standard_normal(taste.shape)), 1, 5)
    popular = np.exp(rng.standard_normal(_COLUMNS))
    share = np.minimum(_uneven(rng) * popular / popular.mean(), 0.9)
    return _selected(stars, rng.random(stars.shape) < share)


def _with_outliers(rng: np.random.Generator) -> Observed:
    """Measurements with 5 % outliers at random positions."""
    clean = _measurements(rng, 0.15)
    bad = rng.random(clean.n_entries) < 0.05
    signs = rng.choice([-1.0, 1.0], clean.n_entries)
    return clean.with_values(clean.rows.values + 5 * bad * signs)


def _unequal_noise(rng: np.random.Generator) -> Observed:
    """Measurements whose noise differs from row to row by a lognormal factor."""
    truth = _low_rank(rng)
    scale = _NOISE * np.exp(0.5 * rng.standard_normal((_ROWS, 1)))
    noisy = truth + scale * rng.standard_normal(truth.shape)
    return _selected(noisy, rng.random(truth.shape) < 0.15)


KINDS: dict[str, Callable[[np.random.Generator], Observed]] = {
    "measurements, 15 % observed": lambda rng: _measurements(rng, 0.15),
    "2 to 60 % of a row observed": lambda rng: _measurements(rng, _uneven(rng)),
    "noise that differs between rows": _unequal_noise,
    "5 % outliers": _with_outliers,
    "ratings from 1 to 5, uneven": _ratings,
}


def run_rows_and_columns(kind: str, seed: int) -> dict[str, Any]:
    """Shares of rows, columns and new rows with a score at or below each level."""
    data = KINDS[kind](np.random.default_rng([seed, 6]))
    keep = 4 * _ROWS // 5
    end = int(data.rows.pointers[keep])
    i = data.rows.group_of_entry()[:end]
    first = Observed.from_indices(
        i, data.rows.indices[:end], data.rows.values[:end], (keep, _COLUMNS)
    )
    model = RobustMF(RANK, random_state=seed, n_jobs=1).fit(first)
    scores = {
        "rows": model.row_scores(),
        "columns": model.column_scores(),
        "new rows": model.row_scores(data.later_rows(keep), rows="new"),
    }
    return {"kind": kind, "seed": seed, "false_alarms": _rates(scores)}


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """False alarms and coverage: mean over the seeds (smallest–largest), in percent."""
    tables = []
    if results["entries"]:
        tables += _entry_tables(results["entries"])
    if results["rows_and_columns"]:
        rows = [
            [kind, *_rate_cells(runs)]
            for (kind,), runs in grouped(results["rows_and_columns"], "kind").items()
        ]
        header = ["data", *_rate_names(results["rows_and_columns"][0])]
        tables.append(markdown("Clean rows and columns with a score up to 1 and 5 %", header, rows))
    return "\n".join(tables)


def _entry_tables(records: list[dict[str, Any]]) -> list[str]:
    alarms = []
    coverage = []
    fields = ("m", "noise", "outliers", "magnitude", "tail", "observed")
    for (m, noise, outliers, magnitude, tail, observed), runs in grouped(records, *fields).items():
        case = [
            f"{m}" + (f", {observed:.0%} observed" if observed else ""),
            f"{noise:g}" + (f", t with {tail} d.f." if tail else ""),
            f"{outliers:.0%} of ±{magnitude:g}",
        ]
        alarms.append([*case, *_rate_cells(runs)])
        widths = [
            f"{np.mean([run['width'][name] for run in runs]):.3g}"
            for name in ("0.9", "0.9, uncorrected")
        ]
        cells = [_percent([run["coverage"][name] for run in runs]) for name in runs[0]["coverage"]]
        coverage.append([*case, *cells, *widths])
    case = ["m", "noise", "outliers"]
    levels = [f"{level:.0%}" for level in COVERAGES]
    header = [*case, *levels, "90%, uncorrected", "width at 90%", "uncorrected"]
    return [
        markdown(
            "Clean entries with a score up to 1 and 5 %", [*case, *_rate_names(records[0])], alarms
        ),
        markdown("Coverage of clean values", header, coverage),
    ]


def _rate_names(record: dict[str, Any]) -> list[str]:
    return [f"{name}, {level:.0%}" for name in record["false_alarms"] for level in LEVELS]


def _rate_cells(runs: list[dict[str, Any]]) -> list[str]:
    return [
        _percent([run["false_alarms"][name][k] for run in runs])
        for name in runs[0]["false_alarms"]
        for k in range(len(LEVELS))
    ]


def _percent(shares: list[float]) -> str:
    low = 100 * min(shares)
    high = 100 * max(shares)
    return f"{100 * float(np.mean(shares)):.2f} ({low:.2f}–{high:.2f})"
