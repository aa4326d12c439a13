"""The comparison systems: what their authors' own codes computed, what each promises, and what all of them have in common."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from robustmf import RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines import GRASTA, OMDL, RMC, RMFMM, RP, AltGrad, AltImpute, ScaledASD
from robustmf.baselines.alt_grad import ExactDescent
from robustmf.baselines.alt_impute import SoftImpute
from robustmf.baselines.fixed_rank import FixedRank
from robustmf.baselines.grasta import SubspaceTracking
from robustmf.baselines.omdl import OnlineDictionary, detrended
from robustmf.baselines.riemannian import ConjugateGradients
from robustmf.baselines.rmc import ShrinkingRounds
from robustmf.baselines.scaled_asd import ScaledDescent
from robustmf.data.observed import Observed
from robustmf.exceptions import EmptyRowsWarning, NotConvergedWarning, NumericalError
from robustmf.kernels.subspace import l1_weights

FIXTURES = Path(__file__).parents[1] / "fixtures"
ALL = [
    AltGrad(3),
    AltGrad(3, variant="joint"),
    AltGrad(3, variant="minibatch", max_iter=5),
    RP(3),
    ScaledASD(3),
    AltImpute(3),
    OMDL(3),
    GRASTA(3),
    RMC(3),
    RMFMM(3, inner_max_iter=30),
    RMFMM(3, heuristic=True, inner_max_iter=30),
]
MONOTONE = [
    AltGrad(3),
    AltGrad(3, variant="joint"),
    RP(3),
    ScaledASD(3),
    AltImpute(3, final_svd=False),
    RMFMM(3, inner_max_iter=30),
]


def named(method):
    kind = type(method).__name__
    return kind + "".join(
        f"-{value}"
        for name, value in method.get_params().items()
        if name in ("variant", "heuristic") and value
    )


def fitted(method, X, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return clone(method).set_params(random_state=0).set_params(**changes).fit(X)


def product(model):
    return model.row_factors_ @ model.column_factors_.T


def distance(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


@pytest.fixture(scope="module")
def given():
    return np.load(FIXTURES / "input.npz")


@pytest.fixture(scope="module")
def octave():
    return np.load(FIXTURES / "octave.npz")


@pytest.fixture
def operations(given, team):
    return CPUOperations(
        Observed.from_indices(given["i"], given["j"], given["a"], given["M"].shape), team
    )


@pytest.fixture
def spectral(given):
    return given["svd_U"] * given["svd_s"], given["svd_V"]


@pytest.fixture(scope="module")
def recovery():
    """200 × 200 of rank 5, 30 % observed, no noise; and the same with ±5 on a tenth of the entries."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 5)) @ rng.standard_normal((200, 5)).T
    seen = rng.random(X.shape) < 0.3
    exact = np.where(seen, X, np.nan)
    hit = seen & (rng.random(X.shape) < 0.1)
    return X, exact, exact + 5 * hit * rng.choice([-1, 1], X.shape)


# --- what the authors' codes computed -----------------------------------------------------------------------------------------


def test_scaled_asd_takes_its_authors_steps(given, octave, operations):
    descent = ScaledDescent(operations, 1e-4)
    descent.begin(given["U0"], given["V0"])
    sizes = [descent.report()["relative_residual"]]
    for k in range(1, 21):
        descent.step()
        sizes.append(descent.report()["relative_residual"])
        if k in (1, 20):
            assert distance(descent.factors[0], octave[f"asd_X{k}"]) < 1e-12
            assert distance(descent.factors[1], octave[f"asd_Y{k}"].T) < 1e-12
    np.testing.assert_allclose(sizes, octave["asd_relres"], rtol=1e-12)


