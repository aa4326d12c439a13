"""Whether scores mean what they say on synthetic truth: false alarms of scores of entries, rows and columns, coverage of intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import line_calibration
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.estimator import RobustMF
from robustmf.intervals import ConformalIntervals

RANK = 5
LEVELS = (0.01, 0.05)
COVERAGES = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Case:
    """One kind of problem; ``tail`` is that of Student's law for the noise, None for a normal one."""

    m: int = 500
    noise: float = 0.1
    outliers: float = 0.05
    magnitude: float = 5.0
    tail: int | None = None
    observed: float | None = None


CASES = [
    Case(m=250), Case(), Case(outliers=0.0), Case(outliers=0.1), Case(outliers=0.2), Case(noise=0.5), Case(noise=1.0, magnitude=20.0),
    Case(m=200, observed=0.6), Case(tail=5), Case(tail=3),
]  # fmt: skip


def _noise(case: Case, shape: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    return case.noise * (
        rng.standard_normal(shape) if case.tail is None else rng.standard_t(case.tail, shape)
    )


def run_one(case: Case, seed: int) -> dict[str, Any]:
    """False alarms for fitted entries, held-out ones and new rows; coverage and width of intervals."""
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
        part.with_values(part.rows.values + _noise(case, part.n_entries, rng))
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
    i, j = i[chosen], j[chosen]
    values = data.clean[i, j] + _noise(case, len(i), rng)
    intervals = ConformalIntervals(model, validation)
    ends = {str(level): intervals.predict(i, j, level) for level in COVERAGES}
    intervals.clean_share_ = 1.0  # as if all the entries calibrated on were good
    ends["0.9, uncorrected"] = intervals.predict(i, j, 0.9)
    return {
        **case.__dict__,
        "seed": seed,
        "alarms": {
            name: [float((of <= level).mean()) for level in LEVELS] for name, of in scores.items()
        },
        "coverage": {
            level: float(((lower <= values) & (values <= upper)).mean())
            for level, (lower, upper) in ends.items()
        },
        "width": {level: float((upper - lower).mean()) for level, (lower, upper) in ends.items()},
    }


def _new_rows(
    case: Case, data: Synthetic, rng: np.random.Generator
) -> tuple[Observed, NDArray[np.bool_]]:
    shape = (300, data.train.shape[1])
    values = rng.standard_normal((300, RANK)) @ data.column_factors.T + _noise(case, shape, rng)
    bad = rng.random(shape) < case.outliers
    values += case.magnitude * bad * rng.choice([-1.0, 1.0], shape)
    seen = rng.random(shape) < data.train.n_entries / np.prod(data.train.shape)
    i, j = np.nonzero(seen)
    return Observed.from_indices(i, j, values[seen], shape), bad[seen]


def run(seeds: int, first_seed: int, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every case with every seed; then every kind of rows and columns."""
    records, chosen = [], range(first_seed, first_seed + seeds)
    for case in CASES:
        announce(f"{case} …")
        records += [run_one(case, seed) for seed in chosen]
    for kind in line_calibration.KINDS:
        announce(f"{kind} …")
        records += [line_calibration.run_one(kind, seed) for seed in chosen]
    return records


def tables(records: list[dict[str, Any]]) -> list[tuple[str, list[list[str]]]]:
    """False alarms and coverage, a line a case: mean over the seeds (smallest – largest)."""
    lines = [record for record in records if "lines" in record]
    records = [record for record in records if "lines" not in record]
    alarms = [
        [
            "m",
            "noise",
            "outliers",
            *(f"{name}, {100 * level:.0f} %" for name in records[0]["alarms"] for level in LEVELS),
        ]
    ]
    coverage = [
        [
            "m",
            "noise",
            "outliers",
            *(f"{100 * level:.0f} %" for level in COVERAGES),
            "90 %, uncorrected",
            "width at 90 %",
            "uncorrected",
        ]
    ]
    kind = ("m", "noise", "outliers", "tail", "observed")
    for key in dict.fromkeys(tuple(record[name] for name in kind) for record in records):
        chosen = [record for record in records if tuple(record[name] for name in kind) == key]
        tail = "" if key[3] is None else f", t with {key[3]} d.f."
        head = [
            f"{key[0]}" + (f", {100 * key[4]:.0f} % seen" if key[4] else ""),
            f"{key[1]:g}{tail}",
            f"{100 * key[2]:.0f} %",
        ]
        alarms.append(
            head
            + [
                _spread([r["alarms"][name][k] for r in chosen])
                for name in chosen[0]["alarms"]
                for k in range(len(LEVELS))
            ]
        )
        widths = [
            f"{np.mean([r['width'][name] for r in chosen]):.3g}"
            for name in ("0.9", "0.9, uncorrected")
        ]
        coverage.append(
            head
            + [_spread([r["coverage"][name] for r in chosen]) for name in chosen[0]["coverage"]]
            + widths
        )
    found = [
        ("Good entries with a score up to 1 % and 5 %", alarms),
        ("Coverage of good values", coverage),
    ]
    return (
        [*found, ("Honest rows and columns with a score up to 1 % and 5 %", _line_table(lines))]
        if lines
        else found
    )


def _line_table(records: list[dict[str, Any]]) -> list[list[str]]:
    names = list(records[0]["alarms"])
    table = [["kind", *(f"{name}, {100 * level:.0f} %" for name in names for level in LEVELS)]]
    for kind in dict.fromkeys(record["lines"] for record in records):
        of_kind = [record["alarms"] for record in records if record["lines"] == kind]
        table.append(
            [
                kind,
                *(
                    _spread([alarms[name][k] for alarms in of_kind])
                    for name in names
                    for k in range(len(LEVELS))
                ),
            ]
        )
    return table


def _spread(shares: list[float]) -> str:
    low, high = 100 * min(shares), 100 * max(shares)
    return f"{100 * float(np.mean(shares)):.2f} ({low:.2f}–{high:.2f})"
