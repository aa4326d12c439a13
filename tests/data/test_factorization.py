"""Factors with biases: augmented factors, predictors, unknown rows and columns, the transpose."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.data import factorization
from robustmf.data.factorization import UNKNOWN, Factorization

CENTER = 3.5


def random_factorization(bias, dtype=np.float64, m=7, n=5, rank=2):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((m, rank)).astype(dtype)
    V = rng.standard_normal((n, rank)).astype(dtype)
    if not bias:
        return Factorization.without_biases(U, V)
    row_bias = rng.standard_normal(m).astype(dtype)
    column_bias = rng.standard_normal(n).astype(dtype)
    return Factorization(U, V, CENTER, row_bias, column_bias)


def dense(factors):
    """All predictions, from the definition of the model."""
    product = factors.row_factors @ factors.column_factors.T
    return (
        (factors.center or 0.0) + factors.row_bias[:, None] + factors.column_bias[None, :] + product
    )


def assert_equal(one, other, rtol=0.0):
    assert one.center == other.center
    for name in ("row_factors", "column_factors", "row_bias", "column_bias"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol)


def test_properties():
    factors = random_factorization(bias=True)
    assert (factors.shape, factors.rank, factors.has_bias) == ((7, 5), 2, True)
    plain = random_factorization(bias=False)
    assert not plain.has_bias
    assert not plain.row_bias.any()
    assert not plain.column_bias.any()
    np.testing.assert_array_equal(factors.column_offsets, factors.column_bias + CENTER)
    np.testing.assert_array_equal(plain.column_offsets, np.zeros(5))


@pytest.mark.parametrize("bias_unit", [0.25, 1.0, 3.0])
def test_augmented_factors_are_split_into_the_same_factorization(bias_unit, dtype):
    factors = random_factorization(bias=True, dtype=dtype)
    A, B = factors.augmented(bias_unit)
    assert A.shape == (7, 3)
    assert B.shape == (5, 3)
    assert A.dtype == B.dtype == dtype
    np.testing.assert_array_equal(A[:, -1], factors.row_bias / dtype(bias_unit))
    again = Factorization.from_augmented(A, B, CENTER, bias_unit)
    assert_equal(again, factors, rtol=4 * np.finfo(dtype).eps)
    A[:] = 0  # the parts are copies
    assert again.row_factors.any()


def test_without_biases_augmented_factors_and_predictors_are_the_factors():
    factors = random_factorization(bias=False)
    for A, B in (factors.augmented(2.0), factors.predictors()):
        assert A is factors.row_factors
        assert B is factors.column_factors
    assert_equal(Factorization.from_augmented(*factors.augmented(2.0), None, 2.0), factors)


@pytest.mark.parametrize("bias", [False, True])
def test_predictors_and_predictions_of_pairs_agree_with_the_definition(bias, dtype):
    factors = random_factorization(bias, dtype)
    A, B = factors.predictors()
    i, j = np.indices(factors.shape)
    tolerance = 10 * np.finfo(dtype).eps
    np.testing.assert_allclose(A @ B.T, dense(factors), rtol=tolerance, atol=tolerance)
    predicted = factors.predict_pairs(i, j)
    assert predicted.dtype == dtype
    np.testing.assert_allclose(predicted, dense(factors), rtol=tolerance, atol=tolerance)


def test_pairs_are_predicted_in_blocks(monkeypatch):
    factors = random_factorization(bias=True)
    i, j = np.indices(factors.shape)
    expected = factors.predict_pairs(i, j)
    monkeypatch.setattr(factorization, "_PAIRS_PER_BLOCK", 4)
    np.testing.assert_array_equal(factors.predict_pairs(i, j), expected)


def test_indices_are_broadcast():
    factors = random_factorization(bias=True)
    expected = dense(factors)
    row = factors.predict_pairs(np.array(3), np.arange(5))
    np.testing.assert_allclose(row, expected[3])
    assert factors.predict_pairs(np.array(1), np.array(2)).shape == ()
    with pytest.raises(ValueError, match=r"paired one to one.*shapes \(2,\) and \(3,\)"):
        factors.predict_pairs(np.arange(2), np.arange(3))


def test_unknown_rows_and_columns_are_predicted_by_the_remaining_biases():
    factors = random_factorization(bias=True)
    rows = np.array([UNKNOWN, 2, UNKNOWN, 2])
    columns = np.array([3, UNKNOWN, UNKNOWN, 3])
    expected = [
        CENTER + factors.column_bias[3],
        CENTER + factors.row_bias[2],
        CENTER,
        dense(factors)[2, 3],
    ]
    np.testing.assert_allclose(factors.predict_pairs(rows, columns, fallback=99.0), expected)


def test_unknown_rows_and_columns_without_biases_have_the_fallback():
    factors = random_factorization(bias=False)
    rows = np.array([UNKNOWN, 2, 2])
    columns = np.array([3, UNKNOWN, 3])
    predicted = factors.predict_pairs(rows, columns, fallback=1.5)
    np.testing.assert_allclose(predicted, [1.5, 1.5, dense(factors)[2, 3]])


@pytest.mark.parametrize("bias", [False, True])
def test_transposed(bias):
    factors = random_factorization(bias)
    assert factors.transposed.shape == (5, 7)
    np.testing.assert_allclose(dense(factors.transposed), dense(factors).T)
    assert_equal(factors.transposed.transposed, factors)
