"""The whole estimator on both devices, with its defaults: what a fit chooses, what it predicts, and all that a fitted model answers."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from conftest import INTERPRETED, needs_gpu
from robustmf import Observed, RobustMF, load
from robustmf.initialization import regularization

pytestmark = [
    needs_gpu,
    pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning"),
]

needs_gpu = pytest.mark.skipif(
    INTERPRETED, reason="takes Triton's interpreter minutes; make gpu-test runs it on a GPU"
)

#: Few sweeps in Triton's interpreter, which takes a second for one.
SWEEPS = {"max_iter": 2} if INTERPRETED else {}


def low_rank(m, n, share, seed=0, dtype=np.float64):
    """Entries of a matrix of rank 3 with noise and 5 % gross outliers, and the matrix."""
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((m, 3)) @ rng.standard_normal((n, 3)).T
    X = clean + 0.1 * rng.standard_normal(clean.shape)
    X[rng.random(X.shape) < 0.05] += 8
    X[rng.random(X.shape) > share] = np.nan
    return Observed.from_dense(X.astype(dtype)), clean


def stars(m, n, share, noise, dtype, seed=0):
    """Half stars, mostly a matter of who gives them and to what: the data decides for biases and a strong λ."""
    rng = np.random.default_rng(seed)
    clean = 3.4 + 0.5 * rng.standard_normal((m, 1)) + 0.6 * rng.standard_normal(n)
    clean = clean + 0.1 * rng.standard_normal((m, 2)) @ rng.standard_normal((n, 2)).T
    X = np.clip(np.rint(2 * (clean + noise * rng.standard_normal(clean.shape))) / 2, 0.5, 5)
    X[rng.random(X.shape) > share] = np.nan
    return Observed.from_dense(X.astype(dtype)), clean


def both(observed, **settings):
    """The same fit on the CPU and on the card."""
    settings = {"rank": 3, "random_state": 0, "n_jobs": 1} | SWEEPS | settings
    return [RobustMF(device=device, **settings).fit(observed) for device in ("cpu", "cuda")]


def assert_same_model(cpu, card, clean):
    """The same choices; RMSE against the clean matrix equal to 1e-3, and predictions apart by no more than that share of it."""
    assert (card.has_bias_, card.solver_, set(card.history_)) == (
        cpu.has_bias_,
        cpu.solver_,
        set(cpu.history_),
    )
    assert (card.reg_, card.theta_) == pytest.approx((cpu.reg_, cpu.theta_), rel=1e-3)
    i, j = np.indices(clean.shape)
    of_cpu, of_card = (
        model.predict(i.ravel(), j.ravel()).reshape(clean.shape) for model in (cpu, card)
    )
    rmse, other = (np.sqrt(np.mean((of - clean) ** 2)) for of in (of_cpu, of_card))
    assert other == pytest.approx(rmse, rel=1e-3)
    assert np.sqrt(np.mean((of_card - of_cpu) ** 2)) < 1e-3 * max(rmse, clean.std())


def assert_same_answers(cpu, card, observed, tmp_path):
    """Fold-in, scores, weights, suspicious entries, best columns; and all of it again from a file."""
    size = np.abs(np.asarray(cpu.column_factors_)).max()
    np.testing.assert_allclose(
        card.transform(observed), cpu.transform(observed), atol=1e-3 * max(1, 1 / size)
    )
    assert card.score(observed, rows="fitted") == pytest.approx(
        cpu.score(observed, rows="fitted"), rel=1e-3
    )
    np.testing.assert_allclose(card.entry_weights(observed), cpu.entry_weights(observed), atol=1e-2)
    np.testing.assert_allclose(card.outlier_scores(), cpu.outlier_scores(), atol=1e-2)
    few = np.arange(5)
    np.testing.assert_array_equal(card.recommend(few, 3).items, cpu.recommend(few, 3).items)
    card.save(tmp_path / "model.rmf")
    again = load(tmp_path / "model.rmf")
    assert again.device == "cuda"
    np.testing.assert_array_equal(again.row_factors_, card.row_factors_)
    np.testing.assert_array_equal(again.recommend(few, 3).items, card.recommend(few, 3).items)
    np.testing.assert_array_equal(again.transform(observed), card.transform(observed))


def test_defaults_on_a_strong_signal(tmp_path):
    observed, clean = low_rank(*(24, 20, 0.8) if INTERPRETED else (300, 200, 0.4))
    cpu, card = both(observed)
    assert not cpu.has_bias_
    assert_same_model(cpu, card, clean)
    if not INTERPRETED:  # hundreds of half-steps
        assert_same_answers(cpu, card, observed, tmp_path)


@pytest.mark.parametrize(
    "size", [(60, 50, 0.8, 0.7), pytest.param((400, 300, 0.2, 1.0), marks=needs_gpu)]
)
@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=needs_gpu), np.float32])
def test_defaults_on_ratings_choose_the_same_reg_and_biases(size, dtype, tmp_path):
    observed, clean = stars(*size, dtype)
    cpu, card = both(observed, bounds=(0.5, 5.0))
    assert cpu.has_bias_
    assert card.reg_ == cpu.reg_
    assert_same_model(cpu, card, clean)
    if not INTERPRETED:
        assert_same_answers(cpu, card, observed, tmp_path)


@needs_gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_reg_and_biases_are_chosen_on_the_card_as_on_the_host(dtype, monkeypatch):
    options = replace(regularization.OPTIONS, host_work=0, sample=10_000)
    monkeypatch.setattr(regularization, "OPTIONS", options)
    observed, clean = stars(400, 300, 0.2, 1.0, dtype)
    cpu, card = both(observed, bounds=(0.5, 5.0))
    assert cpu.has_bias_
    assert card.reg_ == pytest.approx(
        cpu.reg_, rel=1e-4
    )  # λ is doubled until it is too much: the next choice would be twice as large
    assert_same_model(cpu, card, clean)


def test_defaults_with_entries_set_aside():
    observed, clean = low_rank(*(24, 20, 0.8) if INTERPRETED else (300, 200, 0.4))
    cpu, card = both(observed, validation_fraction=0.1)
    assert_same_model(cpu, card, clean)
    np.testing.assert_allclose(card.history_["validation"], cpu.history_["validation"], rtol=1e-3)
    assert card.best_iteration_ == cpu.best_iteration_


def test_more_rows_than_at_first():
    m, n = (24, 20) if INTERPRETED else (300, 200)
    observed, clean = low_rank(m, n, 0.8)
    dense = as_dense(observed)
    first = Observed.from_dense(dense[: m - 4])
    later = Observed.from_dense(dense[m - 4 :])
    # repair, which a robust loss goes on with, takes the interpreter minutes
    cpu, card = both(first, loss="l2" if INTERPRETED else "welsch")
    for model in (cpu, card):
        model.partial_fit(later)
    assert_same_model(cpu, card, clean)


def as_dense(observed):
    dense = np.full(observed.shape, np.nan)
    dense[observed.rows.group_of_entry(), observed.rows.indices] = observed.rows.values
    return dense


@needs_gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_defaults_where_the_start_is_made_on_the_card(dtype):
    """So many entries that nothing of the start runs on the host; its random subsets are others, its valley the same."""
    observed, clean = low_rank(1500, 1200, 0.3, dtype=dtype)
    assert observed.n_entries * 9 > 4e6
    cpu, card = both(observed)
    assert_same_model(cpu, card, clean)
    again = copy.deepcopy(card).fit(observed)
    np.testing.assert_array_equal(again.row_factors_, card.row_factors_)


@needs_gpu
@pytest.mark.parametrize("rank", [3, 20, 40])
def test_the_same_bits_in_every_run_of_either_solver(rank):
    observed, _ = low_rank(300, 250, 0.5, dtype=np.float32)
    for settings in ({"solver": "irls"}, {"solver": "mm", "loss": "lsp", "max_iter": 3}):
        once, twice = (
            RobustMF(rank, device="cuda", random_state=0, init="ridge", n_jobs=1, **settings).fit(
                observed
            )
            for _ in range(2)
        )
        np.testing.assert_array_equal(once.row_factors_, twice.row_factors_)
        np.testing.assert_array_equal(once.column_factors_, twice.column_factors_)
        assert once.history_["objective"] == twice.history_["objective"]
