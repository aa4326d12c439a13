"""OMDL against its authors' code, and its bias with missing entries."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import FIXTURES, product, relative_error
from robustmf.baselines import OMDL
from robustmf.baselines.omdl import OnlineDictionary, row_and_column_means


@pytest.mark.parametrize("epochs", [1, 3, 20])
def test_iterates_equal_those_of_the_authors_code(epochs, operations):
    """The random draws: dictionary; permutation of rows per epoch, of atoms per batch."""
    reference = np.load(FIXTURES / "modl.npz")
    rng = np.random.RandomState(0)
    learning = OnlineDictionary(operations, 0.1, 0.95, 10, epochs, rng)
    learning.begin(*_initial_point(rng))
    for _ in range(epochs):
        learning.step()
        np.testing.assert_allclose(learning.budgets, 1, atol=1e-13)
    codes, atoms = learning.factors
    assert relative_error(codes, reference[f"modl_code_{epochs}"]) < 1e-10
    assert relative_error(atoms.T, reference[f"modl_D_{epochs}"]) < 1e-10


def test_means_equal_those_of_the_authors_code(operations):
    reference = np.load(FIXTURES / "modl.npz")
    rng = np.random.RandomState(0)
    biases = row_and_column_means(operations, 0.1)
    assert relative_error(biases[0], reference["modl_detrend_rowmean"]) < 1e-12
    assert relative_error(biases[1], reference["modl_detrend_colmean"]) < 1e-12
    learning = OnlineDictionary(operations, 0.1, 0.95, 10, 3, rng, biases)
    learning.begin(*_initial_point(rng))
    for _ in range(3):
        learning.step()
    codes, atoms = learning.factors
    expected = (
        reference["modl_detrend_code"] @ reference["modl_detrend_D"]
        + biases[0][:, None]
        + biases[1]
    )
    assert relative_error(codes @ atoms.T, expected) < 1e-10


def _initial_point(rng):
    D = rng.randn(3, 45).T
    return np.zeros((60, 3)), D / np.linalg.norm(D, axis=0)


def test_complete_data_are_recovered_and_incomplete_data_are_not(recovery):
    """The method is unbiased for complete data only."""
    X, exact, _ = recovery
    complete = OMDL(
        5, alpha=1e-3, learning_rate=1.0, batch_size=1, max_iter=10, random_state=0
    ).fit(X)
    assert relative_error(product(complete), X) < 2e-2
    assert relative_error(product(OMDL(5, alpha=1e-3, random_state=0).fit(exact)), X) > 0.1
