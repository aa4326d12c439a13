"""The benchmarks of detection and calibration on small data: what they measure and print."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import calibration, detection
from robustmf.datasets import love_hate, random_attack


def cells(table):
    """The cells of a Markdown table below its header."""
    lines = table.split("|---|\n", 1)[1].splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_varselect_finds_random_profiles(ratings):
    """As its authors report: random profiles correlate with no others."""
    attack = random_attack(ratings, [3], attack_size=0.05, filler_size=0.1, random_state=0)
    found = detection.pca_varselect(attack.ratings)
    assert detection.measure(attack, found)["user_precision"] >= 0.9


def test_pca_residuals_are_those_of_the_leading_components(ratings):
    found = detection.pca_residuals(ratings)
    i = ratings.rows.group_of_entry()
    j = ratings.rows.indices
    values = ratings.rows.values
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


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")  # attacked columns
def test_every_method_is_measured_and_shown(ratings):
    attack = love_hate(ratings, share=0.05, random_state=0)
    records = [
        {"attack": "love/hate", "seed": 0, "method": method, **detection.measure(attack, found)}
        for method, found in detection.suspicions(attack.ratings, 0).items()
    ]
    rows = cells(detection.table(records))
    assert [row[1] for row in rows] == [
        "RobustMF, all evidence",
        "RobustMF, residuals",
        "l2 residuals",
        "PCA residuals",
        "PCA-VarSelect",
    ]
    assert all(row[3] == "–" for row in rows)  # no profile was injected
    best = max(rows, key=lambda row: float(row[2]))
    assert best[1] == "RobustMF, all evidence"


def test_attacks_target_items_with_few_ratings(ratings):
    attack = detection.attacked(ratings, "average, push", 0)
    assert attack.columns.sum() == detection.TARGETS
    counts = ratings.columns.counts[attack.columns]
    assert counts.min() >= 5
    assert counts.max() < 50


def test_calibration_of_entries_is_measured_and_shown():
    case = calibration.Case(m=150, observed=0.5)
    records = [calibration.run_entries(case, seed) for seed in (0, 1)]
    assert all(0.75 < record["coverage"]["0.8"] < 0.85 for record in records)
    assert all(0.002 < record["false_alarms"]["fitted"][0] < 0.02 for record in records)
    rows = cells(calibration.table({"entries": records, "rows_and_columns": []}))
    assert len(rows) == 3  # one case, the header of the second table, the case again
    assert rows[0][:3] == rows[2][:3] == ["150, 50% observed", "0.1", "5% of ±5"]


def test_scores_of_clean_rows_and_columns_are_conservative():
    kinds = ("measurements, 15 % observed", "ratings from 1 to 5, uneven")
    records = [calibration.run_rows_and_columns(kind, 7) for kind in kinds]
    measured, rated = (record["false_alarms"] for record in records)
    assert all(
        measured[side][0] <= 0.01 and 0.002 <= measured[side][1] <= 0.06
        for side in ("rows", "columns", "new rows")
    )
    assert rated["rows"][0] <= 0.02
    assert rated["columns"][0] <= 0.06
    text = calibration.table({"entries": [], "rows_and_columns": records})
    assert text.startswith("Clean rows and columns")
    assert [row[0] for row in cells(text)] == list(kinds)