@pytest.mark.parametrize("rule", ["r3mc", "r3mc_hs"])
def test_riemannian_gradients_take_their_authors_steps(rule, octave, operations, spectral):
    descent = ConjugateGradients(operations, rule == "r3mc_hs")
    costs = [descent.begin(*spectral)]
    for k in range(1, 21):
        costs.append(descent.step())
        if f"{rule}_X{k}" in octave:
            U, V = descent.factors
            assert distance(U @ V.T, octave[f"{rule}_X{k}"]) < 1e-10
    np.testing.assert_allclose(
        2 * np.array(costs) / operations.observed.n_entries, octave[f"{rule}_costs"], rtol=1e-10
    )


@pytest.mark.parametrize(
    ("name", "reg", "rounds", "tol"),
    [("rmc_X_1", 0, 1, 1e-10), ("rmc_X_7", 0, 7, 1e-6), ("rmc_X_lam1e3", 1e-3, 7, 1e-6)],
)
def test_rmc_takes_its_authors_steps(name, reg, rounds, tol, octave, operations, spectral):
    smoothing = ShrinkingRounds(operations, reg, 1.0, 0.05, 40, rounds)
    smoothing.begin(*spectral)
    smoothing.step()
    while smoothing.settled(0.0, 0.0, 1e-8) is None:
        smoothing.step()
    U, V = smoothing.factors
    assert distance(U @ V.T, octave[name]) < tol


@pytest.mark.parametrize("final", [0, 1])
@pytest.mark.parametrize("iterations", [1, 5, 2000])
def test_alt_impute_agrees_with_softimpute(iterations, final, given, operations):
    """R's softImpute 1.4-3 at rank 3 and λ = 1, from the SVD; the long run ends where the change is lost in rounding."""
    tol = 1e-16 if iterations == 2000 else 1e-300
    impute = SoftImpute(operations, 1.0, tol, iterations if final else None)
    impute.begin(given["svd_U"], given["svd_V"], given["svd_s"])
    for _ in range(iterations):
        value = impute.step()
        if impute.settled(0.0, 0.0, tol):
            break
    U, V = impute.factors
    assert (
        distance(U @ V.T, np.load(FIXTURES / "softimpute.npz")[f"Z_it{iterations}_final{final}"])
        < 1e-10
    )
    if iterations == 2000:
        assert value == pytest.approx(612.6107, abs=5e-5)


@pytest.mark.parametrize("epochs", [1, 3, 20])
def test_omdl_takes_its_authors_steps(epochs, operations):
    """The fixture's random numbers: RandomState, dictionary first, then a permutation of rows an epoch, of atoms a batch."""
    reference, rng = np.load(FIXTURES / "modl.npz"), np.random.RandomState(0)
    learning = OnlineDictionary(operations, 0.1, 0.95, 10, epochs, rng)
    learning.begin(*_dictionary_start(rng))
    for _ in range(epochs):
        learning.step()
        np.testing.assert_allclose(learning.budgets, 1, atol=1e-13)
    codes, atoms = learning.factors
    assert distance(codes, reference[f"modl_code_{epochs}"]) < 1e-10
    assert distance(atoms.T, reference[f"modl_D_{epochs}"]) < 1e-10


def test_omdl_detrends_as_its_authors(operations):
    reference, rng = np.load(FIXTURES / "modl.npz"), np.random.RandomState(0)
    biases = detrended(operations, 0.1)
    assert distance(biases[0], reference["modl_detrend_rowmean"]) < 1e-12
    assert distance(biases[1], reference["modl_detrend_colmean"]) < 1e-12
    learning = OnlineDictionary(operations, 0.1, 0.95, 10, 3, rng, biases)
    learning.begin(*_dictionary_start(rng))
    for _ in range(3):
        learning.step()
    codes, atoms = learning.factors
    wanted = (
        reference["modl_detrend_code"] @ reference["modl_detrend_D"]
        + biases[0][:, None]
        + biases[1]
    )
    assert distance(codes @ atoms.T, wanted) < 1e-10


def _dictionary_start(rng):
    D = rng.randn(3, 45).T
    return np.zeros((60, 3)), D / np.linalg.norm(D, axis=0)


