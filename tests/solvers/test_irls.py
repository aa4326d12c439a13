"""The workhorse: descent for every loss, biases, weights, starts that find the right valley."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import oracles
from conftest import random_problem
from robustmf import MM, RobustMF
from robustmf.backends.cpu import operations as operations_module
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.datasets import make_synthetic
from robustmf.datasets.oracle import oracle_factors
from robustmf.exceptions import NotConvergedWarning, RobustMFWarning
from robustmf.initialization.problem import Problem
from robustmf.kernels import team as team_module
from robustmf.losses import Loss, loss_names, make_loss
from robustmf.solvers import irls as irls_module
from robustmf.solvers.irls import IRLS, IRLSOptions
from robustmf.solvers.mm.criticality import criticality
from robustmf.solvers.objective import Objective
from robustmf.solvers.registry import is_worth_eliminating


@pytest.mark.parametrize("name", loss_names())
def test_objective_never_rises(name, dtype):
    observed, U, V = random_problem(50, 40, 3, dtype=dtype)
    model = RobustMF(
        3, loss=name, theta=None, solver="irls", init=(U, V), tol=1e-4, max_iter=2000
    ).fit(observed)
    objective = np.array(model.history_["objective"])
    assert np.all(np.diff(objective) <= (1e-10 if dtype == np.float64 else 1e-5) * objective[0])
    assert objective[-1] < 0.9 * objective[0]
    assert model.row_factors_.dtype == dtype


@pytest.mark.parametrize(
    "name", ["l2", "huber", "cauchy", "welsch", "tukey", "geman-mcclure", "smoothed-lsp"]
)
def test_ends_where_the_gradient_vanishes(name, team):
    observed, U, V = random_problem(50, 40, 3, share=0.6)
    model = RobustMF(
        3, loss=name, theta=None, reg=0.3, solver="irls", init=(U, V), tol=1e-11, max_iter=20000
    ).fit(observed)
    operations, objective = CPUOperations(observed, team), Objective(model.loss_, 0.3)
    start = criticality(operations, objective, U, V, operations.residuals(U, V))
    end = criticality(
        operations,
        objective,
        *(pair := (model.row_factors_, model.column_factors_)),
        operations.residuals(*pair),
    )
    assert end < 1e-3 * start


def test_a_loss_of_ones_own_compiled_or_not():
    @dataclass(frozen=True)
    class Root(Loss):
        name = "root"

        def _value(self, a):
            return np.sqrt(1 + a * a) - 1

        def _derivative(self, a):
            return a / np.sqrt(1 + a * a)

    @dataclass(frozen=True)
    class CompiledRoot(Root):
        @staticmethod
        def weight_formula(a, theta):
            return 1 / np.sqrt(1 + a * a)

    observed, U, V = random_problem()
    fits = [
        RobustMF(3, loss=loss, theta=None, solver="irls", init=(U, V), tol=1e-8).fit(observed)
        for loss in (Root(), CompiledRoot())
    ]
    np.testing.assert_allclose(fits[0].row_factors_, fits[1].row_factors_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("m", [250, 500])
def test_defaults_reach_the_oracle(m):
    ratios = []
    for seed in range(6):
        data = make_synthetic(m, random_state=500 + seed)
        model = RobustMF(5, random_state=seed).fit(data.train)
        ratios.append(
            data.test_rmse(model.row_factors_, model.column_factors_)
            / data.test_rmse(*oracle_factors(data, 20 / (2 * m)))
        )
    assert max(ratios) <= 1.05, ratios
    assert np.median(ratios) <= 1.02, ratios


@pytest.mark.parametrize(("share", "magnitude"), [(0.2, 5.0), (0.25, 5.0), (0.3, 50.0), (0.0, 5.0)])
def test_defaults_survive_many_outliers(share, magnitude):
    ratios = []
    for seed in range(3):
        data = make_synthetic(500, outliers=share, magnitude=magnitude, random_state=700 + seed)
        model = RobustMF(5, random_state=seed).fit(data.train)
        ratios.append(
            data.test_rmse(model.row_factors_, model.column_factors_)
            / data.test_rmse(*oracle_factors(data, 0.02))
        )
    assert np.median(ratios) <= 1.1, ratios


def test_a_ridge_that_does_not_fall_with_the_noise_tells_wrong_rows_from_right_ones():
    """35 % outliers: with the ridge of the noise alone, none of these four ends in the right valley."""
    found = 0
    for seed in (6, 24, 26, 38):
        data = make_synthetic(500, outliers=0.35, random_state=97_000 + seed)
        model = RobustMF(5, random_state=seed).fit(data.train)
        found += data.test_rmse(model.row_factors_, model.column_factors_) <= 1.1 * data.test_rmse(
            *oracle_factors(data, 0.02)
        )
    assert found >= 2


def test_theta_is_found_at_every_scale():
    for scale in (1e-3, 1.0, 1e3):
        data = make_synthetic(250, random_state=3)
        train = data.train.with_values(scale * data.train.rows.values)
        model = RobustMF(5, reg=scale * 0.04, random_state=0).fit(train)
        assert model.theta_ / scale == pytest.approx(np.sqrt(2) * 2.1105 * 0.085, rel=0.3)
        error = data.test_rmse(
            model.row_factors_ / np.sqrt(scale), model.column_factors_ / np.sqrt(scale)
        )
        assert error < 0.1


def test_biases_are_found_and_used():
    rng = np.random.default_rng(0)
    b, c = 2 * rng.standard_normal(120), rng.standard_normal(90)
    clean = (
        10 + b[:, None] + c[None, :] + rng.standard_normal((120, 2)) @ rng.standard_normal((2, 90))
    )
    X = clean + 0.1 * rng.standard_normal(clean.shape)
    X[rng.random(X.shape) < 0.05] += 20
    X[rng.random(X.shape) < 0.5] = np.nan
    model = RobustMF(2, bias=True, random_state=0).fit(X)
    i, j = np.indices(X.shape)
    assert np.sqrt(np.mean((model.predict(i, j) - clean) ** 2)) < 0.07
    assert np.corrcoef(model.row_bias_, b)[0, 1] > 0.98
    assert np.all(np.diff(model.history_["objective"]) <= 1e-9)
    folded = model.transform(X)
    assert folded.shape == (120, 3)
    assert np.sqrt(np.mean((model.inverse_transform(folded) - clean) ** 2)) < 0.08
    without = RobustMF(2, random_state=0).fit(X)
    assert np.sqrt(np.mean((without.predict(i, j) - clean) ** 2)) > 0.5, (
        "rank 2 alone cannot hold the biases"
    )


def test_sample_weights_mean_what_they_say():
    observed, U, V = random_problem(40, 30, 3, share=0.7)
    keep = np.arange(observed.n_entries) % 4 > 0
    common = {
        "rank": 3,
        "theta": 1.0,
        "reg": 0.2,
        "solver": "irls",
        "init": (U, V),
        "tol": 1e-10,
        "max_iter": 3000,
    }
    weighted = RobustMF(**common).fit(observed, weights=keep.astype(float))
    dropped = RobustMF(**common).fit(observed.select(keep))
    np.testing.assert_allclose(weighted.row_factors_, dropped.row_factors_, atol=1e-6)
    doubled = RobustMF(**common | {"reg": 0.4}).fit(
        observed, weights=np.full(observed.n_entries, 2.0)
    )
    plain = RobustMF(**common).fit(observed)
    np.testing.assert_allclose(doubled.row_factors_, plain.row_factors_, atol=1e-6)
    dense = np.zeros(observed.shape)
    dense[observed.rows.group_of_entry(), observed.rows.indices] = keep
    np.testing.assert_array_equal(
        RobustMF(**common).fit(observed, weights=dense).row_factors_, weighted.row_factors_
    )
    for bad, message in (
        ([1.0], "one number an observed entry"),
        (-keep.astype(float), ">= 0"),
        (keep.astype(str), "numbers"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            RobustMF(**common).fit(observed, weights=bad)


def test_regularisation_by_count():
    observed, U, V = random_problem()
    common = {
        "rank": 3,
        "loss": "l2",
        "reg": 0.1,
        "solver": "irls",
        "init": (U, V),
        "max_iter": 5000,
        "tol": 1e-13,
    }
    model = RobustMF(**common, reg_by_count=True).fit(observed)
    counts = observed.rows.counts
    X, rows = oracles.dense(observed, observed.rows.values), observed.rows
    i = int(np.argmax(counts))
    seen = rows.indices[rows.pointers[i] : rows.pointers[i + 1]]
    Q = model.column_factors_[seen]
    np.testing.assert_allclose(
        model.row_factors_[i],
        np.linalg.solve(Q.T @ Q + 0.1 * counts[i] * np.eye(3), Q.T @ X[i, seen]),
        atol=1e-4,
    )


def test_several_starts_keep_the_best():
    observed, *_ = random_problem(30, 25, 3, share=0.5)
    common = {
        "rank": 3,
        "loss": "l2",
        "solver": "irls",
        "init": "random",
        "random_state": 0,
        "tol": 1e-6,
        "max_iter": 2000,
    }
    one, five = RobustMF(**common).fit(observed), RobustMF(**common, n_init=5).fit(observed)
    assert five.history_["objective"][-1] <= one.history_["objective"][-1]


def test_auto_chooses_by_shape_filling_and_loss_and_says_why():
    wide = np.random.default_rng(0).standard_normal((20, 300))
    square = np.random.default_rng(0).standard_normal((60, 60))
    sparse = np.where(np.random.default_rng(1).random(wide.shape) < 0.45, wide, np.nan)
    few = np.where(np.add.outer(np.arange(20), np.arange(300)) % 10 == 0, wide, np.nan)
    assert RobustMF(2, random_state=0).fit(sparse).solver_ == "varpro"
    assert RobustMF(2, random_state=0).fit(few).solver_ == "irls"  # 0.9 entries a parameter
    assert is_worth_eliminating((72, 4983), 32_900, 4, nonsmooth=False)  # all tracks of Dinosaur, 1.6
    assert RobustMF(2, loss="l1", random_state=0).fit(wide).solver_ == "varpro"
    assert RobustMF(2, random_state=0).fit(wide).solver_ == "irls"
    model = RobustMF(2, random_state=0).fit(square)
    assert model.solver_ == "irls"
    assert "60 × 60" in model.solver_reason_
    assert RobustMF(2, bias=True, random_state=0).fit(wide).solver_ == "irls"
    with pytest.raises(ValueError, match="need solver='irls'"):
        RobustMF(2, bias=True, solver="varpro").fit(wide)


def test_certify_ends_at_a_critical_point(team):
    data = make_synthetic(60, 50, rank=3, observed=0.8, random_state=0)
    fast = RobustMF(3, loss="lsp", theta=1.0, solver="irls", random_state=0).fit(data.train)
    sure = RobustMF(
        3,
        loss="lsp",
        theta=1.0,
        solver="irls",
        random_state=0,
        certify=MM(max_iter=2000),
        max_iter=3000,
    ).fit(data.train)
    operations, objective = (
        CPUOperations(data.train, team),
        Objective(make_loss("lsp", 1.0), sure.reg_),
    )
    before = criticality(
        operations,
        objective,
        *(p := (fast.row_factors_, fast.column_factors_)),
        operations.residuals(*p),
    )
    assert np.isnan(fast.criticality_)
    assert sure.criticality_ < 0.01 * before
    assert "by mm after" in sure.stop_reason_
    with pytest.raises(ValueError, match="loss='welsch' is not"):
        RobustMF(3, certify=True).fit(data.train)


@pytest.mark.parametrize(("loss", "share"), [("welsch", 0.05), ("welsch", 0.25), ("lsp", 0.05)])
def test_threads_do_not_change_a_bit(monkeypatch, loss, share):
    monkeypatch.setattr(team_module, "_SMALL_WORK", 0)
    monkeypatch.setattr(operations_module, "SLICE", 300)
    data = make_synthetic(150, outliers=share, random_state=1)
    fits = [
        RobustMF(4, loss=loss, random_state=0, n_jobs=n_jobs).fit(data.train)
        for n_jobs in (1, 2, 4)
    ]
    for other in fits[1:]:
        assert np.array_equal(fits[0].row_factors_, other.row_factors_)
        assert fits[0].history_["objective"] == other.history_["objective"]


def test_a_kinked_loss_ends_where_mm_does_in_far_fewer_passes():
    data = make_synthetic(300, random_state=3).train
    start = RobustMF(5, loss="l2", solver="irls", init="ridge", random_state=0).fit(data)
    init = (start.row_factors_, start.column_factors_)
    mm, irls = (
        RobustMF(5, loss="lsp", theta=1.0, solver=solver, init=init).fit(data)
        for solver in ("mm", "irls")
    )
    assert irls.history_["objective"][-1] < 1.001 * mm.history_["objective"][-1]
    assert irls.n_iter_ < 0.1 * sum(mm.history_["inner_iterations"])


@pytest.mark.parametrize("solver", ["irls", "varpro"])
@pytest.mark.parametrize(
    "X",
    [
        np.outer(np.arange(1, 31), np.arange(1, 13)).astype(float),
        np.ones((30, 12)),
        np.zeros((30, 12)),
        1e30 * np.random.default_rng(0).standard_normal((30, 12)),
        1e-30 * np.random.default_rng(0).standard_normal((30, 12)),
        np.random.default_rng(0).standard_normal((30, 12)) * 10.0 ** np.arange(-6, 6),
        np.random.default_rng(0).integers(1, 6, (30, 12)),
        np.random.default_rng(0).standard_normal((30, 12)).astype(np.float32),
    ],
    ids=[
        "ints-as-floats",
        "constant",
        "zero",
        "1e30",
        "1e-30",
        "mixed-scales",
        "integers",
        "float32",
    ],
)
def test_odd_values_give_finite_factors(X, solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        model = RobustMF(3, solver=solver, random_state=0).fit(X)
    assert np.all(np.isfinite(model.row_factors_))
    assert np.all(np.isfinite(model.column_factors_))


def test_hard_cases_stay_finite_and_sensible():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 50)) + 0.05 * rng.standard_normal(
        (60, 50)
    )
    wrong_row = X.copy()
    wrong_row[7] = 1000 * rng.standard_normal(50)  # every entry of a row is an outlier
    model = RobustMF(3, random_state=0).fit(wrong_row)
    assert np.all(np.isfinite(model.row_factors_))
    others = np.arange(60) != 7
    assert np.abs(model.inverse_transform(model.row_factors_) - X)[others].max() < 0.5
    tiny = RobustMF(3, theta=1e-9, random_state=0).fit(X)
    assert np.all(np.isfinite(tiny.row_factors_))
    few = X.copy()
    few[3, 2:] = np.nan  # fewer entries than factors
    assert np.all(np.isfinite(RobustMF(3, random_state=0).fit(few).row_factors_))


def test_options_that_cannot_go_together_are_refused():
    observed, *_ = random_problem()
    for option in ({"bias": True}, {"reg_by_count": True}):
        with pytest.raises(ValueError, match="certify=True goes with the plain model"):
            RobustMF(3, loss="lsp", certify=True, **option).fit(observed)


def test_fold_in_knows_regularisation_by_count():
    observed, *_ = random_problem()
    model = RobustMF(
        3,
        loss="l2",
        reg=0.1,
        reg_by_count=True,
        solver="irls",
        tol=1e-12,
        max_iter=5000,
        random_state=0,
    ).fit(observed)
    np.testing.assert_allclose(model.transform(observed), model.row_factors_, atol=1e-3)


def test_stopping_ends_the_whole_fit():
    observed, *_ = random_problem()
    seen = []
    RobustMF(
        3,
        n_init=5,
        random_state=0,
        solver="irls",
        callbacks=[lambda s: seen.append(s.iteration) or True],
    ).fit(observed)
    assert seen == [0]


def test_several_starts_with_their_own_theta_keep_a_good_one():
    data = make_synthetic(250, outliers=0.2, random_state=4)
    one, four = (RobustMF(5, random_state=1, n_init=k).fit(data.train) for k in (1, 4))
    assert data.test_rmse(four.row_factors_, four.column_factors_) <= 1.05 * data.test_rmse(
        one.row_factors_, one.column_factors_
    )


def test_entries_without_weight_do_not_matter_at_all():
    data = make_synthetic(120, rank=3, observed=0.6, random_state=5)
    keep = np.arange(data.train.n_entries) % 5 > 0
    wild = data.train.with_values(np.where(keep, data.train.rows.values, 1e6))
    weighted = RobustMF(3, random_state=0, solver="irls").fit(wild, weights=keep.astype(float))
    dropped = RobustMF(3, random_state=0, solver="irls").fit(data.train.select(keep))
    assert weighted.theta_ == dropped.theta_
    np.testing.assert_allclose(weighted.row_factors_, dropped.row_factors_, atol=1e-9)


def test_entry_weights_tell_outliers_from_clean_entries():
    data = make_synthetic(250, random_state=6)
    for loss in ("welsch", "lsp"):
        weights = RobustMF(5, loss=loss, random_state=0).fit(data.train).entry_weights(data.train)
        assert weights.max() <= 1
        assert weights[data.train_outliers].max() < weights[~data.train_outliers].min() + 0.6
        assert np.median(weights[data.train_outliers]) < 0.3 * np.median(
            weights[~data.train_outliers]
        )


@pytest.mark.parametrize("solver", ["auto", "varpro"])
def test_outliers_that_form_a_pattern_do_not_fool_the_defaults(solver):
    """README's example: bad entries on a grid, which an l1 fit prefers to the truth."""
    clean = np.random.default_rng(0).normal(size=(200, 3)) @ np.random.default_rng(1).normal(
        size=(3, 100)
    )
    X = clean.copy()
    X[::7, ::5] += 50
    X[::3, ::2] = np.nan
    model = RobustMF(rank=3, solver=solver, random_state=0).fit(X)
    assert np.sqrt(np.mean((model.inverse_transform(model.row_factors_) - clean) ** 2)) < 0.05
    weights = model.entry_weights(X)
    bad = (X - clean)[~np.isnan(X)] > 25
    assert weights[bad].max() < 0.01
    assert np.median(weights[~bad]) > 0.9


