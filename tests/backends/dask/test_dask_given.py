"""Fits on a cluster from given factors equal those of one machine, for all losses and options."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, assert_same, die_once, in_pieces, set_model, settings_of, table

from robustmf import Observed, RobustMF
from robustmf.backends.dask import Triplets, loading
from robustmf.backends.dask.connection import Connection
from robustmf.distributed import initialization
from robustmf.distributed.fitting import ClusterFit
from robustmf.losses import loss_names
from robustmf.solvers import precision

LOSSES = [name for name in loss_names() if not name.startswith("smoothed")]


def initial_factors(m=60, n=40, rank=2, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, rank)), rng.normal(size=(n, rank))


class Problem:
    """Entries on the cluster and in memory; optionally with duplicates, and weights, a third 0."""

    def __init__(self, client, frame, weighted):
        twice = (
            pd.concat([frame, frame.iloc[:100].assign(rating=1.0, trust=2.0)], ignore_index=True)
            if weighted
            else frame
        )
        options = {"duplicates": "mean"} if weighted else {}
        self.observed = Observed.from_triplets(twice, **NAMES, **options)
        self.weights = None
        if weighted:
            self.weights = Observed.from_triplets(
                twice, **NAMES | {"value": "trust"}, **options
            ).rows.values
        data = Triplets(
            in_pieces(twice), blocks=2, weight="trust" if weighted else None, **NAMES, **options
        )
        self.cluster_fit = ClusterFit(client, data, None, None, np.random.default_rng(0))

    def assert_same(self, rtol=1e-5, **settings):
        """Both end at the same point after a few sweeps, before different points become similar."""
        settings = {
            "init": initial_factors(*self.observed.shape),
            "max_iter": 3,
            "tol": 1e-12,
        } | settings
        one = RobustMF(2, solver="irls", n_jobs=1, **settings).fit(
            self.observed, weights=self.weights
        )
        other = RobustMF(2, **settings)
        result, entries = self.cluster_fit.fit(settings_of(other, self.cluster_fit.matrix))
        assert_same(set_model(other, result, entries), one, rtol)
        return one


@pytest.fixture(scope="module")
def plain(client):
    return Problem(client, table(), weighted=False)


@pytest.fixture(scope="module")
def weighted(client):
    return Problem(client, table(), weighted=True)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [False, True])
def test_every_loss(plain, weighted, loss, bias):
    """θ and λ are "auto": they depend on the noise at the initial point and on the values."""
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
        plain.assert_same(init=initial_factors(61))


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("shape", [(40, 60), (45, 45)])
def test_a_wide_matrix_and_a_square_one(client, shape):
    """The side that is longer, or has the larger sums, is the first whose biases are solved for."""
    problem = Problem(client, table(*shape), weighted=True)
    problem.assert_same(loss="lsp", bias=True)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("loss", ["l2", "huber"])
def test_estimates_from_a_sample_of_the_rows(client, monkeypatch, loss):
    """All rows have the given factors; biases outside the sample are regressed on its own."""
    frame = table(150, 40)
    frame["rating"] += 10 + frame.user.str[1:].astype(int) / 30
    problem = Problem(client, frame, weighted=False)
    U, V = initial_factors(150)
    settings = {"init": (0.1 * U, 0.1 * V), "loss": loss, "bias": True, "max_iter": 1}
    found = []
    for max_given in (1 << 18, 100):
        seen = []
        options = replace(initialization.SAMPLING, max_given=max_given)
        monkeypatch.setattr(initialization, "SAMPLING", options)
        model = RobustMF(2, callbacks=[seen.append], **settings)
        result, entries = problem.cluster_fit.fit(settings_of(model, problem.cluster_fit.matrix))
        A, B = map(np.asarray, seen[0].factors)
        np.testing.assert_array_equal(A[:, :2], 0.1 * U)
        np.testing.assert_array_equal(B[:, :2], 0.1 * V)
        found.append((set_model(model, result, entries), A[:, 2], B[:, 3]))
    (whole, *biases), (sampled, *others) = found
    assert sampled.theta_ != whole.theta_ or loss == "l2"
    np.testing.assert_allclose(
        [sampled.theta_, sampled.reg_, sampled.center_],
        [whole.theta_, whole.reg_, whole.center_],
        rtol=0.15,
    )
    for one, other in zip(biases, others, strict=True):
        assert not np.array_equal(one, other)
        assert np.corrcoef(one, other)[0, 1] > 0.97
        assert np.abs(one - other).mean() < 0.1 * np.abs(one).max()


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_single_precision(client):
    problem = Problem(client, table(dtype=np.float32), weighted=False)
    problem.assert_same(2e-4, loss="geman", bias=True)
    problem.assert_same(2e-4, loss="huber", theta=0.3, reg=0.1, max_iter=12)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("loss", ["lsp", "welsch"])
def test_sweeps_in_float32_of_large_data_in_float64(plain, weighted, monkeypatch, loss):
    """Rounding differs because columns are in another order."""
    exact = plain.assert_same(loss=loss, reg=0.2)
    monkeypatch.setattr(precision, "OPTIONS", replace(precision.OPTIONS, min_entries=0))
    rough = plain.assert_same(2e-4, loss=loss, reg=0.2)
    assert not np.array_equal(exact.row_factors_, rough.row_factors_)
    weighted.assert_same(2e-4, loss=loss, bias=True)


@pytest.mark.parametrize(
    "settings", [{"loss": "l2", "reg": 1e-3}, {"loss": "geman", "bias": True, "reg": 0.01}], ids=str
)
def test_holdout_stops_both_at_the_same_iteration(client, settings):
    frame = table(80, 50, 2, 0.4)
    settings = settings | {
        "init": initial_factors(80, 50, 4),
        "validation_fraction": 0.2,
        "patience": 3,
        "random_state": 7,
        "tol": 1e-9,
    }
    one = RobustMF(4, solver="irls", **settings).fit(
        Observed.from_triplets(frame, **NAMES), weights=frame.trust
    )
    model = RobustMF(4, **settings).fit(
        Triplets(in_pieces(frame), weight="trust", **NAMES), client=client
    )
    assert "patience=3" in one.stop_reason_
    assert_same(model, one)
    assert (model.stop_reason_, model.best_iteration_) == (one.stop_reason_, one.best_iteration_)
    np.testing.assert_allclose(model.history_["validation"], one.history_["validation"], rtol=1e-5)


def test_one_block_has_the_initialization_of_one_machine(client):
    frame = table()
    observed = Observed.from_triplets(frame, **NAMES)
    # the learned ridge differs: on a cluster it does not depend on the row
    settings = {"random_state": 0, "validation_fraction": 0.1, "reg": 0.05}
    one = RobustMF(2, solver="irls", **settings).fit(observed)
    model = RobustMF(2, **settings).fit(
        Triplets(in_pieces(frame), blocks=1, **NAMES), client=client
    )
    assert_same(model, one, 1e-9)
    assert model.history_["validation"] == pytest.approx(one.history_["validation"], rel=1e-9)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_workers_killed_during_holdout_selection_and_estimation(client, tmp_path, monkeypatch):
    frame = table()
    settings = {
        "init": initial_factors(),
        "loss": "l1",
        "bias": True,
        "validation_fraction": 0.1,
        "random_state": 0,
        "max_iter": 2,
    }
    wanted = RobustMF(2, **settings).fit(
        Triplets(in_pieces(frame), blocks=3, **NAMES), client=client
    )
    for module, name in ((loading, "_mark_retained"), (initialization, "sample_rows")):
        monkeypatch.setattr(
            module, name, partial(die_once, str(tmp_path / name), getattr(module, name))
        )
    killed = RobustMF(2, **settings).fit(
        Triplets(in_pieces(frame), blocks=3, **NAMES), client=client
    )
    assert {path.name for path in tmp_path.iterdir()} == {"_mark_retained", "sample_rows"}
    assert np.array_equal(killed.row_factors_, wanted.row_factors_)


def test_threshold_of_the_holdout(client):
    """The key of a rank among those that are not retained, of keys in several blocks."""
    keys = np.random.default_rng(0).integers(0, 1 << 64, 20_000, np.uint64)
    keys[:3000] = loading.RETAINED
    keys[3000:3010] = np.arange(10)
    connection = Connection(client, "")
    blocks = client.scatter([keys[:7], keys[7:7], keys[7:]])
    for rank in (0, 5, 999, 16_999):
        assert loading._select_rank(connection, blocks, rank) == np.sort(keys)[rank]
    assert loading._select_rank(connection, blocks, 17_000) == loading.RETAINED