@pytest.mark.parametrize("steps", [1, 5, 20, 60])
def test_l1_weights_are_the_authors(steps, given, octave, operations):
    columns = operations.observed.columns
    column = slice(columns.pointers[6], columns.pointers[7])
    w, s, y = np.zeros(3), np.zeros(columns.counts[6]), np.zeros(columns.counts[6])
    l1_weights(
        columns.indices[column],
        columns.values[column],
        given["G0"],
        2.0,
        1e-8,
        steps,
        np.zeros((3, 3)),
        w,
        s,
        y,
    )
    for name, value in (("w", w), ("s", s), ("y", y)):
        np.testing.assert_allclose(value, octave[f"srp_{name}{steps}"], rtol=1e-12, atol=1e-13)
    assert np.abs(y).max() <= 1 + 1e-8


def test_grasta_takes_its_authors_steps(given, octave, operations):
    tracking = SubspaceTracking(operations, np.random.default_rng(0), 10, 20, 1e-8, swapped=False)
    tracking.begin(given["G0"], np.zeros((45, 3)))
    levels = []
    for k in range(450):
        tracking.visit(np.array([k % 45]))
        levels += [*tracking.levels]
        for after, name, tol in ((1, "1", 1e-12), (45, "1pass", 1e-8), (450, "10", 1e-4)):
            if k + 1 == after:
                assert distance(tracking.factors[0], octave[f"grasta_U_after{name}"]) < tol
    np.testing.assert_array_equal(levels, octave["grasta_level"])
    U = tracking.factors[0]
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-13)


@pytest.mark.parametrize(
    ("name", "heuristic", "inner"), [("rmfmm", False, 300), ("rmfmmh", True, 1000)]
)
def test_rmf_mm_ends_where_its_authors_do(name, heuristic, inner, given, octave, operations):
    model = RMFMM(
        3, heuristic=heuristic, init=(given["U0"], given["V0"]), inner_max_iter=inner
    ).fit(operations.observed)
    assert model.history_["objective"][-1] == pytest.approx(float(octave[f"{name}_obj"]), rel=1e-12)
    assert distance(product(model), octave[f"{name}_X"]) < 1e-10
    if not heuristic:
        assert [model.n_iter_, model.history_["inner_iterations"][-1]] == list(
            octave["rmfmm_count"]
        )


# --- what each promises -------------------------------------------------------------------------------------------------------


def test_rmf_mm_is_robustmf_by_ladmpsap(given, operations):
    """With inner solves that settle, the same accepted points; RMF-MM drops its last ones, which lower the objective too little."""
    start = (given["U0"], given["V0"])
    ours = RMFMM(3, init=start, inner_max_iter=5000).fit(operations.observed).history_["objective"]
    accepted = [a for a, b in zip(ours, [np.inf, *ours], strict=False) if a < b]
    mm = RobustMF(
        3,
        solver="mm",
        loss="l1",
        inner="ladmpsap",
        init=start,
        reg=20 / 105,
        tol=1e-12,
        max_iter=len(accepted) - 1,
        inner_max_iter=5000,
    )
    with pytest.warns(NotConvergedWarning):
        theirs = mm.fit(operations.observed).history_["objective"]
    np.testing.assert_allclose(accepted, theirs, rtol=1e-11)


def test_alt_impute_reaches_the_convex_optimum(operations):
    """λ = 4: the optimum has rank 16 and objective 945.4104; ‖E‖₂ ≤ λ certifies that no matrix of any rank is better."""
    model = AltImpute(40, reg=4.0, tol=1e-15, max_iter=5000, random_state=0).fit(
        operations.observed
    )
    Z = product(model)
    assert distance(Z, np.load(FIXTURES / "softimpute.npz")["Z_convex_lam4"]) < 1e-5
    assert (model.singular_values_ > 1e-6).sum() == 16
    rows = operations.observed.rows
    i, j = rows.group_of_entry(), rows.indices
    e = rows.values - Z[i, j]
    assert 0.5 * np.sum(e**2) + 4 * model.singular_values_.sum() == pytest.approx(
        945.4104, abs=1e-3
    )
    E = sp.coo_array((e, (i, j)), Z.shape).toarray()
    assert np.linalg.norm(E, 2) <= 4 * (1 + 1e-5)


