"""The estimator with its defaults on both backends: choices, predictions and all methods."""

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

slow_in_interpreter = pytest.mark.skipif(
    INTERPRETED, reason="takes Triton's interpreter minutes; make gpu-test runs it on a GPU"
)

#: Few sweeps in Triton's interpreter, which takes a second for each.
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
    """Ratings in half stars, mostly row and column effects: biases and a large λ are best."""
    rng = np.random.default_rng(seed)
    clean = 3.4 + 0.5 * rng.standard_normal((m, 1)) + 0.6 * rng.standard_normal(n)
    clean = clean + 0.1 * rng.standard_normal((m, 2)) @ rng.standard_normal((n, 2)).T
    X = np.clip(np.rint(2 * (clean + noise * rng.standard_normal(clean.shape))) / 2, 0.5, 5)
    X[rng.random(X.shape) > share] = np.nan
    return Observed.from_dense(X.astype(dtype)), clean


def both(observed, **settings):
    """The same fit on the CPU and on the GPU."""
    settings = {"rank": 3, "random_state": 0, "n_jobs": 1} | SWEEPS | settings
    return [RobustMF(device=device, **settings).fit(observed) for device in ("cpu", "cuda")]


def assert_same_model(cpu, gpu, clean):
    """The same choices; RMSE against the clean matrix and predictions equal to 1e-3."""
    assert (gpu.has_bias_, gpu.solver_, set(gpu.history_)) == (
        cpu.has_bias_,
        cpu.solver_,
        set(cpu.history_),
    )
    assert (gpu.reg_, gpu.theta_) == pytest.approx((cpu.reg_, cpu.theta_), rel=1e-3)
    i, j = np.indices(clean.shape)
    of_cpu, of_gpu = (
        model.predict(i.ravel(), j.ravel()).reshape(clean.shape) for model in (cpu, gpu)
    )
    rmse, other = (np.sqrt(np.mean((of - clean) ** 2)) for of in (of_cpu, of_gpu))
    assert other == pytest.approx(rmse, rel=1e-3)
    assert np.sqrt(np.mean((of_gpu - of_cpu) ** 2)) < 1e-3 * max(rmse, clean.std())


def assert_same_results(cpu, gpu, observed, tmp_path):
    """Fold-in, scores, weights, outlier scores, recommendations; and all again from a file."""
    size = np.abs(np.asarray(cpu.column_factors_)).max() or 1.0
    np.testing.assert_allclose(
        gpu.transform(observed), cpu.transform(observed), atol=1e-3 * max(1, 1 / size)
    )
    assert gpu.score(observed, rows="fitted") == pytest.approx(
        cpu.score(observed, rows="fitted"), rel=1e-3
    )
    np.testing.assert_allclose(gpu.entry_weights(observed), cpu.entry_weights(observed), atol=1e-2)
    np.testing.assert_allclose(gpu.outlier_scores(), cpu.outlier_scores(), atol=1e-2)
    few = np.arange(5)
    np.testing.assert_array_equal(gpu.recommend(few, 3).items, cpu.recommend(few, 3).items)
    gpu.save(tmp_path / "model.rmf")
    again = load(tmp_path / "model.rmf")
    assert again.device == "cuda"
    np.testing.assert_array_equal(again.row_factors_, gpu.row_factors_)
    np.testing.assert_array_equal(again.recommend(few, 3).items, gpu.recommend(few, 3).items)
    np.testing.assert_array_equal(again.transform(observed), gpu.transform(observed))


def test_defaults_on_a_strong_signal(tmp_path):
    observed, clean = low_rank(*(24, 20, 0.8) if INTERPRETED else (300, 200, 0.4))
    cpu, gpu = both(observed)
    assert not cpu.has_bias_
    assert_same_model(cpu, gpu, clean)
    if not INTERPRETED:  # hundreds of half-steps
        assert_same_results(cpu, gpu, observed, tmp_path)


@pytest.mark.parametrize(
    "size", [(60, 50, 0.8, 0.7), pytest.param((400, 300, 0.2, 1.0), marks=slow_in_interpreter)]
)
@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=slow_in_interpreter), np.float32])
def test_defaults_on_ratings_choose_the_same_reg_and_biases(size, dtype, tmp_path):
    observed, clean = stars(*size, dtype)
    cpu, gpu = both(observed, bounds=(0.5, 5.0))
    assert cpu.has_bias_
    assert gpu.reg_ == cpu.reg_
    assert_same_model(cpu, gpu, clean)
    if not INTERPRETED:
        assert_same_results(cpu, gpu, observed, tmp_path)


@slow_in_interpreter
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_reg_and_biases_are_chosen_on_the_gpu_as_on_the_cpu(dtype, monkeypatch):
    options = replace(regularization.OPTIONS, host_work=0, sample=10_000)
    monkeypatch.setattr(regularization, "OPTIONS", options)
    observed, clean = stars(400, 300, 0.2, 1.0, dtype)
    cpu, gpu = both(observed, bounds=(0.5, 5.0))
    assert cpu.has_bias_
    # λ is doubled until it is too large: the next choice would differ by a factor of 2
    assert gpu.reg_ == pytest.approx(cpu.reg_, rel=1e-4)
    assert_same_model(cpu, gpu, clean)


def test_defaults_with_held_out_entries():
    observed, clean = low_rank(*(24, 20, 0.8) if INTERPRETED else (300, 200, 0.4))
    cpu, gpu = both(observed, validation_fraction=0.1)
    assert_same_model(cpu, gpu, clean)
    np.testing.assert_allclose(gpu.history_["validation"], cpu.history_["validation"], rtol=1e-3)
    assert gpu.best_iteration_ == cpu.best_iteration_


def test_partial_fit_with_more_rows():
    m, n = (24, 20) if INTERPRETED else (300, 200)
    observed, clean = low_rank(m, n, 0.8)
    dense = as_dense(observed)
    first = Observed.from_dense(dense[: m - 4])
    later = Observed.from_dense(dense[m - 4 :])
    # the repair of rows, which follows with a robust loss, takes the interpreter minutes
    cpu, gpu = both(first, loss="l2" if INTERPRETED else "welsch")
    for model in (cpu, gpu):
        model.partial_fit(later)
    assert_same_model(cpu, gpu, clean)


def as_dense(observed):
    dense = np.full(observed.shape, np.nan)
    dense[observed.rows.group_of_entry(), observed.rows.indices] = observed.rows.values
    return dense


@slow_in_interpreter
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_defaults_where_the_initialization_runs_on_the_gpu(dtype):
    """Too many entries for the host: other random subsets, the same local minimum."""
    observed, clean = low_rank(1500, 1200, 0.3, dtype=dtype)
    assert observed.n_entries * 9 > 4e6
    cpu, gpu = both(observed)
    assert_same_model(cpu, gpu, clean)
    again = copy.deepcopy(gpu).fit(observed)
    np.testing.assert_array_equal(again.row_factors_, gpu.row_factors_)


@slow_in_interpreter
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
