"""A fit on a cluster from a start that was given: that of one machine, whatever the loss, with biases, weights and entries set aside."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, assert_same, die_once, in_pieces, table

from robustmf import Observed, RobustMF
from robustmf.backends.dask import Triplets, choice, fitting, given
from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.medians import Scattered, of_ranks
from robustmf.initialization.scales import Held
from robustmf.losses import loss_names
from robustmf.solvers import precision

LOSSES = [name for name in loss_names() if not name.startswith("smoothed")]


def start(m=60, n=40, rank=2, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, rank)), rng.normal(size=(n, rank))


class Problem:
    """The same entries on the cluster and here; in pieces, some of them given twice, and with weights, a third of them 0."""

    def __init__(self, client, frame, weighted):
        twice = (
            pd.concat([frame, frame.iloc[:100].assign(rating=1.0, trust=2.0)], ignore_index=True)
            if weighted
            else frame
        )
        options = {"duplicates": "mean"} if weighted else {}
        self.observed, self.weights = Observed.from_triplets(twice, **NAMES, **options), None
        if weighted:
            self.weights = Observed.from_triplets(
                twice, **NAMES | {"value": "trust"}, **options
            ).rows.values
        data = Triplets(
            in_pieces(twice), blocks=2, weight="trust" if weighted else None, **NAMES, **options
        )
        self.job = fitting.Job(client, data, None, None, np.random.default_rng(0))

    def assert_same(self, rtol=1e-5, **settings):
        """Both end at the same point; a few sweeps, before all starts come to one."""
        settings = {"init": start(*self.observed.shape), "max_iter": 3, "tol": 1e-12} | settings
        one = RobustMF(2, solver="irls", n_jobs=1, **settings).fit(
            self.observed, weights=self.weights
        )
        other = RobustMF(2, **settings)
        found, seen = self.job.fit(other._settings(self.job.matrix, ()))
        other._set_model(found, seen, None, seen.n_entries)
        assert_same(other, one, rtol)
        return one


@pytest.fixture(scope="module")
def plain(client):
    return Problem(client, table(), weighted=False)


@pytest.fixture(scope="module")
def weighted(client):
    return Problem(client, table(), weighted=True)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [False, True])
def test_every_loss(plain, weighted, loss, bias):
    """θ is "auto": it follows the noise that is measured at the start; and λ, which follows the scale of the values."""
    if bias:
        weighted.assert_same(loss=loss, bias=True)
    else:
        plain.assert_same(loss=loss, reg=0.2)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_other_settings(plain, weighted):
    assert not weighted.assert_same(loss="l1", bias="auto", reg_by_count=True).has_bias_
    plain.assert_same(loss="lsp", theta=0.7, reg=0.2, bias=True, reg_by_count=True)
    with pytest.raises(
        ValueError, match=r"init=\(U, V\) must have shapes \(60, 2\), \(40, 2\), got \(61, 2\)"
    ):
        plain.assert_same(init=start(61))


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("shape", [(40, 60), (45, 45)])
def test_scales_from_a_sample_of_the_entries_of_a_wide_matrix_and_a_square_one(
    client, monkeypatch, shape
):
    """Which entries one machine takes depends on the order of its rows and columns, and on which side it takes for the rows."""
    problem = Problem(client, table(*shape), weighted=True)
    whole = problem.assert_same(loss="lsp", bias=True)
    monkeypatch.setattr("robustmf.initialization.problem.SAMPLE", 100)
    assert problem.assert_same(loss="lsp", bias=True).theta_ != pytest.approx(
        whole.theta_, rel=1e-3
    )


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_single_precision(client):
    problem = Problem(client, table(dtype=np.float32), weighted=False)
    problem.assert_same(2e-4, loss="geman", bias=True)
    problem.assert_same(2e-4, loss="huber", theta=0.3, reg=0.1, max_iter=12)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("loss", ["lsp", "welsch"])
def test_sweeps_in_float32_of_large_data_in_float64(plain, weighted, monkeypatch, loss):
    """Large enough for them is here any size; rounding differs, as columns are in another order."""
    exact = plain.assert_same(loss=loss, reg=0.2)
    monkeypatch.setattr(precision, "OPTIONS", replace(precision.OPTIONS, min_entries=0))
    rough = plain.assert_same(2e-4, loss=loss, reg=0.2)
    assert not np.array_equal(exact.row_factors_, rough.row_factors_)
    weighted.assert_same(2e-4, loss=loss, bias=True)


@pytest.mark.parametrize(
    "settings", [{"loss": "l2", "reg": 1e-3}, {"loss": "geman", "bias": True, "reg": 0.01}], ids=str
)
def test_entries_set_aside_stop_both_at_the_same_place(client, settings):
    frame = table(80, 50, 2, 0.4)
    weights = Observed.from_triplets(frame, **NAMES | {"value": "trust"}).rows.values
    settings = settings | {
        "init": start(80, 50, 4),
        "validation_fraction": 0.2,
        "patience": 3,
        "random_state": 7,
        "tol": 1e-9,
    }
    one = RobustMF(4, solver="irls", **settings).fit(
        Observed.from_triplets(frame, **NAMES), weights=weights
    )
    model = RobustMF(4, **settings).fit(
        Triplets(in_pieces(frame), weight="trust", **NAMES), client=client
    )
    assert "patience=3" in one.stop_reason_
    assert_same(model, one)
    assert (model.stop_reason_, model.best_iteration_) == (one.stop_reason_, one.best_iteration_)
    np.testing.assert_allclose(model.history_["validation"], one.history_["validation"], rtol=1e-5)


def test_one_block_has_the_start_of_one_machine(client):
    frame = table()
    observed, settings = (
        Observed.from_triplets(frame, **NAMES),
        {"random_state": 0, "validation_fraction": 0.1},
    )
    one = RobustMF(2, solver="irls", **settings).fit(observed)
    model = RobustMF(2, **settings).fit(
        Triplets(in_pieces(frame), blocks=1, **NAMES), client=client
    )
    assert_same(model, one, 1e-9)
    assert model.history_["validation"] == pytest.approx(one.history_["validation"], rel=1e-9)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_workers_killed_while_entries_are_chosen_and_the_start_is_measured(
    client, tmp_path, monkeypatch
):
    frame = table()
    settings = {
        "init": start(),
        "loss": "l1",
        "bias": True,
        "validation_fraction": 0.1,
        "random_state": 0,
        "max_iter": 2,
    }
    wanted = RobustMF(2, **settings).fit(
        Triplets(in_pieces(frame), blocks=3, **NAMES), client=client
    )
    for module, name in ((choice, "_marked"), (given, "_residuals")):
        monkeypatch.setattr(
            module, name, partial(die_once, str(tmp_path / name), getattr(module, name))
        )
    killed = RobustMF(2, **settings).fit(
        Triplets(in_pieces(frame), blocks=3, **NAMES), client=client
    )
    assert {path.name for path in tmp_path.iterdir()} == {"_marked", "_residuals"}
    assert np.array_equal(killed.row_factors_, wanted.row_factors_)


NUMBERS = {
    "normal": lambda rng: rng.normal(size=1001),
    "many": lambda rng: rng.normal(size=40_000),
    "single": lambda rng: rng.normal(size=1000).astype(np.float32),
    "stars": lambda rng: rng.integers(1, 6, 9000) / 2,
    "halves": lambda rng: np.repeat([-1.0, 2.0], 5000),
    "one": lambda rng: np.array([-3.5]),
    "close": lambda rng: 1 + 1e-12 * rng.integers(0, 1000, 9001),
    "far": lambda rng: np.sign(rng.normal(size=5000)) * np.exp(rng.uniform(-700, 700, 5000)),
    "zeros": lambda rng: np.where(rng.random(6000) < 0.5, 0.0, -0.0),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_medians_of_parts(client, kind):
    rng = np.random.default_rng(0)
    numbers = NUMBERS[kind](rng)
    parts = np.split(rng.permutation(numbers), [len(numbers) // 5, len(numbers) // 2])
    scattered, held = (
        Scattered(Connection(client, ""), client.scatter(parts), numbers.dtype),
        Held(numbers),
    )
    assert scattered.median() == held.median()
    assert scattered.mean() == pytest.approx(held.mean(), rel=1e-12)
    middle, far = held.median(), held.distances(held.median()).median()
    assert (
        scattered.distances(middle).within(0.0, 2 * far).median()
        == held.distances(middle).within(0.0, 2 * far).median()
    )
    assert len(scattered.within(middle, far)) == len(held.within(middle, far))


def test_ranks_of_hashes(client):
    keys = np.random.default_rng(0).integers(0, 1 << 64, 20_000, np.uint64)
    keys[:3000] = (1 << 64) - 1
    keys[3000:3010] = np.arange(10)
    found = of_ranks(
        Connection(client, ""),
        client.scatter([keys[:7], keys[7:7], keys[7:]]),
        keys.dtype,
        lambda n: [0, 5, 999, n - 1],
    )
    assert np.array_equal(found, np.sort(keys)[[0, 5, 999, -1]])
