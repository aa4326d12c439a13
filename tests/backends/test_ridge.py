"""The ridge of each factor of each row."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import random_problem
from robustmf.backends.ridge import FactorRidge, Ridge, penalty, ridge
from robustmf.exceptions import CheckpointError
from robustmf.losses import L2

RULE = FactorRidge(np.array([0.5, 2.0, 7.0]), np.array([0.01, 0.2, 0.0]))


def dense(found: Ridge) -> np.ndarray:
    first, second = (np.asarray(part)[:, None] for part in (found.first, found.second))
    return first * found.factors[0] + second * found.factors[1]


@pytest.mark.parametrize("rank", [1, 3, 12, 17])
def test_the_half_step_with_a_ridge_for_each_factor(rank, operations_on, dtype):
    observed, U, V = random_problem(12, 40, rank, share=0.6, dtype=dtype)
    rng = np.random.default_rng(rank)
    multipliers = 0.5 + rng.random(len(U))
    rule = FactorRidge(0.1 + rng.random(rank), 0.1 * rng.random(rank), multipliers.astype(dtype))
    operations = operations_on(observed)
    on = operations.array
    rule = FactorRidge(rule.constant, rule.by_count, on(rule.rows))
    got = on(U.copy())
    operations.half_step(L2(), rule.on(operations.observed), got, on(V))
    by_row = multipliers[:, None] * rule.constant + observed.rows.counts[:, None] * rule.by_count
    pointers = observed.rows.pointers
    for i in range(len(U)):
        part = slice(pointers[i], pointers[i + 1])
        design = V[observed.rows.indices[part]].astype(float)
        normal = design.T @ design + np.diag(by_row[i])
        wanted = np.linalg.solve(normal, design.T @ observed.rows.values[part])
        tolerance = 1e-10 if dtype == np.float64 else 1e-3
        np.testing.assert_allclose(np.asarray(got)[i], wanted, rtol=tolerance, atol=tolerance)


def test_the_penalty_is_that_of_the_ridge():
    observed, U, _ = random_problem(9, 7, 3)
    found = RULE.on(observed)
    assert penalty(found, U) == pytest.approx(0.5 * (dense(found) * U**2).sum())
    assert ridge(RULE, False, observed).factors.shape == (2, 3)


def test_entries_count_with_their_weights():
    observed, _, _ = random_problem(9, 7, 3)
    weights = np.random.default_rng(0).integers(0, 3, observed.n_entries).astype(float)
    found = RULE.on(observed, weights)
    sums = [weights[observed.rows.group_of_entry() == i].sum() for i in range(9)]
    np.testing.assert_allclose(found.second, sums)


def test_rows_share_the_uncertainty_of_the_other_side_unequally():
    observed, _, _ = random_problem(9, 7, 3)
    shared = np.linspace(0.1, 2.0, 9)
    rule = FactorRidge(RULE.constant, RULE.by_count, shared=shared)
    np.testing.assert_allclose(rule.on(observed).second, shared * observed.rows.counts)
    rule.require_shape(9, 3)
    for wrong in (shared[:-1], -shared):
        with pytest.raises(CheckpointError, match="per row"):
            FactorRidge(RULE.constant, RULE.by_count, shared=wrong).require_shape(9, 3)


def test_padding_and_biases():
    padded = RULE.padded(5)
    np.testing.assert_allclose(padded.constant, [0.5, 2.0, 7.0, 7.0, 7.0])
    assert RULE.padded(3) is RULE
    biased = RULE.with_bias(4.0)
    assert biased.constant[-1] == 4.0
    assert biased.by_count[-1] == 0.0


def test_a_rule_of_another_shape_is_refused():
    RULE.require_shape(9, 3)
    for wrong in (
        RULE.padded(4),
        FactorRidge(RULE.constant, -RULE.by_count - 1),
        FactorRidge(RULE.constant, RULE.by_count, np.ones(8)),
        FactorRidge(RULE.constant * np.nan, RULE.by_count),
    ):
        with pytest.raises(CheckpointError, match="ridges"):
            wrong.require_shape(9, 3)