@pytest.mark.parametrize("solver", ["irls", "varpro"])
@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2])
def test_low_noise_does_not_collapse(solver, noise):
    rng = np.random.default_rng(3)
    clean = rng.normal(size=(100, 2)) @ rng.normal(size=(2, 20))
    X = clean + noise * rng.normal(size=clean.shape)
    X[rng.random(clean.shape) < 0.05] += 10
    model = RobustMF(2, solver=solver, random_state=0).fit(X)
    assert np.sqrt(np.mean((model.inverse_transform(model.row_factors_) - clean) ** 2)) < max(
        noise, 0.02
    )


@pytest.mark.parametrize("scale", [1e-3, 1e-1, 10.0, 1e3])
def test_the_unit_of_the_data_does_not_matter(scale):
    data = make_synthetic(120, rank=3, observed=0.6, random_state=0)
    plain, scaled = (
        RobustMF(3, random_state=0).fit(data.train.with_values(c * data.train.rows.values))
        for c in (1.0, scale)
    )
    error = data.test_rmse(
        scaled.row_factors_ / np.sqrt(scale), scaled.column_factors_ / np.sqrt(scale)
    )
    assert error == pytest.approx(
        data.test_rmse(plain.row_factors_, plain.column_factors_), rel=1e-3
    )