def test_alt_grad_and_alt_impute_share_an_optimum(operations):
    """One objective: at λ where the convex optimum has rank 3 or less both end at it, and AltGrad's factors are balanced."""
    reg = 9.0
    grad = AltGrad(3, reg=reg, tol=1e-13, max_iter=5000, random_state=0).fit(operations.observed)
    impute = AltImpute(3, reg=reg, tol=1e-15, random_state=0).fit(operations.observed)
    assert grad.history_["objective"][-1] == pytest.approx(
        impute.history_["objective"][-1], rel=1e-8
    )
    U, V = grad.row_factors_, grad.column_factors_
    np.testing.assert_allclose(U.T @ U, V.T @ V, atol=1e-4 * np.linalg.norm(U) ** 2)


def test_exact_steps_leave_no_slope(given, operations):
    """After the move of V the objective is stationary along the direction moved."""
    descent, reg = ExactDescent(operations, 0.5), 0.5
    descent.begin(given["U0"], given["V0"])
    before = descent.factors[1]
    descent.step()
    U, V = descent.factors
    direction = V - before

    def value(t):
        e = operations.residuals(U, V + t * direction)
        return 0.5 * np.sum(e**2) + reg / 2 * np.sum((V + t * direction) ** 2)

    assert abs(value(1e-4) - value(-1e-4)) / 2e-4 < 1e-6 * value(0)


def test_riemannian_gradient_is_the_derivative(operations, spectral):
    """g(grad, ξ) is the slope along ξ for any tangent ξ; the gradient is horizontal."""
    descent = ConjugateGradients(operations, False)
    descent.begin(*spectral)
    descent.step()
    point, gradient = descent._point, descent._gradient
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = tuple(rng.standard_normal(A.shape) for A in (point.U, point.R, point.V))
        x = (x[0] - point.U @ (point.U.T @ x[0]), x[1], x[2] - point.V @ (point.V.T @ x[2]))
        h = 1e-6
        slope = (
            descent._cost(descent._residual_at(point.moved(x, h)))
            - descent._cost(descent._residual_at(point.moved(x, -h)))
        ) / (2 * h)
        assert point.inner(gradient, x) == pytest.approx(slope, rel=1e-6)
    RRt, RtR = point.R @ point.R.T, point.R.T @ point.R
    left = RRt @ gradient[0].T @ point.U + gradient[1] @ point.R.T
    right = RtR @ gradient[2].T @ point.V - point.R.T @ gradient[1]
    size = np.abs(left).max()
    assert np.abs(left - left.T).max() < 1e-12 * size
    assert np.abs(right - right.T).max() < 1e-12 * size


@pytest.mark.parametrize("reg", [0.0, 0.01])
def test_rmc_gradient_is_the_derivative(reg, operations, spectral):
    smoothing = ShrinkingRounds(operations, reg, 0.3, 0.05, 40, 1)
    smoothing.begin(*spectral)
    point = FixedRank.of(*spectral)
    _, predicted, z = smoothing._cost(point)
    gradient = smoothing._gradient(point, predicted, z)
    rng = np.random.default_rng(3)
    Z = rng.standard_normal(operations.observed.shape)
    x = point.projected(Z @ point.V, Z.T @ point.U)
    h = 1e-5
    slope = (smoothing._cost(point.moved(x, h))[0] - smoothing._cost(point.moved(x, -h))[0]) / (
        2 * h
    )
    assert sum(np.sum(a * b) for a, b in zip(gradient, x, strict=True)) == pytest.approx(
        slope, rel=1e-6
    )


