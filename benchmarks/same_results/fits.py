"""Cases: losses, solvers, models, forms of data, and continued fits."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.same_results.cases import add, add_fit, fit
from benchmarks.same_results.library import (
    DTYPES,
    INNER,
    NONSMOOTH,
    RANK,
    SMOOTH,
    Array,
    make_model,
    predict_pairs,
    smoothed_name,
)
from benchmarks.same_results.problems import (
    USER_LOSSES,
    Opaque,
    Plain,
    PseudoHuber,
    Root,
    as_dense,
    entry_weights,
    low_rank,
    rating_table,
    ratings,
    some_factors,
    with_gaps,
)
from robustmf import RMFNL, Observed
from robustmf.losses import make_loss


def add_losses() -> None:
    """Add the values of every loss on a grid."""
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 121), [0.5, 1.0, 2.0, 3.0, 3.7]])

    def values(name: str, dtype: str) -> Any:
        found = {}
        for theta in (None, 2.7):
            loss = make_loss(name, theta)
            for method in ("value", "derivative", "weight"):
                found[f"{method}.{theta}"] = getattr(loss, method)(grid.astype(dtype))
        return found

    for base, dtype in product((*SMOOTH, *NONSMOOTH), DTYPES):
        add(f"loss/{base}/{dtype}", partial(values, base, dtype))
    for base, dtype in product(NONSMOOTH, DTYPES):
        add(f"loss/smoothed-{base}/{dtype}", partial(values, smoothed_name(base), dtype))


def add_solvers() -> None:
    """Add every solver with every loss, and with different shares of outliers."""
    names = {name: name for name in (*SMOOTH, *NONSMOOTH)}
    names |= {f"smoothed-{base}": smoothed_name(base) for base in NONSMOOTH}
    short = {"max_iter": 40}
    for (label, loss), dtype in product(names.items(), DTYPES):
        data = partial(low_rank, dtype=dtype)
        add_fit(f"auto/{label}/{dtype}", data, loss=loss)
        for solver in ("irls", "varpro"):
            name = f"{solver}/{label}/{dtype}"
            add_fit(name, data, solver=solver, loss=loss, tol=1e-6, max_iter=25)
        add_fit(f"mm-apg/{label}/{dtype}", data, mm={"inner": "apg"}, loss=loss, **short)
        if loss in NONSMOOTH:
            add_fit(
                f"mm-apg-dense/{label}/{dtype}",
                data,
                mm={"inner": "apg-dense", "max_iter": 100},
                loss=loss,
                max_iter=8,
            )
            add_fit(
                f"mm-ladmpsap/{label}/{dtype}",
                data,
                mm={"inner": "ladmpsap", "max_iter": 60},
                loss=loss,
                max_iter=5,
            )
    for solver, outliers, dtype in product(("irls", "varpro", "mm"), (0.0, 0.2), DTYPES):
        data = partial(low_rank, m=90, n=40, share=0.6, outliers=outliers, dtype=dtype, seed=1)
        for loss in ("lsp",) if solver == "mm" else ("welsch", "lsp"):
            name = f"{solver}/{loss}/{dtype}/outliers-{outliers}"
            add_fit(name, data, solver=solver, loss=loss)
    for dtype in DTYPES:
        data = partial(low_rank, dtype=dtype)
        rule = {"gap": 0.05, "max_iter": 200}
        for inner in INNER:
            add_fit(
                f"mm-{inner}/lsp/{dtype}/gap",
                data,
                mm={"inner": inner} | rule,
                loss="lsp",
                max_iter=4,
            )
        add_fit(f"mm-apg/geman/{dtype}/tol", data, mm={"tol": 1e-3, "max_iter": 20}, loss="geman")
        tight = {"tol": 1e-11, "max_iter": 150}
        add_fit(f"mm-apg/lsp/{dtype}/tight", data, solver="mm", loss="lsp", **tight)
        for loss in ("lsp", "l1", "scad"):
            theta = {"theta": 3.0} if loss == "scad" else {}
            add_fit(f"rmfnl/{loss}/{dtype}", data, kind=RMFNL, loss=loss, max_iter=40, **theta)


def add_models() -> None:
    """Add biases, weights, λ and θ in all forms."""
    for dtype, bias, loss in product(
        DTYPES, (True, False, "auto"), ("welsch", "huber", "l2", "lsp")
    ):
        tail = f"{loss}/{dtype}/bias-{bias}"
        add_fit(
            f"irls/{tail}/ratings", partial(ratings, dtype), solver="irls", bias=bias, loss=loss
        )
        data = partial(low_rank, m=50, n=80, dtype=dtype, offset=1.0)
        add_fit(f"auto/{tail}/offset", data, bias=bias, loss=loss)
    for dtype, bias, loss, zeros in product(
        DTYPES, (True, "auto"), ("welsch", "lsp", "l2"), (False, True)
    ):
        data = low_rank(dtype=dtype)
        name = f"auto/{loss}/{dtype}/weights{'-zeros' * zeros}-bias-{bias}"
        add_fit(
            name,
            partial(low_rank, dtype=dtype),
            weights=partial(entry_weights, zeros=zeros),
            bias=bias,
            loss=loss,
        )
    table = np.random.default_rng(3).uniform(0, 1, (60, 45))
    add_fit("auto/cauchy/float64/weights-matrix", low_rank, weights=table, loss="cauchy")
    add_fit("varpro/welsch/float64/weights", low_rank, weights=table, solver="varpro")
    add_fit("mm/lsp/float64/bias", low_rank, solver="mm", loss="lsp", bias=True)
    for reg, loss, dtype in product(("auto", "paper", 0.3), ("welsch", "l2", "lsp"), DTYPES):
        for solver in ("irls", "varpro"):
            name = f"{solver}/{loss}/{dtype}/reg-{reg}"
            add_fit(
                name,
                partial(low_rank, 70, 30, dtype=dtype, seed=2),
                solver=solver,
                loss=loss,
                reg=reg,
            )
        add_fit(
            f"auto/{loss}/{dtype}/reg-{reg}-ratings", partial(ratings, dtype), loss=loss, reg=reg
        )
    for reg in ("auto", "paper", 0.3):
        data = partial(low_rank, 70, 30, seed=2)
        add_fit(f"mm/lsp/float64/reg-{reg}", data, solver="mm", loss="lsp", reg=reg)
    for dtype, bias, loss in product(DTYPES, (True, False), ("cauchy", "huber", "lsp")):
        settings = {"reg_by_count": True, "bias": bias, "loss": loss}
        name = f"irls/{loss}/{dtype}/by-count-bias-{bias}"
        add_fit(name, partial(ratings, dtype), reg=0.02, **settings)
        add_fit(f"{name}-reg-auto", partial(ratings, dtype), **settings)
    for theta, loss, dtype in product((0.5, None), ("welsch", "huber", "lsp", "laplace"), DTYPES):
        for solver in ("irls", "varpro"):
            name = f"{solver}/{loss}/{dtype}/theta-{theta}"
            add_fit(name, partial(low_rank, dtype=dtype), solver=solver, loss=loss, theta=theta)
    for rank in (1, 2, 7, 20):
        add_fit(f"auto/welsch/float64/rank-{rank}", partial(low_rank, 90, 70), rank=rank)
        add_fit(
            f"auto/huber/float32/rank-{rank}", partial(ratings, "float32"), rank=rank, loss="huber"
        )


def add_procedures() -> None:
    """Add initializations, several runs, certificates, validation and bounds."""
    given = some_factors(low_rank())
    for solver, loss, dtype in product(("irls", "varpro", "mm"), ("welsch", "lsp"), DTYPES):
        if solver == "mm" and loss == "welsch":
            continue
        data = partial(low_rank, dtype=dtype)
        for label, init in {"ridge": "ridge", "random": "random", "given": given}.items():
            name = f"{solver}/{loss}/{dtype}/init-{label}"
            add_fit(name, data, solver=solver, loss=loss, init=init, max_iter=60)
        for init in ("auto", "random"):
            name = f"{solver}/{loss}/{dtype}/two-runs-{init}"
            add_fit(name, data, solver=solver, loss=loss, init=init, n_init=2, max_iter=60)
        name = f"{solver}/{loss}/{dtype}/validation"
        settings = {"solver": solver, "loss": loss, "validation_fraction": 0.1, "max_iter": 60}
        add_fit(name, data, patience=3, **settings)
    for dtype, label in product(DTYPES, ("ridge", "random", "given")):
        init = given if label == "given" else label
        data = partial(low_rank, dtype=dtype, offset=1.0)
        add_fit(f"irls/huber/{dtype}/bias-init-{label}", data, bias=True, init=init, loss="huber")
    for loss, dtype in product(NONSMOOTH, DTYPES):
        add_fit(
            f"certify/{loss}/{dtype}",
            partial(low_rank, dtype=dtype),
            loss=loss,
            certify=True,
            max_iter=25,
        )
    add_fit("certify/welsch/float64", low_rank, certify=True)
    add_fit(
        "certify/lsp/float64/varpro",
        partial(low_rank, 90, 20),
        loss="lsp",
        certify=True,
        max_iter=25,
    )
    for dtype, bias in product(DTYPES, (True, False, "auto")):
        settings = {"bias": bias, "bounds": (0.5, 5.0), "loss": "huber"}
        tail = f"huber/{dtype}/bounds-bias-{bias}"
        add_fit(f"irls/{tail}", partial(ratings, dtype), **settings)
        add_fit(
            f"irls/{tail}-validation", partial(ratings, dtype), validation_fraction=0.15, **settings
        )
        named = partial(ratings, dtype, "str")
        add_fit(f"irls/{tail}-validation-ids", named, validation_fraction=0.15, **settings)
    add_fit(
        "irls/huber/float64/two-runs-validation",
        low_rank,
        solver="irls",
        loss="huber",
        n_init=2,
        validation_fraction=0.1,
    )
    add_fit("irls/welsch/float64/max-iter-0", low_rank, solver="irls", max_iter=0)
    add_fit("irls/cauchy/float64/tight", low_rank, solver="irls", loss="cauchy", tol=1e-10)
    add_fit("varpro/cauchy/float64/tight", low_rank, solver="varpro", loss="cauchy", tol=1e-12)


def add_data_forms() -> None:
    """Add shapes, labels, gaps, containers and units of the data."""
    shapes = {"wide": (25, 150), "tall": (150, 25), "square": (50, 50), "long": (12, 400)}
    for (label, shape), dtype in product(shapes.items(), DTYPES):
        data = partial(low_rank, *shape, dtype=dtype, seed=3, share=0.45)
        for loss in ("welsch", "lsp"):
            add_fit(f"auto/{loss}/{dtype}/{label}", data, loss=loss)
            add_fit(f"irls/{loss}/{dtype}/{label}-bias", data, loss=loss, bias=True)
        add_fit(f"mm/lsp/{dtype}/{label}", data, loss="lsp", solver="mm", max_iter=30)
    for ids, dtype in product(("str", "int"), DTYPES):
        add_fit(f"auto/welsch/{dtype}/ids-{ids}", partial(ratings, dtype, ids))
    mixed = {"row": ["b", "a", 3, "b", "a", 3, "c"], "col": [1, 1, 1, 2.5, 2.5, 2.5, (1, "x")]}
    values = [1.0, 2.0, 3.0, 2.0, 4.0, 6.1, 5.0]
    add_fit(
        "auto/huber/float64/ids-mixed",
        lambda: Observed.from_triplets(**mixed, value=values),
        rank=1,
        loss="huber",
    )
    for bias, solver in product((True, "auto"), ("auto", "irls")):
        data = partial(lambda: with_gaps(low_rank()))
        add_fit(f"{solver}/welsch/float64/empty-bias-{bias}", data, solver=solver, bias=bias)
    add_fit("varpro/lsp/float64/empty", lambda: with_gaps(low_rank()), solver="varpro", loss="lsp")
    add_fit("mm/lsp/float64/empty", lambda: with_gaps(low_rank()), solver="mm", loss="lsp")
    forms: dict[str, Callable[[Observed], Any]] = {
        "dense": as_dense,
        "csr": Observed.to_sparse,
        "csc": lambda data: sp.csc_array(data.to_sparse()),
        "coo": lambda data: sp.coo_array(data.to_sparse()),
        "coo-matrix": lambda data: sp.coo_matrix(data.to_sparse()),
        "masked": lambda data: np.ma.masked_invalid(as_dense(data)),
        "integers": lambda data: np.rint(10 * data.to_sparse()).astype(np.int32),
    }
    for label, form in forms.items():
        add_fit(f"auto/welsch/float64/input-{label}", partial(lambda form: form(low_rank()), form))
    add_fit("auto/welsch/float32/input-dense", lambda: as_dense(low_rank(dtype="float32")))
    for scale, dtype in product((1e-4, 1e5), DTYPES):
        data = partial(low_rank, dtype=dtype, scale=scale)
        for loss, solver in (
            ("welsch", "irls"),
            ("l1", "irls"),
            ("welsch", "varpro"),
            ("lsp", "mm"),
        ):
            add_fit(
                f"{solver}/{loss}/{dtype}/unit-{scale:g}",
                data,
                loss=loss,
                solver=solver,
                max_iter=60,
            )
    add_fit("auto/welsch/float64/no-noise", partial(exact, 40, 30))
    for loss in ("welsch", "l2", "lsp"):
        settings = {"solver": "irls", "loss": loss}
        add_fit(f"irls/{loss}/float64/symmetric", symmetric, **settings)
        square = partial(low_rank, 50, 50, seed=3)
        for label, data in {"symmetric": symmetric, "square": square}.items():
            name = f"irls/{loss}/float64/{label}-weights"
            add_fit(name, data, weights=entry_weights, **settings)
    wide = partial(low_rank, 25, 150, seed=3)
    for solver, loss in (("irls", "welsch"), ("varpro", "welsch"), ("mm", "lsp")):
        init = some_factors(wide())
        name = f"{solver}/{loss}/float64/wide-init-given"
        add_fit(name, wide, solver=solver, loss=loss, init=init, max_iter=30)
    for bias, loss in product((True, False, "auto"), ("welsch", "tukey", "huber")):
        name = f"auto/{loss}/float64/few-ratings-bias-{bias}"
        add_fit(name, few_ratings, loss=loss, bias=bias)
    settings = {"weights": partial(entry_weights, zeros=True), "validation_fraction": 0.1}
    add_fit("irls/huber/float64/weights-zeros-validation", low_rank, loss="huber", **settings)
    for label, make in {"generator": np.random.default_rng, "state": np.random.RandomState}.items():
        add(
            f"auto/welsch/float64/random-{label}",
            lambda make=make: fit(low_rank(), random_state=make(3)),
        )
    add_fit("auto/welsch/float32/constant", lambda: np.full((20, 15), 3.0, np.float32), rank=1)


def symmetric() -> Observed:
    """Make a symmetric matrix with some missing entries."""
    dense = as_dense(low_rank(40, 40, share=0.6))
    return Observed.from_dense(dense + dense.T)


def few_ratings() -> Observed:
    """Return the ratings of 70 users: too few entries to choose λ on some of them."""
    i, j, values = rating_table()
    few = i < 70
    return Observed.from_indices(i[few], j[few], values[few])


def add_labels() -> None:
    """Add labels of rows and columns of every type, in every container."""
    i, j, values = (column[:900] for column in rating_table())
    day = np.datetime64("2024-01-01")
    labels: dict[str, Callable[[Array], Any]] = {
        "numpy-int": lambda k: 5 * k - 40,
        "numpy-wide-int": lambda k: 10**12 * k,
        "numpy-uint8": lambda k: k.astype(np.uint8),
        "numpy-float": lambda k: k / 4,
        "numpy-str": lambda k: k.astype(str),
        "numpy-date": lambda k: day + k,
        "bytes": lambda k: [str(one).encode() for one in k],
        "tuple": lambda k: [(int(one) % 3, str(one)) for one in k],
        "mixed": lambda k: [int(one) if one % 2 else str(one) for one in k],
        "large-int": lambda k: [2**70 + int(one) for one in k],
    }

    def answers(made: Observed) -> Any:
        model = fit(made, rank=1, loss="huber", bias=True)
        rows = [made.row_ids[k] for k in (0, 3, 1)]
        columns = [made.column_ids[k] for k in (5, 2, 2)]
        return {
            "data": made.to_sparse(),
            "labels": [repr(list(ids)) for ids in (made.row_ids, made.column_ids)],
            "pairs": predict_pairs(model, rows, columns),
            "one": predict_pairs(model, rows[0], columns[0]),
            "row_factors": model.row_factors_,
            "validation": fit(made, rank=1, loss="huber", validation_fraction=0.2).row_factors_,
        }

    for label, form in labels.items():
        add(
            f"labels/{label}",
            lambda f=form: answers(Observed.from_triplets(row=f(i), col=f(j), value=values)),
        )

    def table(module: str) -> Any:
        columns = {"user": [f"u{k}" for k in i], "item": j, "stars": values}
        maker = importlib.import_module(module)
        make = maker.table if module == "pyarrow" else getattr(maker, "DataFrame", dict)
        return answers(Observed.from_triplets(make(columns), row="user", col="item", value="stars"))

    for module in ("pandas", "polars", "pyarrow", "builtins"):
        add(f"labels/table-{module}", partial(table, module))
    for rule in ("last", "mean", "error"):
        twice = {"row": [*i, *i[:50]], "col": [*j, *j[:50]], "value": [*values, *values[50:100]]}
        add(
            f"labels/duplicates-{rule}",
            lambda t=twice, r=rule: Observed.from_triplets(**t, duplicates=r),
        )


def exact(m: int, n: int) -> Array:
    """Return an array of rank 3 whose values are small integers."""
    rng = np.random.default_rng(11)
    U = rng.integers(-2, 3, (m, RANK))
    V = rng.integers(-2, 3, (n, RANK))
    return (U[:, None] * V).sum(axis=2).astype(np.float64)


def add_large() -> None:
    """Add fits to many entries, whose sweeps may be computed in float32."""
    data = partial(low_rank, 1200, 900, 5, share=0.21)
    add_fit("large/default/float64", partial(low_rank, 2500, 2000, 5, share=0.2), rank=5)
    add_fit(
        "large/default/float32",
        partial(low_rank, 2500, 2000, 5, share=0.2, dtype="float32"),
        rank=5,
    )
    for loss in ("welsch", "l2", "lsp", "huber"):
        add_fit(f"large/irls/{loss}", data, rank=5, solver="irls", loss=loss)
    add_fit("large/irls/huber/bias", data, rank=5, loss="huber", bias=True, reg=0.3)
    add_fit("large/irls/cauchy/weights", data, rank=5, loss="cauchy", weights=entry_weights)
    add_fit("large/irls/welsch/validation", data, rank=5, validation_fraction=0.1)
    add_fit("large/irls/welsch/tight", data, rank=5, tol=1e-8, init="ridge", max_iter=40)
    settings = {"rank": 2, "max_iter": 20}
    for dtype in DTYPES:
        add_fit(f"large/ratings/{dtype}", partial(many_ratings, dtype), **settings)
    for loss in (PseudoHuber(0.5), Opaque(0.5)):
        add_fit(f"large/irls/{loss.name}", data, rank=5, loss=loss, max_iter=15)


@cache
def many_ratings(dtype: str) -> Observed:
    """Return more ratings than the sample that λ is chosen on."""
    i, j, values = rating_table(4000, 500, seed=1)
    return Observed.from_indices(i, j, values.astype(dtype))


def add_user_losses() -> None:
    """Add user-defined losses, with and without a formula that can be compiled."""
    for loss, dtype, bias in product(USER_LOSSES, DTYPES, (False, True)):
        data = partial(low_rank, dtype=dtype)
        add_fit(f"irls/{loss.name}/{dtype}/bias-{bias}", data, solver="irls", loss=loss, bias=bias)
    for loss, dtype in product(USER_LOSSES, DTYPES):
        data = partial(low_rank, 90, 30, dtype=dtype)
        add_fit(f"varpro/{loss.name}/{dtype}", data, solver="varpro", loss=loss, max_iter=60)
        add_fit(f"mm-apg/{loss.name}/{dtype}", data, solver="mm", loss=loss, max_iter=20)
    add_fit("irls/user-pseudo-huber/float64/theta", low_rank, loss=PseudoHuber(), theta=0.8)
    add_fit("irls/user-plain/float64/weights", low_rank, loss=Plain(0.5), weights=entry_weights)
    add_fit("certify/user-root/float64", low_rank, loss=Root(0.5), certify=True, max_iter=20)


def add_partial_fits() -> None:
    """Add fits that continue with more rows, columns and entries."""

    def in_steps(parts: Callable[[], Sequence[Any]], weights: bool = False, **settings: Any) -> Any:
        model = make_model(**settings)
        for part in parts():
            model.partial_fit(part, weights=entry_weights(part) if weights else None)
        return model

    def rows(bounds: Sequence[int], dtype: str = "float64", n: int = 40) -> list[Any]:
        dense = as_dense(low_rank(90, n, dtype=dtype, offset=0.5))
        return [Observed.from_dense(dense[a:b]) for a, b in pairwise(bounds)]

    def named(dtype: str) -> list[Any]:
        return [ratings(dtype, "str", "old"), ratings(dtype, "str", "new")]

    for dtype, bias, loss in product(DTYPES, (True, False, "auto"), ("welsch", "lsp")):
        settings = {"bias": bias, "loss": loss}
        name = f"partial-fit/{loss}/{dtype}/bias-{bias}"
        add(f"{name}/rows", partial(in_steps, partial(rows, (0, 60, 90), dtype), **settings))
        add(f"{name}/ids", partial(in_steps, partial(named, dtype), **settings))
    bounds = (0, 30, 55, 90)
    add("partial-fit/doubling", partial(in_steps, partial(rows, bounds)))
    add("partial-fit/weights", partial(in_steps, partial(rows, (0, 60, 90)), weights=True))
    add("partial-fit/reg", partial(in_steps, partial(rows, (0, 60, 90)), reg=0.2, loss="huber"))
    add(
        "partial-fit/mm",
        partial(in_steps, partial(rows, (0, 60, 90)), solver="mm", loss="lsp", bias=False),
    )
    for loss, bias in product(("l2", "welsch", "huber"), (True, False)):
        wide = partial(rows, (0, 60, 90), n=130)
        name = f"partial-fit/{loss}/float64/bias-{bias}/wide"
        add(name, partial(in_steps, wide, loss=loss, bias=bias))
    given = some_factors(rows(bounds)[0])
    add("partial-fit/init-given", partial(in_steps, partial(rows, bounds), init=given))
    add("partial-fit/varpro", partial(in_steps, partial(rows, (0, 60, 90)), solver="varpro"))
    add("partial-fit/user-loss", partial(in_steps, partial(rows, (0, 60, 90)), loss=Plain(0.5)))
