"""The experiments on detection and calibration, on small data: what they measure, and what they print."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import calibration, detection, line_calibration
from robustmf.datasets import love_hate, random_attack


def test_varselect_finds_random_profiles(ratings):
    """As its authors report: random profiles vary with nobody."""
    attack = random_attack(ratings, [3], attack_size=0.05, filler_size=0.1, random_state=0)
    found = detection.pca_varselect(attack.ratings)
    assert detection.measure(attack, found)["user_precision"] >= 0.9


def test_pca_residuals_are_those_of_the_leading_components(ratings):
    found = detection.pca_residuals(ratings)
    i, j, values = ratings.rows.group_of_entry(), ratings.rows.indices, ratings.rows.values
    dense = np.full(ratings.shape, np.nan)
    dense[i, j] = values
    centered = np.where(
        np.isnan(dense),
        0,
        dense - np.nansum(dense, axis=0) / np.maximum((~np.isnan(dense)).sum(axis=0), 1),
    )
    U, s, Vt = np.linalg.svd(centered, full_matrices=False)
    rest = centered - (U[:, : detection.RANK] * s[: detection.RANK]) @ Vt[: detection.RANK]
    np.testing.assert_allclose(found.entries, np.abs(rest)[i, j], atol=1e-10)
    assert found.rows[7] == pytest.approx(np.abs(rest)[7, j[i == 7]].mean())


def test_every_judge_is_measured_and_shown(ratings):
    attack = love_hate(ratings, share=0.05, random_state=0)
    records = [
        {"attack": "love/hate", "seed": 0, "method": method, **detection.measure(attack, found)}
        for judge in detection.JUDGES
        for method, found in judge(attack.ratings, 0).items()
    ]
    lines = detection.summary(records)
    assert [line[1] for line in lines[1:]] == [
        "RobustMF, all evidence",
        "RobustMF, residuals",
        "l2 residuals",
        "PCA residuals",
        "PCA-VarSelect",
    ]
    assert all(line[3] == "–" for line in lines[1:])  # nobody was injected
    best = max(lines[1:], key=lambda line: float(line[2]))
    assert best[1] == "RobustMF, all evidence"


def test_attacks_are_aimed_at_little_known_items(ratings):
    attack = detection.attacked(ratings, "average, push", 0)
    assert attack.columns.sum() == detection.TARGETS
    counts = ratings.columns.counts[attack.columns]
    assert counts.min() >= 5
    assert counts.max() < 50


def test_calibration_is_measured_and_shown():
    records = [calibration.run_one(calibration.Case(m=150, observed=0.5), seed) for seed in (0, 1)]
    (_, alarms), (_, coverage) = calibration.tables(records)
    assert len(alarms) == len(coverage) == 2
    assert all(0.75 < record["coverage"]["0.8"] < 0.85 for record in records)
    assert all(0.002 < record["alarms"]["fitted"][0] < 0.02 for record in records)
    assert alarms[1][:3] == ["150, 50 % seen", "0.1", "5 %"]


def test_scores_of_honest_rows_and_columns_are_on_the_safe_side():
    records = [
        line_calibration.run_one(kind, 7)
        for kind in ("measurements, 15 % seen", "ratings from 1 to 5, uneven")
    ]
    measured, rated = (record["alarms"] for record in records)
    assert all(
        measured[side][0] <= 0.01 and 0.002 <= measured[side][1] <= 0.06
        for side in ("rows", "columns", "new rows")
    )
    assert rated["rows"][0] <= 0.02
    assert rated["columns"][0] <= 0.06
    entries = calibration.run_one(calibration.Case(m=150, observed=0.5), 0)
    title, table = calibration.tables([entries, *records])[2]
    assert title.startswith("Honest rows and columns")
    assert [line[0] for line in table] == ["kind", *(record["lines"] for record in records)]