_PEAK = """
import sys, numpy as np
from robustmf import RobustMF, Observed
from robustmf.data.observed import Compressed
small = np.random.default_rng(0).standard_normal((50, 40)).astype("f4")
RobustMF(8, solver=sys.argv[1], loss=sys.argv[2], theta=1.0, init="ridge", max_iter=2, tol=1e-9).fit(small)
m, n, a_row = 60_000, 20_000, 100
rng = np.random.default_rng(0)
columns = (rng.integers(0, n // a_row, (m, a_row), dtype=np.int32) + np.arange(0, n, n // a_row, dtype=np.int32)).ravel()
def read(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))
open("/proc/self/clear_refs", "w").write("5")  # the peak so far, which may be the compiler's, is forgotten
before = read("VmRSS")
values = rng.standard_normal(m * a_row, dtype=np.float32)
observed = Observed(Compressed(np.arange(0, m * a_row + 1, a_row), columns.copy(), values), (m, n))
del columns
model = RobustMF(8, solver=sys.argv[1], loss=sys.argv[2], theta=1.0, reg=1.0, init="ridge", max_iter=2, tol=1e-9,
                 validation_fraction=float(sys.argv[3]) or None)
model.fit(observed)
print(model.memory_estimate(observed), read("VmHWM") - before + 4 * m * a_row)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("solver", "loss", "aside"),
    [("irls", "welsch", "0"), ("mm", "lsp", "0"), ("irls", "welsch", "0.1")],
)
def test_memory_estimate_is_within_a_fifth_of_the_peak(solver, loss, aside):
    # as a user's process would be: Dask's workers, started by other tests in this one, leave settings of the allocator behind
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    # twice: a process that compiled keeps pages of the compiler, which the fit then uses
    for _ in range(2):
        command = [sys.executable, "-W", "ignore", "-c", _PEAK, solver, loss, aside]
        out = subprocess.run(
            command, capture_output=True, text=True, check=True, env=plain
        ).stdout.split()
    estimate, peak = map(int, out)
    assert 0.8 * peak <= estimate <= 1.2 * peak, (estimate, peak)


_CONVERSION_PEAK = """
import sys, numpy as np
from robustmf import RobustMF, Observed
make, kind = sys.argv[1:]
def convert(i, j, values):
    if make == "indices":
        return Observed.from_indices(i, j, values, (60_000, 20_000))
    return Observed.from_triplets(row=i, col=j, value=values)