@pytest.mark.parametrize(
    ("method", "tol"),
    [
        (AltGrad(5, reg=1e-12, tol=1e-15), 1e-8),
        (AltGrad(5, variant="joint", tol=1e-13, max_iter=5000), 1e-6),
        (RP(5, tol=1e-16), 1e-6),
        (ScaledASD(5, tol=1e-9), 1e-6),
        (AltImpute(5, reg=1e-8, tol=1e-16), 1e-6),
    ],
    ids=lambda value: named(value) if hasattr(value, "rank") else "",
)
def test_exact_methods_recover_a_clean_matrix(method, tol, recovery):
    X, exact, _ = recovery
    assert distance(product(fitted(method, exact)), X) < tol


@pytest.mark.parametrize(
    ("method", "tol"),
    [(RMC(5), 2e-6), (GRASTA(5), 2e-3), (RMFMM(5, tol=1e-5, inner_max_iter=300), 1e-3)],
    ids=["RMC", "GRASTA", "RMFMM"],
)
def test_robust_methods_recover_under_gross_outliers(method, tol, recovery):
    X, _, attacked = recovery
    assert distance(product(fitted(method, attacked)), X) < tol


def test_omdl_learns_from_complete_data(recovery):
    """With nothing missing it is unbiased; with missing entries not even clean data is recovered, by its construction."""
    X, exact, _ = recovery
    whole = OMDL(5, alpha=1e-3, learning_rate=1.0, batch_size=1, max_iter=10, random_state=0).fit(X)
    assert distance(product(whole), X) < 2e-2
    assert distance(product(OMDL(5, alpha=1e-3, random_state=0).fit(exact)), X) > 0.1


# --- what all have in common --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(given):
    return Observed.from_indices(given["i"], given["j"], given["a"], given["M"].shape)


@pytest.mark.parametrize("method", MONOTONE, ids=named)
def test_objective_never_rises(method, small):
    objective = np.array(fitted(method, small).history_["objective"])
    assert np.all(np.diff(objective) <= 1e-12 * objective[:-1])
    assert objective[-1] < 0.9 * objective[0]


@pytest.mark.parametrize("method", ALL, ids=named)
def test_same_bits_for_any_number_of_threads(method, small):
    one, three = fitted(method, small, n_jobs=1), fitted(method, small, n_jobs=3)
    np.testing.assert_array_equal(one.row_factors_, three.row_factors_)
    np.testing.assert_array_equal(one.column_factors_, three.column_factors_)


@pytest.mark.parametrize("method", ALL, ids=named)
def test_same_interface(method, small):
    seen = []
    model = fitted(method, small, callbacks=[lambda snapshot: seen.append(snapshot.iteration)])
    history = model.history_
    assert history["iteration"] == seen == list(range(model.n_iter_ + 1))
    assert np.all(np.diff(history["seconds"]) >= 0)
    i, j = [0, 5, 59], [44, 0, 7]
    wanted = product(model)[i, j]
    np.testing.assert_allclose(
        model.predict(i, j),
        wanted if model.bounds_ is None else np.clip(wanted, *model.bounds_),
        rtol=1e-12,
    )
    stopped = fitted(method, small, callbacks=[lambda snapshot: snapshot.iteration == 1])
    assert (stopped.n_iter_, stopped.converged_) == (1, False)


@pytest.mark.parametrize("method", ALL, ids=named)
def test_sparse_dense_and_float32_inputs(method, small):
    dense = np.full(small.shape, np.nan)
    dense[small.rows.group_of_entry(), small.rows.indices] = small.rows.values
    model = fitted(method, small)
    np.testing.assert_array_equal(product(fitted(method, dense)), product(model))
    np.testing.assert_array_equal(product(fitted(method, small.to_sparse())), product(model))
    single = fitted(method, dense.astype(np.float32))
    assert single.row_factors_.dtype == single.column_factors_.dtype == np.float32
    assert np.isfinite(product(single)).all()


