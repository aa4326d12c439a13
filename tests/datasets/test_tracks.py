"""Synthetic tracks: rank, observed band, wrong matches, and recovery of the points."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import RobustMF
from robustmf.datasets import make_tracks
from robustmf.report.structure_from_motion import scene_points


def test_rank_band_and_wrong_matches():
    clean = make_tracks(80, 12, noise=0, mismatches=0, random_state=1)
    both = np.zeros(clean.observed.shape, bool)
    both[clean.observed.rows.group_of_entry(), clean.observed.rows.indices] = True
    assert (both[::2] == both[1::2]).all()
    assert both.any(axis=0).all()
    assert not both.all(axis=0).any()
    model = RobustMF(4, loss="l1", reg=1e-9, random_state=0).fit(clean.observed)
    assert np.abs(model.model_.residuals(clean.observed)).max() < 0.1
    wrong = make_tracks(80, 12, noise=0, mismatches=0.1, random_state=1)
    moved = np.abs(wrong.observed.rows.values - clean.observed.rows.values)
    assert (moved[wrong.wrong] >= 30).all()
    assert (moved[~wrong.wrong] == 0).all()
    assert 0.05 < wrong.wrong.mean() < 0.15


def test_points_are_recovered():
    made = make_tracks(random_state=2)
    model = RobustMF(4, loss="l1", reg=1e-9, tol=1e-6, random_state=0).fit(made.observed)
    found = scene_points(model.row_factors_, model.column_factors_)
    found = found - found.mean(axis=0)
    truth = made.points - made.points.mean(axis=0)
    left, singular, right = np.linalg.svd(found.T @ truth)
    fitted = found @ left @ right * singular.sum() / np.square(found).sum()
    assert np.sqrt(np.square(fitted - truth).sum() / np.square(truth).sum()) < 0.03


@pytest.mark.parametrize("given", [{"points": 3}, {"frames": 1}, {"noise": -1}, {"mismatches": 2}])
def test_invalid_parameters_are_named(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        make_tracks(**given)