convert(np.arange(10, dtype=kind) * 3, np.arange(10, dtype=kind), np.ones(10, "f4"))
def read(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))
open("/proc/self/clear_refs", "w").write("5")  # the peak so far, which may be the compiler's, is forgotten
before = read("VmRSS")
rng = np.random.default_rng(0)
i = np.repeat(np.arange(60_000, dtype=kind), 100)
j = (rng.integers(0, 200, (60_000, 100), dtype=kind) + np.arange(0, 20_000, 200, dtype=kind)).ravel()
values = rng.standard_normal(len(i), dtype=np.float32)
observed = convert(i, j, values)
source = 2 * i.itemsize + 4 + (8 if make == "triplets" else 0)
print(RobustMF(1, init="ridge").memory_estimate(observed, source_bytes=source), read("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("make", "kind"), [("indices", "i4"), ("indices", "i8"), ("triplets", "i8")]
)
def test_memory_estimate_covers_the_conversion(make, kind):
    out = subprocess.run(
        [sys.executable, "-c", _CONVERSION_PEAK, make, kind],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    estimate, peak = map(int, out)
    assert 0.8 * peak <= estimate <= 1.2 * peak, (estimate, peak)


def test_memory_estimate_before_there_are_entries():
    model = RobustMF(10)
    assert (
        1.6e9
        < model.memory_estimate(shape=(480_189, 17_770), n_entries=100_000_000, dtype="float32")
        < 3e9
    )
    with pytest.raises(ValueError, match="needs X, or shape"):
        model.memory_estimate()


def test_a_certifying_fit_that_does_not_settle_names_the_tolerance_it_did_not_reach():
    data = make_synthetic(60, rank=2, observed=0.5, random_state=0)
    with pytest.warns(NotConvergedWarning, match="settled to tol=1e-07"):
        RobustMF(2, loss="lsp", certify=True, max_iter=3, random_state=0).fit(data.train)


def test_steps_towards_newtons_save_sweeps_and_never_raise_the_objective(monkeypatch, team):
    operations = CPUOperations(make_synthetic(300, random_state=110).train, team)
    start = Problem(operations, 5, 0.03).ridge_factors(np.random.default_rng(1), 15)

    def objectives(curvature):
        monkeypatch.setattr(irls_module, "OPTIONS", IRLSOptions(curvature=curvature))
        solver = IRLS.on_entries(operations, Objective(make_loss("lsp", 1.0), 0.03), 1.0)
        return np.array([solver.begin(*start), *(solver.step() for _ in range(40))])

    ours, plain = objectives(IRLSOptions().curvature), objectives(np.inf)
    # far too long steps: such sweeps are done again without
    hasty = objectives(1e-4)
    assert all(np.all(np.diff(values) <= 1e-12 * values[0]) for values in (ours, plain, hasty))
    reached = [int(np.argmax(values < 1.003 * plain.min())) for values in (ours, plain)]
    assert 0 < reached[0] < 0.9 * reached[1]