@pytest.mark.parametrize("method", [AltGrad(3), RP(3), ScaledASD(3), AltImpute(3)], ids=named)
def test_data_in_other_units(method, small):
    """Least squares with λ in units of the data: values times c give predictions times c."""
    scaled, plain = (
        fitted(method, small.with_values(64 * small.rows.values), tol=1e-12),
        fitted(method, small, tol=1e-12),
    )
    assert distance(product(scaled), 64 * product(plain)) < 1e-4


@pytest.mark.parametrize("method", ALL, ids=named)
def test_rows_and_columns_without_entries_get_zeros(method, small):
    wider = Observed.from_indices(
        small.rows.group_of_entry(), small.rows.indices, small.rows.values, (62, 46)
    )
    with pytest.warns(EmptyRowsWarning, match="2 of 62 rows and 1 of 46 columns"):
        model = fitted(method, wider)
    Z = product(model)
    assert np.isfinite(Z).all()
    center = np.mean(small.rows.values) if getattr(method, "variant", "") == "minibatch" else 0
    np.testing.assert_allclose(Z[60:], center)
    np.testing.assert_allclose(Z[:, 45:], center)


@pytest.mark.parametrize("method", ALL, ids=named)
@pytest.mark.parametrize(
    ("changes", "message"),
    [({"rank": 0}, "rank must be an integer from 1 to 45"), ({"rank": 2.5}, "rank must be"), ({"max_iter": 0}, "max_iter must be"),
     ({"tol": -1.0}, "tol must be"), ({"n_jobs": 0}, "n_jobs must be")],
    ids=["rank-0", "rank-float", "max_iter", "tol", "n_jobs"],
)  # fmt: skip
def test_bad_parameters_are_refused_by_name(method, changes, message, small):
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(method, small, **changes)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (AltGrad(variant="sgd"), "variant must be one of"),
        (AltGrad(reg=-1.0), "reg must be"),
        (AltImpute(reg="big"), "reg must be"),
        (RP(conjugacy="fletcher"), "conjugacy must be one of"),
        (RMC(shrinking=1.5), "shrinking must be below 1"),
        (RMC(delta=0.0), "delta must be"),
        (GRASTA(inner_max_iter=0), "inner_max_iter must be"),
        (OMDL(alpha=float("nan")), "alpha must be"),
        (OMDL(batch_size=0), "batch_size must be"),
    ],
    ids=lambda value: named(value) if hasattr(value, "rank") else "",
)
def test_parameters_of_their_own_are_checked(method, message, small):
    with pytest.raises((ValueError, TypeError), match=message):
        method.fit(small)


@pytest.mark.parametrize("method", ALL, ids=named)
@pytest.mark.parametrize(
    "X",
    [np.full((20, 15), 3.0), np.zeros((20, 15)), np.outer(np.arange(20.0), np.ones(15))],
    ids=["constant", "zero", "rank-one"],
)
def test_degenerate_matrices_give_finite_factors(method, X):
    Z = product(fitted(method, X))
    assert np.isfinite(Z).all()


@pytest.mark.parametrize("method", ALL, ids=named)
def test_bad_data_is_refused(method):
    with pytest.raises(ValueError, match="at least one observed entry"):
        fitted(method, np.full((4, 5), np.nan))
    with pytest.raises(ValueError, match="finite"):
        fitted(method, np.array([[1.0, np.inf], [2.0, 3.0], [1.0, 1.0], [1.0, 1.0]]))


@pytest.mark.parametrize("method", ALL, ids=named)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e30, 1e-30, "mixed"])
def test_extreme_values_give_finite_factors_or_a_named_error(method, dtype, scale, small):
    X = small.to_sparse().toarray() * (np.logspace(-6, 6, 45) if scale == "mixed" else scale)
    if dtype == np.float32 and scale != "mixed":
        with pytest.raises(
            ValueError, match=r"X has values of size .*; in float32 the largest must lie between"
        ):
            fitted(method, X.astype(dtype), max_iter=3)
        return
    try:
        model = fitted(method, X.astype(dtype), max_iter=3)
    except NumericalError:
        return
    assert np.isfinite(model.row_factors_).all()
    assert np.isfinite(model.column_factors_).all()
