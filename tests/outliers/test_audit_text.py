"""The words of an audit."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import RobustMF
from robustmf.outliers.audit import Audit, SuspectEntry, _with_uncertainty


@pytest.mark.parametrize(
    ("value", "prediction", "deviation", "text"),
    [
        (114.05, 114.0, 0.0084, "114.05 where 114 ± 0.0084"),
        (114.051, 114.0012, 0.0084, "114.051 where 114.0012 ± 0.0084"),
        (5.0, 1.234567, 0.5, "5 where 1.235 ± 0.5"),
        (1e9, 1.0, 0.0, "1e+09 where 1 ± 0"),
    ],
)
def test_numbers_have_the_digits_of_their_uncertainty(value, prediction, deviation, text):
    assert _with_uncertainty(value, prediction, deviation) == text


def test_reasons_show_a_difference():
    X = np.outer(np.linspace(100, 120, 30), np.ones(12))
    X += 0.008 * np.random.default_rng(0).standard_normal(X.shape)
    X[3, 4] += 0.2
    worst = RobustMF(1, random_state=0).fit(X).audit().entries[0]
    observed, expected = worst.reason.split(" ± ")[0].split(" where ")
    assert float(observed) - float(expected) == pytest.approx(0.2, abs=0.05)


def test_headings_without_suspects_are_left_out():
    entry = SuspectEntry("a", "b", 1.0, 2.0, 0.001, "a reason")
    text = str(Audit([entry], [], [], 0.99))
    assert "rows:" not in text
    assert "columns:" not in text
    assert "Most suspicious entries:\n  row 'a', column 'b'" in text
    assert "Most" not in str(Audit([], [], [], 1.0))
