"""The first sweeps of a fit of float64 entries are computed in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from robustmf import RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.datasets import make_synthetic
from robustmf.exceptions import NotConvergedWarning
from robustmf.kernels import team as team_module
from robustmf.kernels.reductions import squared_norm
from robustmf.losses import Loss, make_loss, smoothed
from robustmf.solvers import precision
from robustmf.solvers.irls import IRLS
from robustmf.solvers.objective import Objective
from robustmf.solvers.precision import is_large, least_width


@pytest.fixture
def for_all(monkeypatch):
    """Problems of any size begin in float32."""
    monkeypatch.setattr(precision, "OPTIONS", replace(precision.OPTIONS, min_entries=0))


@pytest.fixture
def sweeps(monkeypatch):
    """Whether each half-step was computed in float32."""
    made = []
    plain = CPUOperations.half_step

    def half_step(self, *args, single=False, **options):
        made.append(single)
        plain(self, *args, single=single, **options)

    monkeypatch.setattr(CPUOperations, "half_step", half_step)
    return made


def width(values, weight=1.0, theta=1.0, reg=0.1, loss="welsch"):
    values = np.asarray(values)
    return least_width(
        squared_norm(values[None]),
        weight * len(values),
        len(values),
        Objective(make_loss(loss, theta), reg),
    )


def test_which_problems_begin_in_float32():
    assert is_large(np.dtype(np.float64), 300_000)
    assert not is_large(np.dtype(np.float64), 100_000)
    assert not is_large(np.dtype(np.float32), 300_000)
    many = np.full(300, 3.0)
    assert width(many) == pytest.approx(256 * 2**-23 * 3)
    assert width(many[:0]) == math.inf
    for odd in (
        {"weight": 1e9},
        {"weight": 1e-9},
        {"theta": 1e-9},
        {"theta": 1e150},
        {"reg": 1e30},
    ):
        assert width(many, **odd) == math.inf
    assert (
        width(1e200 * many)
        == width(1e30 * many)
        == width(1e-30 * many)
        == width(0 * many)
        == math.inf
    )
    assert width(many, reg=0.0) < math.inf


@pytest.mark.parametrize(
    ("loss", "bias"), [("lsp", False), ("l1", False), ("welsch", True), ("l2", False)]
)
def test_a_fit_begins_in_float32_and_ends_at_the_float64_result(monkeypatch, sweeps, loss, bias):
    data = make_synthetic(200, random_state=5)
    theta = None if loss in ("l1", "l2") else 1.0
    tol = 2e-5 if loss in ("lsp", "l1") else 1e-6
    fits = []
    for many in (10**9, 0):
        monkeypatch.setattr(precision, "OPTIONS", replace(precision.OPTIONS, min_entries=many))
        sweeps.clear()
        fits.append(
            RobustMF(
                5,
                loss=loss,
                theta=theta,
                bias=bias,
                solver="irls",
                init="ridge",
                reg="paper",
                tol=tol,
                random_state=0,
                max_iter=2000,
            )
        )
        fits[-1].fit(data.train)
    assert sweeps[-1] is False
    swept = np.array(sweeps)
    assert swept.sum() > 4
    # float32 is not resumed
    assert np.all(np.diff(np.flatnonzero(swept)) == 1)
    exact, rough = (np.array(model.history_["objective"]) for model in fits)
    assert rough[:6] == pytest.approx(exact[:6], rel=1e-5)
    assert not np.array_equal(rough[:6], exact[:6])
    # alternation with a nonsmooth loss may stall at another point after any perturbation
    assert rough[-1] == pytest.approx(exact[-1], rel=1e-2 if loss in ("lsp", "l1") else 1e-5)
    assert fits[1].row_factors_.dtype == np.float64


def test_at_the_default_tolerance_one_sweep_in_float64_confirms_convergence(for_all, sweeps):
    data = make_synthetic(200, random_state=5)
    model = RobustMF(5, loss="welsch", theta=1.0, solver="irls", init="ridge", random_state=0).fit(
        data.train
    )
    last = int(np.flatnonzero(sweeps)[-1])
    assert sweeps[last + 1 :] == [False] * 2
    assert "did not decrease by more than tol" in model.stop_reason_


def test_values_that_are_large_relative_to_their_noise_are_swept_in_float64(for_all, sweeps):
    data = make_synthetic(80, random_state=1).train
    far = data.with_values(data.rows.values + 1e7)
    RobustMF(
        5,
        loss="lsp",
        theta=1.0,
        solver="irls",
        init="ridge",
        bias=True,
        random_state=0,
        max_iter=30,
        tol=1e-2,
    ).fit(far)
    assert not any(sweeps[-4:])


@pytest.mark.filterwarnings(
    f"ignore::{NotConvergedWarning.__module__}.{NotConvergedWarning.__qualname__}"
)
@pytest.mark.parametrize(
    "scale",
    [1e30, 1e-30, 10.0 ** np.arange(-6, 6), np.array([0.0] * 11 + [1.0])],
    ids=["1e30", "1e-30", "mixed", "nearly all zero"],
)
# two factors fit two columns of noise exactly, and the fit says so
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
@pytest.mark.parametrize("loss", ["lsp", "welsch", "l1"])
def test_factors_of_extreme_values_are_finite(for_all, scale, loss):
    X = np.random.default_rng(0).standard_normal((60, 12)) * scale
    model = RobustMF(2, loss=loss, solver="irls", random_state=0).fit(X)
    assert np.isfinite(model.row_factors_).all()
    assert np.isfinite(model.column_factors_).all()


@pytest.mark.filterwarnings(
    f"ignore::{NotConvergedWarning.__module__}.{NotConvergedWarning.__qualname__}"
)
def test_scaling_by_a_power_of_four_changes_no_bit(for_all, sweeps):
    data = make_synthetic(100, random_state=2).train
    unit = 4.0**5
    rng = np.random.default_rng(0)
    start = [rng.standard_normal((size, 3)) for size in data.shape]

    def fitted(scale):
        init = tuple(math.sqrt(scale) * A for A in start)
        model = RobustMF(
            3,
            loss="lsp",
            theta=scale,
            reg=0.1 / scale,
            solver="irls",
            init=init,
            max_iter=40,
            tol=1e-3,
        )
        return model.fit(data.with_values(scale * data.rows.values))

    plain = fitted(1.0)
    scaled = fitted(unit)
    assert any(sweeps)
    assert np.array_equal(scaled.row_factors_, math.sqrt(unit) * plain.row_factors_)


def test_the_number_of_threads_changes_no_bit(monkeypatch, for_all):
    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=0))
    data = make_synthetic(150, random_state=1)
    fits = [
        RobustMF(
            4, loss="lsp", theta=1.0, solver="irls", init="ridge", random_state=0, n_jobs=n_jobs
        ).fit(data.train)
        for n_jobs in (1, 2, 4)
    ]
    assert all(np.array_equal(fits[0].row_factors_, other.row_factors_) for other in fits[1:])


@pytest.mark.parametrize("steps", [1, 4, 12])
def test_a_restored_state_continues_with_the_same_values(for_all, team, steps):
    observed = make_synthetic(120, random_state=3).train
    rng = np.random.default_rng(0)
    start = [rng.standard_normal((size, 3)) for size in observed.shape]
    one, other = (
        IRLS.on_entries(CPUOperations(observed, team), Objective(make_loss("lsp", 1.0), 0.1), 0.5)
        for _ in range(2)
    )

    def continued(solver, count):
        values = []
        for _ in range(count):
            before = solver._value
            values.append(solver.step())
            solver.convergence_reason(before, values[-1], 1e-4)
        return values

    one.begin(*start)
    continued(one, steps)
    state = one.state()
    other.begin(*start)
    other.restore(state)
    assert continued(one, 8) == continued(other, 8)
    assert one.state()["single"] == other.state()["single"]


@pytest.mark.parametrize("rank", [3, 8, 9, 10, 11, 17, 18, 26])
@pytest.mark.parametrize("curvature", [np.inf, 0.45])
@pytest.mark.parametrize("options", ["plain", "weights and shifts"])
def test_half_steps_in_float32_equal_those_in_float64_up_to_rounding(
    team, rank, curvature, options
):
    rng = np.random.default_rng(rank)
    i, j = np.nonzero(rng.random((70, 160)) < 0.6)
    values = rng.standard_normal(len(i))
    observed = Observed.from_indices(i.astype(np.int32), j.astype(np.int32), values, (70, 160))
    U = rng.standard_normal((70, rank))
    V = rng.standard_normal((160, rank))
    loss = smoothed(make_loss("lsp", 1.0), 0.1)
    given = {}
    if options != "plain":
        # A shift must be subtracted before values are converted to float32.
        shifts = 1e5 + rng.standard_normal(160)
        observed = observed.with_values(observed.rows.values + shifts[observed.rows.indices])
        given = {"sample_weights": rng.random(len(i)), "shifts": shifts}
    found = []
    for single in (False, True):
        found.append(U.copy())
        CPUOperations(observed, team).half_step(
            loss, 0.3, found[-1], V, curvature=curvature, single=single, **given
        )
    assert found[1] == pytest.approx(found[0], abs=2e-4)
    assert not np.array_equal(*found)


@pytest.mark.parametrize("name", ["l1", "lsp", "geman", "welsch", "cauchy", "huber"])
def test_sums_of_losses_in_float32_equal_those_in_float64_up_to_rounding(team, name):
    observed = make_synthetic(100, random_state=0).train
    rng = np.random.default_rng(0)
    U, V = (rng.standard_normal((size, 10)) for size in observed.shape)
    loss = make_loss(name, None if name == "l1" else 1.3)
    losses = [smoothed(loss, epsilon) for epsilon in (0.1, 0.01)] if loss.concave else [loss]
    one, other = (
        CPUOperations(observed, team).loss_sums(losses, U, V, single=single)
        for single in (False, True)
    )
    assert other == pytest.approx(one, rel=1e-6)
    assert other != one


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """A loss whose formula is a difference of large numbers if θ is large."""

    name: ClassVar[str] = "pseudo-huber"

    def value(self, a):
        return self.theta**2 * (np.sqrt(1 + (a / self.theta) ** 2) - 1)

    def derivative(self, a):
        return a / np.sqrt(1 + (a / self.theta) ** 2)

    def weight(self, a):
        return 1 / np.sqrt(1 + (a / self.theta) ** 2)

    @staticmethod
    def weight_formula(a, theta):
        return 1 / np.sqrt(1 + (a / theta) * (a / theta))


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize(
    "loss",
    [make_loss("l2"), PseudoHuber(1e4), make_loss("welsch", 3.0)],
    ids=["l2", "own", "welsch"],
)
def test_a_fit_does_not_stop_because_of_the_change_of_precision(monkeypatch, loss, offset):
    """An objective in float32 is not compared with one in float64."""
    data = make_synthetic(80, random_state=2).train
    data = data.with_values(data.rows.values + offset)
    fits = []
    for many in (10**9, 0):
        monkeypatch.setattr(precision, "OPTIONS", replace(precision.OPTIONS, min_entries=many))
        fits.append(
            RobustMF(
                3,
                loss=loss,
                reg=0.1,
                solver="irls",
                init="ridge",
                bias=True,
                tol=1e-9,
                random_state=0,
                max_iter=5000,
            ).fit(data)
        )
    exact, rough = (model.history_["objective"][-1] for model in fits)
    assert rough == pytest.approx(exact, rel=1e-6)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_weights_of_very_different_sizes_do_not_increase_the_objective(for_all, sweeps):
    data = make_synthetic(100, random_state=3).train
    weights = np.ones(data.n_entries)
    weights[:: data.n_entries // 40] = 1e7
    model = RobustMF(
        4,
        loss="welsch",
        theta=1.0,
        reg=0.1,
        solver="irls",
        init="ridge",
        random_state=0,
        tol=1e-6,
        max_iter=2000,
    )
    objective = np.array(model.fit(data, weights=weights).history_["objective"])
    assert sweeps[-1] is False
    assert np.all(np.diff(objective) <= 1e-6 * objective[:-1])


@pytest.mark.parametrize("name", ["lsp", "welsch"])
def test_the_objective_is_recomputed_when_float64_begins(for_all, team, name):
    observed = make_synthetic(120, random_state=3).train
    operations = CPUOperations(observed, team)
    rng = np.random.default_rng(0)
    objective = Objective(make_loss(name, 1.0), 0.1)
    solver = IRLS.on_entries(operations, objective, 0.5)
    before = solver.begin(*(rng.standard_normal((size, 3)) for size in observed.shape))
    for _ in range(300):
        value = solver.step()
        assert solver.convergence_reason(before, value, 1e-4) is None
        before = value
        if not solver.state()["single"]:
            break
    epsilon = solver.state()["smoothing"][0] if objective.loss.concave else 0.0
    losses = objective.loss.value(np.sqrt(operations.residuals(*solver.factors) ** 2 + epsilon**2))
    assert solver.state()["value"] == pytest.approx(
        losses.sum() + objective.penalty(*solver.factors), rel=1e-13
    )


def test_a_nonsmooth_loss_leaves_float32_with_its_width_and_a_smooth_one_does_not(
    for_all, team, monkeypatch
):
    observed = make_synthetic(40, rank=2, observed=0.5, random_state=0).train
    rng = np.random.default_rng(0)
    initial = [rng.standard_normal((size, 2)) for size in observed.shape]
    sigma = 0.5
    least = 0.05 * sigma  # below the initial width, above the final one
    monkeypatch.setattr(precision, "least_width", lambda *_: least)

    def precisions(loss):
        operations = CPUOperations(observed, team)
        solver = IRLS.on_entries(operations, Objective(make_loss(loss), 0.3), sigma)
        solver.begin(*initial)
        made = []
        for _ in range(60):
            solver.step()
            made.append((solver._smoothing.width >= least, solver._single))
        return made

    nonsmooth = precisions("l1")
    assert all(single == is_wide for is_wide, single in nonsmooth)
    assert {single for _, single in nonsmooth} == {False, True}
    assert precisions("cauchy")[5][1]
