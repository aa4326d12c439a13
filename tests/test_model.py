"""``FittedModel``: its state, clipping, lookup of ids, and statistics of the fitted values."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

from robustmf import Observed
from robustmf.data.factorization import Factorization
from robustmf.exceptions import ModelFileError, UnknownIdsWarning
from robustmf.io.model_state import OPTIONAL_NAMES, STATE_NAMES
from robustmf.losses import make_loss
from robustmf.model import FitSummary, FittedModel, value_statistics

ROW_IDS = ["ann", "bob", "eve", "zoe"]
COLUMN_IDS = [10, 20, 30]


def make_model(bias=True, ids=True, dtype=np.float64):
    """A model of a 4 × 3 matrix with two entries in each row."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((4, 2)).astype(dtype)
    V = rng.standard_normal((3, 2)).astype(dtype)
    factors = Factorization.without_biases(U, V)
    if bias:
        b, c = (rng.standard_normal(size).astype(dtype) for size in (4, 3))
        factors = Factorization(U, V, 2.5, b, c)
    entries = {
        "pointers": np.array([0, 2, 4, 6, 8]),
        "indices": np.array([0, 1, 1, 2, 0, 2, 0, 1], np.int32),
        "values": rng.standard_normal(8).astype(dtype),
        "weights": None,
    }
    summary = FitSummary(
        solver="irls",
        solver_reason="given",
        history={"objective": [3.0, 2.0], "seconds": [0.0, 0.1]},
        n_iter=1,
        converged=True,
        stop_reason="the objective has converged",
        best_iteration=1,
        criticality=0.01,
    )
    return FittedModel(
        factors=factors,
        loss=make_loss("huber", 0.7),
        reg=0.3,
        reg_by_count=True,
        bias_unit=1.5,
        median=0.25,
        scale=0.75,
        row_ids=ROW_IDS if ids else None,
        column_ids=COLUMN_IDS if ids else None,
        entries=entries,
        n_entries_initialized=6,
        summary=summary,
    )


def assert_same(one, other):
    """All fields are equal, arrays bit by bit."""
    for field in fields(FittedModel):
        if field.name in ("factors", "entries", "_vocabularies"):
            continue
        assert getattr(one, field.name) == getattr(other, field.name), field.name
    assert one.factors.center == other.factors.center
    for name in ("row_factors", "column_factors", "row_bias", "column_bias"):
        a, b = (getattr(model.factors, name) for model in (one, other))
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert one.entries.keys() == other.entries.keys()
    for name, values in one.entries.items():
        np.testing.assert_array_equal(values, other.entries[name])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_the_state_contains_the_model(bias, ids, dtype):
    model = make_model(bias, ids, dtype)
    state = model.to_state()
    assert state.keys() == STATE_NAMES
    again = FittedModel.from_state(state)
    assert_same(again, model)
    assert again.factors.has_bias == bias
    i, j = np.indices(model.shape)
    np.testing.assert_array_equal(again.predict_pairs(i, j), model.predict_pairs(i, j))


@pytest.mark.parametrize("name", sorted(STATE_NAMES - OPTIONAL_NAMES))
def test_a_state_with_a_missing_part_is_refused(name):
    state = make_model().to_state()
    del state[name]
    with pytest.raises(ModelFileError, match=name):
        FittedModel.from_state(state)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("row_bias_", np.zeros(3)),
        ("column_factors_", np.zeros((3, 1))),
        ("row_factors_", np.full((4, 2), np.nan)),
        ("row_ids_", ["ann"]),
        ("reg_", np.inf),
        ("n_iter_", 1.5),
        ("loss_", "huber"),
    ],
)
def test_an_inconsistent_state_is_refused(name, value):
    with pytest.raises(ModelFileError, match=name):
        FittedModel.from_state(make_model().to_state() | {name: value})


@pytest.mark.parametrize(
    "changed",
    [
        {"nonnegative_factors": 1},
        {"row_factors_": np.full((4, 2), -1.0)},
        {"_has_bias": True},
    ],
)
def test_factors_that_are_declared_non_negative_are(changed):
    model = make_model(bias=False)
    factors = replace(
        model.factors,
        row_factors=np.abs(model.factors.row_factors),
        column_factors=np.abs(model.factors.column_factors),
    )
    state = replace(model, factors=factors, nonnegative=True).to_state()
    assert FittedModel.from_state(state).columns.nonnegative
    with pytest.raises(ModelFileError, match=r"non-?negative"):
        FittedModel.from_state(state | changed)


def test_entries_outside_the_matrix_are_refused():
    entries = dict(make_model().entries)
    entries["indices"] = entries["indices"] + np.int32(1)
    with pytest.raises(ModelFileError, match=r"matrix of shape \(4, 3\)"):
        FittedModel.from_state(make_model().to_state() | {"entries_": entries})


def test_predictions_are_clipped_to_the_bounds():
    model = make_model()
    i, j = np.indices(model.shape)
    values = model.predict_pairs(i, j)
    assert values.min() < 2
    assert values.max() > 3
    clipped = replace(model, bounds=(2.0, 3.0)).predict_pairs(i, j)
    np.testing.assert_array_equal(clipped, np.clip(values, 2, 3))


def test_clipping_is_in_place_and_without_bounds_changes_nothing():
    values = np.array([-5.0, 0.0, 5.0])
    assert make_model().clip(values) is values
    assert values.tolist() == [-5, 0, 5]
    assert replace(make_model(), bounds=(-1.0, np.inf)).clip(values) is values
    assert values.tolist() == [-1, 0, 5]


def test_unknown_ids_are_predicted_by_the_median_without_biases():
    model = make_model(bias=False)
    with pytest.warns(UnknownIdsWarning, match="1 of 1 row ids are unknown .* 'nobody'"):
        assert model.predict(["nobody"], [10]) == [0.25]
    with pytest.warns(UnknownIdsWarning):
        assert replace(model, bounds=(1.0, 2.0)).predict(["nobody"], [10]) == [1.0]


def test_lookup_tables_are_built_once_and_not_pickled():
    model = make_model()
    lookup = model.vocabulary("row")
    assert model.vocabulary("row") is lookup
    assert lookup.indices(["zoe", "ann", "nobody"]).tolist() == [3, 0, -1]
    again = pickle.loads(pickle.dumps(model))
    assert again._vocabularies == {}
    assert model._vocabularies == {"row": lookup}, "pickling does not change the model"
    assert_same(again, model)
    np.testing.assert_array_equal(
        again.predict(["zoe", "ann"], [30, 10]), model.predict(["zoe", "ann"], [30, 10])
    )
    assert make_model(ids=False).vocabulary("row") is None


def test_fitted_entries():
    entries = make_model().fitted_entries()
    assert entries.shape == (4, 3)
    assert list(entries.row_ids) == ROW_IDS
    assert entries.rows.indices.tolist() == [0, 1, 1, 2, 0, 2, 0, 1]
    sampled = replace(make_model(), entries={"row_counts": np.ones(4, np.int64)})
    with pytest.raises(ValueError, match="stayed on the cluster"):
        sampled.fitted_entries()


def test_statistics_of_values():
    observed = Observed.from_dense(np.array([[-4.0, -1.0, 2.0], [np.nan, 3.0, 5.0]]))
    assert value_statistics(observed) == (2.0, 3.0)
