"""Record the exact results of several hundred computations, and compare two records bit by bit.

A refactoring must not change results. Record them before and after it, on the same machine and in
the same environment (libraries and the processor's instruction set decide about the last bits)::

    python -m benchmarks same_results record before.json
    python -m benchmarks same_results record after.json
    python -m benchmarks same_results compare before.json after.json

A record has no times, dates or paths: two recordings of the same code are the same file. Every case
has a name and a number of fields. An array is stored as its SHA-256, type, shape, root mean square
and a few of its values; a scalar is stored as it is. Fields whose names begin with ``text.`` hold
the wording of messages and names of warnings; differences there are reported but do not count. A
field that was renamed and has the same content counts as equal, and is reported.

The file runs with several versions of the library. Names that differ between versions are resolved
in the section "Versions of the library"; everything else uses public names only. The data are made
here, from NumPy alone, so that the fits do not depend on ``robustmf.datasets``.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import hashlib
import importlib
import json
import logging
import math
import platform
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

import robustmf
from robustmf import RMFNL, Observed, RobustMF, baselines, datasets, metrics
from robustmf.intervals import ConformalIntervals
from robustmf.losses import Loss, loss_names, make_loss
from robustmf.selection import EntryKFold, RobustMFCV, entry_split, entry_train_test_split

Array = NDArray[Any]
Case = Callable[[], Any]

DTYPES = ("float64", "float32")
SMOOTH = ("l2", "huber", "cauchy", "welsch", "tukey", "geman-mcclure")
NONSMOOTH = ("l1", "lsp", "geman", "laplace", "mcp", "scad")
INNER = ("apg", "apg-dense", "ladmpsap")
RANK = 3

#: Threads of every fit; set by the command line. Results must not depend on it.
THREADS = {"n_jobs": 1}

# --- Versions of the library ---------------------------------------------------------------------

try:
    from robustmf import MM
except ImportError:
    MM = None

#: What the parameters of ``MM`` are called where they are parameters of ``RobustMF``.
MM_PARAMETERS = {
    "inner": "inner",
    "max_iter": "inner_max_iter",
    "tol": "inner_tol",
    "gap": "inner_gap",
}


def make_model(
    rank: int = RANK, *, kind: Any = RobustMF, mm: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """Make an estimator; ``mm`` has the parameters of the solver "mm" under their new names."""
    if mm is not None and MM is not None:
        settings["solver"] = MM(**mm)
    elif mm is not None:
        settings["solver"] = "mm"
        settings |= {MM_PARAMETERS[name]: value for name, value in mm.items()}
    return kind(rank, **{"random_state": 0} | THREADS | settings)


def predict_pairs(model: Any, rows: Any, columns: Any) -> Array:
    """Predict at pairs of a row and a column."""
    return getattr(model, "predict_pairs", model.predict)(rows, columns)


def clean_share(found: Any) -> float:
    """Return the estimated share of clean entries of an audit or of prediction intervals."""
    names = ("clean_share", "clean_share_", "good_share", "good_share_")
    return next(getattr(found, name) for name in names if hasattr(found, name))


def smoothed_name(base: str) -> str:
    """Return the name of the smoothed version of a nonsmooth loss."""
    known = loss_names()
    return next((name for p in ("rounded", "smoothed") if (name := f"{p}-{base}") in known), base)


def cluster_module() -> Any:
    """Import the module of fits on a Dask cluster."""
    for name in ("robustmf.backends.dask", "robustmf.cluster"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        if hasattr(module, "Triplets"):
            return module
    raise ImportError("no module of this version has Triplets")


# --- Data ----------------------------------------------------------------------------------------


@cache
def low_rank(
    m: int = 60,
    n: int = 45,
    rank: int = RANK,
    share: float = 0.4,
    outliers: float = 0.05,
    dtype: str = "float64",
    seed: int = 0,
    offset: float = 0.0,
    scale: float = 1.0,
) -> Observed:
    """Make entries of a low-rank matrix with noise 0.1, outliers of ±5, and ``offset`` biases."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    row_bias = offset * rng.standard_normal(m)
    column_bias = offset * rng.standard_normal(n)
    i, j = np.nonzero(rng.random((m, n)) < share)
    values = np.einsum("tq,tq->t", U[i], V[j]) + 0.1 * rng.standard_normal(len(i))
    values += row_bias[i] + column_bias[j] + offset
    bad = rng.random(len(i)) < outliers
    values[bad] += 5 * rng.choice([-1.0, 1.0], int(bad.sum()))
    return Observed.from_indices(i, j, (scale * values).astype(dtype), (m, n))


@cache
def rating_table(m: int = 250, n: int = 120, seed: int = 0) -> tuple[Array, Array, Array]:
    """Make ratings in half stars: row numbers, column numbers, values; few entries, weak signal."""
    rng = np.random.default_rng(seed)
    popularity = np.minimum(0.9, 0.15 * rng.lognormal(sigma=0.8, size=n))
    i, j = np.nonzero(rng.random((m, n)) < popularity)
    tastes = 0.5 * rng.standard_normal((m, 2))
    kinds = rng.standard_normal((n, 2))
    mean = 3.4 + 0.4 * rng.standard_normal(m)[i] + 0.5 * rng.standard_normal(n)[j]
    mean += np.einsum("tq,tq->t", tastes[i], kinds[j]) + 0.7 * rng.standard_normal(len(i))
    return i, j, np.clip(np.rint(2 * mean) / 2, 0.5, 5.0)


@cache
def ratings(dtype: str = "float64", ids: str = "none", part: str = "all") -> Observed:
    """Return the ratings as entries; ``part`` is "all", or "old" or "new" with some in both."""
    i, j, values = rating_table()
    rows = {"all": i >= 0, "old": (i < 200) & (j < 110), "new": i >= 190}[part]
    i, j, values = i[rows], j[rows], values[rows].astype(dtype)
    if ids == "none":
        return Observed.from_indices(i, j, values)
    if ids == "int":
        return Observed.from_triplets(
            row=(1000 - 3 * i).tolist(), col=(7 * j).tolist(), value=values
        )
    users = [f"user {k:03}" for k in i]
    items = [f"item {k:03}" for k in j]
    return Observed.from_triplets(row=users, col=items, value=values)


def with_gaps(data: Observed) -> Observed:
    """Return the entries without those of every tenth row and every ninth column."""
    entries = sp.coo_array(data.to_sparse())
    return data.select((entries.row % 10 != 3) & (entries.col % 9 != 4))


def as_dense(data: Observed) -> Array:
    """Return the entries as a dense array, NaN where there is none."""
    entries = sp.coo_array(data.to_sparse())
    dense = np.full(data.shape, np.nan, data.dtype)
    dense[entries.row, entries.col] = entries.data
    return dense


def entry_weights(data: Observed, zeros: bool = False) -> Array:
    """Make one weight per entry, some of them zero on request."""
    rng = np.random.default_rng(7)
    weights = rng.uniform(0.2, 2.0, data.n_entries)
    if zeros:
        weights[rng.random(data.n_entries) < 0.15] = 0
    return weights


def some_factors(data: Observed, seed: int = 5) -> tuple[Array, Array]:
    """Draw an initial point."""
    rng = np.random.default_rng(seed)
    m, n = data.shape
    return rng.standard_normal((m, RANK)), rng.standard_normal((n, RANK))


# --- User-defined losses -------------------------------------------------------------------------


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """A smooth user-defined loss with a weight formula that can be compiled."""

    name = "user-pseudo-huber"
    degree = 2
    efficient_theta = 1.5

    def _value(self, a: Any) -> Any:
        return self.theta * (np.sqrt(self.theta * self.theta + a * a) - self.theta)

    def _derivative(self, a: Any) -> Any:
        return self.theta * a / np.sqrt(self.theta * self.theta + a * a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """Return φ'(a)/a."""
        return theta / np.sqrt(theta * theta + a * a)


@dataclass(frozen=True)
class Plain(Loss):
    """The same loss without a weight formula."""

    name = "user-plain"
    degree = 2

    def _value(self, a: Any) -> Any:
        return self.theta * (np.sqrt(self.theta * self.theta + a * a) - self.theta)

    def _derivative(self, a: Any) -> Any:
        return self.theta * a / np.sqrt(self.theta * self.theta + a * a)


@dataclass(frozen=True)
class Opaque(Loss):
    """A Huber loss that tests the values of its argument, so that no formula can be derived."""

    name = "user-opaque"
    degree = 2

    def _value(self, a: Any) -> Any:
        if a.max(initial=0) <= self.theta:
            return a * a / 2
        return np.where(a <= self.theta, a * a / 2, self.theta * (a - self.theta / 2))

    def _derivative(self, a: Any) -> Any:
        return np.clip(a, None, self.theta)


@dataclass(frozen=True)
class Root(Loss):
    """A concave user-defined loss: √(a + θ) − √θ."""

    name = "user-root"
    concave = True

    def _value(self, a: Any) -> Any:
        return np.sqrt(a + self.theta) - np.sqrt(self.theta)

    def _derivative(self, a: Any) -> Any:
        return 0.5 / np.sqrt(a + self.theta)


@dataclass(frozen=True)
class Arctan(Loss):
    """A convex loss with slope θ·arctan(a/θ), whose formula only Numba itself can compile."""

    name = "user-arctan"
    degree = 2

    def _value(self, a: Any) -> Any:
        t = a / self.theta
        return self.theta * self.theta * (t * np.arctan(t) - 0.5 * np.log1p(t * t))

    def _derivative(self, a: Any) -> Any:
        return self.theta * np.arctan(a / self.theta)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """Return φ'(a)/a."""
        t = np.maximum(a / theta, 1e-6)
        return np.arctan(t) / t


USER_LOSSES = (PseudoHuber(0.5), Plain(0.5), Opaque(0.5), Root(0.5), Arctan(0.5))

# --- Cases ---------------------------------------------------------------------------------------

CASES: dict[str, Case] = {}


def add(name: str, case: Case) -> None:
    """Add a case under a name that is not taken."""
    if name in CASES:
        raise ValueError(f"there are two cases {name!r}")
    CASES[name] = case


def fit(data: Any, *, weights: Any = None, **settings: Any) -> Any:
    """Fit a model; ``weights`` may be a function that makes them for the data."""
    made = weights(data) if callable(weights) else weights
    return make_model(**settings).fit(data, weights=made)


def add_fit(name: str, data: Callable[[], Any], **settings: Any) -> None:
    """Add a fit with given settings to data that are made when the case runs."""
    add(name, lambda: fit(data(), **settings))


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


@cache
def answering(name: str) -> tuple[Any, Observed]:
    """Fit one of the models that are asked for predictions, and return it with its data."""
    models: dict[str, tuple[Callable[[], Observed], dict[str, Any]]] = {
        "plain": (partial(low_rank, 80, 50), {}),
        "float32": (partial(low_rank, 80, 50, dtype="float32"), {}),
        "bias": (partial(low_rank, 80, 50, offset=1.0), {"bias": True, "loss": "huber"}),
        "ratings": (partial(ratings, "float32"), {"bias": True, "bounds": (0.5, 5.0)}),
        "ids": (partial(ratings, "float64", "str"), {"bias": True, "bounds": (0.5, 5.0)}),
        "int-ids": (partial(ratings, "float64", "int"), {"bias": False, "loss": "huber"}),
        "by-count": (ratings, {"bias": True, "reg": 0.02, "reg_by_count": True, "loss": "huber"}),
        "nonsmooth": (partial(low_rank, 80, 50), {"loss": "lsp", "solver": "irls"}),
        "mm": (partial(low_rank, 80, 50), {"loss": "lsp", "solver": "mm"}),
        "varpro": (partial(low_rank, 100, 20), {"solver": "varpro"}),
        "least-squares": (partial(low_rank, 80, 50), {"loss": "l2", "bias": False}),
        "user-loss": (partial(low_rank, 80, 50), {"loss": Plain(0.5)}),
        "large": (partial(low_rank, 1200, 900, 5, share=0.21), {"rank": 5, "bias": True}),
    }
    data, settings = models[name]
    return fit(data(), **settings), data()


def new_rows(data: Observed) -> Any:
    """Make rows that a model has not seen: labelled where the data are, one of them empty."""
    n = data.shape[1]
    made = as_dense(low_rank(9, n, share=0.5, dtype=str(data.dtype), seed=8, outliers=0.1))
    made[4] = np.nan
    if data.column_ids is None:
        return made
    rows, columns = np.nonzero(~np.isnan(made))
    labels = list(data.column_ids)
    other = "unknown" if isinstance(labels[0], str) else -1
    named = [other if k == 0 else labels[k] for k in columns]
    return Observed.from_triplets(row=rows.tolist(), col=named, value=made[rows, columns])


def held_out(data: Observed) -> Observed:
    """Make entries at places of the fitted matrix, in part those of the fit."""
    entries = sp.coo_array(data.to_sparse())
    rng = np.random.default_rng(9)
    m, n = data.shape
    places = np.unique(
        np.concatenate(
            [rng.choice(m * n, 300, replace=False), entries.row[:50] * n + entries.col[:50]]
        )
    )
    i, j = np.divmod(places, n)
    values = rng.standard_normal(len(places)).astype(data.dtype)
    if data.row_ids is None:
        return Observed.from_indices(i, j, values, data.shape)
    rows = [data.row_ids[k] for k in i]
    columns = [data.column_ids[k] for k in j]
    return Observed.from_triplets(row=rows, col=columns, value=values)


def questions(data: Observed) -> tuple[list[Any], list[Any]]:
    """Return row and column labels (or numbers) to ask a model about; labels may be unknown."""
    rng = np.random.default_rng(10)
    rows = rng.integers(data.shape[0], size=60).tolist()
    columns = rng.integers(data.shape[1], size=60).tolist()
    if data.row_ids is None:
        return rows, columns
    unknown = "nobody" if isinstance(data.row_ids[0], str) else -5
    return (
        [data.row_ids[k] for k in rows[:-3]] + [unknown] * 3,
        [data.column_ids[k] for k in columns[:-1]] + [unknown],
    )


def saved_and_loaded(model: Any, data: Observed) -> dict[str, Any]:
    """Return the answers of a model that was saved to a file and read again."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = robustmf.load(Path(folder) / "model")
    return {
        "model": loaded,
        "pairs": predict_pairs(loaded, *questions(data)),
        "transform": loaded.transform(new_rows(data)),
        "scores": loaded.outlier_scores(),
    }


def audited(model: Any, **options: Any) -> dict[str, Any]:
    """Return an audit: its fields, the numbers in its text, and the text."""
    audit = model.audit(**options)
    parts: dict[str, Any] = {"good_share": clean_share(audit)}
    for side in ("entries", "rows", "columns"):
        for k, suspect in enumerate(getattr(audit, side)):
            values = {part.name: getattr(suspect, part.name) for part in fields(suspect)}
            values.pop("reason", None)
            parts[f"{side}.{k}"] = values
    numbers = re.findall(r"(?<![\w'])-?\d[\d.,e+-]*", str(audit))
    return parts | {"numbers_in_text": numbers, "text.audit": str(audit)}


def matrix_prediction(model: Any, data: Observed) -> Array:
    """Predict every entry of dense rows."""
    return model.predict(as_dense(data)[:20])


METHODS: dict[str, Callable[[Any, Observed], Any]] = {
    "predict-pairs": lambda model, data: predict_pairs(model, *questions(data)),
    "predict-arrays": lambda model, data: predict_pairs(model, *map(np.array, questions(data))),
    "predict-matrix": matrix_prediction,
    "transform": lambda model, data: model.transform(new_rows(data)),
    "inverse-transform": lambda model, data: model.inverse_transform(
        model.transform(new_rows(data))
    ),
    "recommend": lambda model, data: model.recommend(questions(data)[0], 5),
    "recommend-one": lambda model, data: model.recommend(questions(data)[0][0], 200),
    "recommend-seen": lambda model, data: model.recommend(
        questions(data)[0], 7, exclude_seen=False
    ),
    "similar-items": lambda model, data: model.similar_items(questions(data)[1][:20], 6),
    "score-new": lambda model, data: model.score(new_rows(data)),
    "score-fitted": lambda model, data: model.score(held_out(data), rows="fitted"),
    "entry-weights": lambda model, data: model.entry_weights(held_out(data)),
    "outlier-scores": lambda model, data: model.outlier_scores(),
    "outlier-scores-others": lambda model, data: model.outlier_scores(held_out(data)),
    "outlier-scores-new": lambda model, data: model.outlier_scores(new_rows(data), rows="new"),
    "outlier-scores-attacks": lambda model, data: model.outlier_scores(attacks=True),
    "row-scores": lambda model, data: model.row_scores(),
    "row-scores-new": lambda model, data: model.row_scores(new_rows(data), rows="new"),
    "column-scores": lambda model, data: model.column_scores(),
    "column-scores-new": lambda model, data: model.column_scores(new_rows(data), rows="new"),
    "audit": lambda model, data: audited(model, top=5, at_most=0.05),
    "audit-new": lambda model, data: audited(model, X=new_rows(data), rows="new", top=5),
    "save": saved_and_loaded,
    "memory": lambda model, data: model.memory_estimate(data),
}


def add_answers() -> None:
    """Add every method of a fitted model, for models of every kind."""

    def ask(name: str, method: str) -> Any:
        return METHODS[method](*answering(name))

    names = (
        "plain",
        "float32",
        "bias",
        "ratings",
        "ids",
        "int-ids",
        "by-count",
        "nonsmooth",
        "mm",
        "varpro",
        "least-squares",
        "user-loss",
    )
    for name, method in product(names, METHODS):
        add(f"answers/{name}/{method}", partial(ask, name, method))
    for method in ("outlier-scores", "row-scores", "column-scores", "audit", "recommend"):
        add(f"answers/large/{method}", partial(ask, "large", method))
    sizes = {"shape": (10_000, 3_000), "n_entries": 400_000}
    for label, settings in {
        "default": {},
        "bias": {"bias": True},
        "validation": {"validation_fraction": 0.1},
        "ridge": {"init": "ridge", "solver": "irls"},
    }.items():
        add(
            f"answers/memory/{label}",
            lambda k=settings: [
                make_model(**k).memory_estimate(**sizes, dtype=dtype, source_bytes=12)
                for dtype in DTYPES
            ],
        )
    for bias in (True, False):
        data = partial(low_rank, offset=1.0)
        add(
            f"answers/fit-transform/bias-{bias}",
            lambda b=bias, d=data: make_model(bias=b).fit_transform(d()),
        )


def add_selection() -> None:
    """Add splits, cross-validation and prediction intervals."""
    for ids in ("none", "str"):
        add(
            f"selection/k-fold/{ids}",
            lambda i=ids: list(EntryKFold(3, random_state=0).split(ratings(ids=i))),
        )
    add("selection/split", lambda: entry_split(ratings(), (0.5, 0.3, 0.2), random_state=1))
    add("selection/train-test", lambda: entry_train_test_split(low_rank(), 0.2, random_state=2))

    def chosen(data: Callable[[], Observed], template: dict[str, Any], **settings: Any) -> Any:
        search = RobustMFCV(estimator=make_model(**template), random_state=0, cv=3, **settings).fit(
            data()
        )
        results = {
            name: values for name, values in search.cv_results_.items() if name.endswith("_score")
        }
        best = {name: str(value) for name, value in search.best_params_.items()}
        return {
            "results": results,
            "best": best,
            "best_score": search.best_score_,
            "model": search.best_estimator_,
            "score": search.score(held_out(data())),
        }

    add("selection/cv/rank", partial(chosen, low_rank, {}, rank=[1, 2, 3, 4]))
    add(
        "selection/cv/reg",
        partial(chosen, low_rank, {"bias": True}, rank=2, reg=["auto", 0.1, 1.0, 10.0]),
    )
    add(
        "selection/cv/theta",
        partial(
            chosen,
            low_rank,
            {},
            rank=3,
            theta=["auto", 0.3, 1.0],
            reg=[0.1, 0.5],
            scoring="trimmed",
        ),
    )
    add(
        "selection/cv/loss",
        partial(chosen, few_ratings, {}, rank=[1, 2], loss=["huber", "lsp", "l2"]),
    )
    add(
        "selection/cv/mm",
        partial(chosen, low_rank, {"solver": "mm", "max_iter": 10}, rank=[2, 3], loss="lsp"),
    )

    def intervals(data: Observed, **settings: Any) -> Any:
        train, rest = entry_train_test_split(data, 0.3, random_state=3)
        made = ConformalIntervals(fit(train, **settings), rest)
        rows, columns = (sp.coo_array(rest.to_sparse()).coords[side][:100] for side in (0, 1))
        found = {str(level): made.predict(rows, columns, level) for level in (0.5, 0.9, 0.99)}
        return {"good_share": clean_share(made)} | found

    add("intervals/plain", lambda: intervals(low_rank(80, 60)))
    add("intervals/float32", lambda: intervals(low_rank(80, 60, dtype="float32"), loss="lsp"))
    add(
        "intervals/ratings",
        lambda: intervals(ratings(), bias=True, bounds=(0.5, 5.0), loss="huber"),
    )
    add("intervals/mm", lambda: intervals(low_rank(80, 60), loss="lsp", solver="mm"))


def add_baselines() -> None:
    """Add every comparison system with few iterations."""
    start = some_factors(low_rank(), 6)
    systems: dict[str, tuple[str, dict[str, Any]]] = {
        "alt-grad": ("AltGrad", {"max_iter": 60}),
        "alt-grad-paper": ("AltGrad", {"max_iter": 30, "reg": "paper"}),
        "alt-grad-joint": ("AltGrad", {"max_iter": 60, "variant": "joint", "reg": 0.5}),
        "alt-grad-minibatch": ("AltGrad", {"max_iter": 10, "variant": "minibatch"}),
        "alt-impute": ("AltImpute", {"max_iter": 60}),
        "alt-impute-no-svd": ("AltImpute", {"max_iter": 30, "final_svd": False, "reg": 0.5}),
        "grasta": ("GRASTA", {"max_iter": 5}),
        "omdl": ("OMDL", {"max_iter": 5}),
        "omdl-detrend": ("OMDL", {"max_iter": 5, "detrend": True, "batch_size": 10}),
        "rmc": ("RMC", {"max_iter": 3}),
        "rmc-reg": ("RMC", {"max_iter": 3, "reg": 0.01, "inner_max_iter": 15}),
        "rmf-mm": ("RMFMM", {"max_iter": 6, "inner_max_iter": 60}),
        "rmf-mm-heuristic": ("RMFMM", {"max_iter": 10, "inner_max_iter": 60, "heuristic": True}),
        "rmf-mm-init": ("RMFMM", {"max_iter": 5, "inner_max_iter": 60, "init": start}),
        "rp": ("RP", {"max_iter": 60}),
        "rp-hestenes-stiefel": ("RP", {"max_iter": 60, "conjugacy": "hestenes-stiefel"}),
        "scaled-asd": ("ScaledASD", {"max_iter": 60}),
    }

    def result(system: str, data: Any, settings: dict[str, Any]) -> Any:
        model = make_model(kind=getattr(baselines, system), **settings).fit(data)
        rows, columns = np.indices((10, 10))
        return {"model": model, "predictions": model.predict(rows, columns)}

    for (label, (system, settings)), dtype in product(systems.items(), DTYPES):
        # stochastic gradients diverge on larger values
        scale = 0.3 if label == "alt-grad-minibatch" else 1.0
        made: dict[str, Callable[[], Any]] = {
            "": partial(low_rank, dtype=dtype, scale=scale),
            "/wide": partial(
                low_rank, 30, 90, outliers=0.0, offset=0.5, dtype=dtype, scale=scale, seed=4
            ),
            "/exact": lambda d=dtype, s=scale: (s * exact(60, 45)).astype(d),
        }
        for end, data in made.items():
            if end != "/wide" or "init" not in settings:
                name = f"baseline/{label}/{dtype}{end}"
                add(name, lambda s=system, d=data, k=settings: result(s, d(), k))


class LeaveError(Exception):
    """Raised by a callback to leave a fit."""


def add_checkpoints() -> None:
    """Add fits that are left in the middle and resumed from their checkpoints."""

    def leave(after: int) -> Callable[[Any], None]:
        def callback(snapshot: Any) -> None:
            if snapshot.iteration >= after:
                raise LeaveError

        return callback

    def resumed(data: Observed, **settings: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            with contextlib.suppress(LeaveError):
                make_model(callbacks=[leave(2)], **settings).fit(
                    data, checkpoint=path, checkpoint_every=0
                )
            model = make_model(**settings).fit(data, resume=path)
        undisturbed = fit(data, **settings)
        return {"model": model, "same_as_undisturbed": same_fields(model, undisturbed)}

    def finished(data: Observed, **settings: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            fit_once = partial(make_model(**settings).fit, data, checkpoint=path)
            fit_once()
            return fit_once()

    ways: dict[str, dict[str, Any]] = {
        "irls": {"solver": "irls", "loss": "cauchy", "tol": 1e-5},
        "irls-nonsmooth": {"solver": "irls", "loss": "lsp"},
        "irls-bias": {"solver": "irls", "bias": True, "loss": "huber"},
        "irls-user-loss": {"solver": "irls", "loss": Root(0.5), "max_iter": 12},
        "mm": {"solver": "mm", "loss": "lsp", "max_iter": 10},
        "mm-gap": {"mm": {"gap": 0.1}, "loss": "geman", "max_iter": 6},
        "mm-apg-dense": {"mm": {"inner": "apg-dense"}, "loss": "lsp", "max_iter": 4},
        "mm-ladmpsap": {"mm": {"inner": "ladmpsap", "max_iter": 40}, "loss": "lsp", "max_iter": 4},
        "varpro": {"solver": "varpro", "tol": 1e-12, "max_iter": 12},
        "certify": {"loss": "l1", "certify": True, "max_iter": 6},
        "two-runs": {"solver": "irls", "n_init": 2, "init": "random", "loss": "huber"},
        "validation": {"validation_fraction": 0.1, "loss": "geman"},
    }
    for (label, settings), dtype in product(ways.items(), DTYPES):
        add(
            f"checkpoint/{label}/{dtype}",
            lambda d=dtype, s=settings: resumed(low_rank(dtype=d), **s),
        )
    for label in ("irls-bias", "mm", "two-runs", "certify"):
        name = f"checkpoint/finished/{label}"
        add(name, lambda s=ways[label]: finished(low_rank(), **s))


def add_datasets() -> None:
    """Add synthetic data, attacks and the inputs of the other cases."""
    synthetic: dict[str, dict[str, Any]] = {
        "default": {"m": 100},
        "wide": {"m": 40, "n": 90, "rank": 3, "observed": 0.5},
        "float32": {"m": 60, "dtype": "float32", "observed": 0.4},
        "clean": {"m": 50, "noise": 0.0, "outliers": 0.0, "observed": 0.6},
        "attacked": {"m": 50, "outliers": 0.2, "magnitude": 9.0, "observed": 0.6},
    }
    for label, settings in synthetic.items():
        add(
            f"datasets/synthetic/{label}",
            lambda s=settings: datasets.make_synthetic(**s, random_state=0),
        )

    def errors() -> dict[str, Any]:
        data = datasets.make_synthetic(60, rank=RANK, observed=0.5, random_state=1)
        model = fit(data.train)
        error = data.test_rmse(model.row_factors_, model.column_factors_)
        return {"test_rmse": error, "clean": data.clean, "test_mask": data.test_mask}

    add("datasets/synthetic/test-rmse", errors)
    add("datasets/tracks", lambda: datasets.make_tracks(60, random_state=0))
    add(
        "datasets/tracks/fit",
        lambda: fit(datasets.make_tracks(60, random_state=0).observed, rank=4, loss="l1"),
    )
    attacks: dict[str, Callable[[Observed], Any]] = {
        "love-hate": lambda data: datasets.love_hate(data, random_state=0),
        "love-hate-ratings": lambda data: datasets.love_hate(
            data, (0, 6), per="rating", share=0.1, random_state=1
        ),
        "random": lambda data: datasets.random_attack(data, random_state=0),
        "random-nuke": lambda data: datasets.random_attack(
            data, [3, 5], direction="nuke", random_state=1
        ),
        "average": lambda data: datasets.average_attack(data, random_state=0),
        "bandwagon": lambda data: datasets.bandwagon_attack(data, random_state=0),
        "bandwagon-nuke": lambda data: datasets.bandwagon_attack(
            data, direction="nuke", random_state=1
        ),
        "segment": lambda data: datasets.segment_attack(data, [1, 4, 9], random_state=0),
    }
    for (label, attack), ids in product(attacks.items(), ("none", "str", "int")):
        add(f"datasets/attack/{label}/{ids}", lambda a=attack, i=ids: a(ratings(ids=i)))

    def suspects(attack: Callable[[Observed], Any]) -> dict[str, Any]:
        data = attack(ratings(ids="str")).ratings
        model = fit(data, bias=True, loss="huber")
        return {"rows": model.row_scores(), "columns": model.column_scores()} | audited(
            model, at_most=0.1
        )

    for label in ("love-hate", "average", "bandwagon"):
        add(f"datasets/attack/{label}/audit", lambda a=attacks[label]: suspects(a))
    add(
        "inputs/low-rank", lambda: [low_rank(dtype=d, offset=o) for d in DTYPES for o in (0.0, 1.0)]
    )
    add("inputs/ratings", lambda: [ratings(ids=ids) for ids in ("none", "str", "int")])


def add_metrics() -> None:
    """Add the functions of ``robustmf.metrics``."""

    def values() -> dict[str, Any]:
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((2, 501))
        bad = rng.random(501) < 0.1
        scores = np.round(rng.standard_normal((250, 120)), 1)
        return {
            "rmse": metrics.rmse(a, b),
            "rmse-float32": metrics.rmse(a.astype(np.float32), b.astype(np.float32)),
            "mae": metrics.mae(a, b),
            "shift": metrics.prediction_shift(a, b),
            "hits": metrics.hit_ratio(scores, [3, 70], 10),
            "hits-unseen": metrics.hit_ratio(scores, [3, 70], 10, ratings()),
            "auc": metrics.detection_auc(bad, np.round(a, 1)),
            "average-precision": metrics.detection_average_precision(bad, a),
            "precision": metrics.precision_at_k(bad, np.round(a, 1)),
            "precision-20": metrics.precision_at_k(bad, np.round(a, 1), 20),
            "t-test": metrics.paired_t_test(a[:9], b[:9]),
            "t-test-constant": metrics.paired_t_test(a[:9], a[:9] + 1),
        }

    add("metrics", values)


@cache
def dask_client() -> Any:
    """Start a Dask cluster of two workers with one thread each, in this process."""
    import distributed  # noqa: PLC0415 - an optional dependency

    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    )
    client = distributed.Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    return client


@cache
def rating_frame(dtype: str = "float64", n_users: int = 90) -> Any:
    """Return some ratings as a shuffled pandas table with a column of weights."""
    i, j, values = rating_table()
    order = np.random.default_rng(0).permutation(np.flatnonzero(i < n_users))
    i, j, values = i[order], j[order], values[order].astype(dtype)
    trust = np.random.default_rng(1).integers(0, 3, len(i)).astype(dtype)
    users = [f"u{k:03}" for k in i]
    return pd.DataFrame({"user": users, "item": 7 * j, "rating": values, "trust": trust})


NAMES = {"row": "user", "col": "item", "value": "rating"}


def on_cluster(
    frame: Any, triplets: dict[str, Any], fit_options: dict[str, Any], **settings: Any
) -> Any:
    """Fit three pieces of a table on the cluster; two blocks unless ``triplets`` says otherwise."""
    pieces = [frame.iloc[k::3] for k in range(3)]
    data = cluster_module().Triplets(pieces, **{"blocks": 2} | NAMES | triplets)
    return make_model(2, **settings).fit(data, client=dask_client(), **fit_options)


def matrix_frame(data: Observed) -> Any:
    """Return entries as a pandas table."""
    entries = sp.coo_array(data.to_sparse())
    return pd.DataFrame({"user": entries.row, "item": entries.col, "rating": entries.data})


def communities() -> Any:
    """Return the entries of two matrices side by side, whose users have no item in common."""
    one = matrix_frame(low_rank(share=0.15))
    other = matrix_frame(low_rank(share=0.15, seed=1))
    return pd.concat([one, other.assign(user=other.user + 60, item=other.item + 45)])


def given_pair(m: int, n: int) -> tuple[Array, Array]:
    """Draw an initial point of rank 2."""
    rng = np.random.default_rng(12)
    return rng.standard_normal((m, 2)), rng.standard_normal((n, 2))


def add_cluster_fits() -> None:
    """Add fits on a Dask cluster."""
    frame = rating_frame()
    given = given_pair(frame.user.nunique(), frame.item.nunique())
    ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "auto": ({}, {}),
        "given": ({}, {"init": given}),
        "given-bias": ({}, {"init": given, "bias": True, "reg": 0.5, "loss": "huber"}),
        "ridge": ({}, {"init": "ridge", "loss": "l1", "tol": 1e-2}),
        "lsp": ({}, {"loss": "lsp"}),
        "bias": ({}, {"loss": "l2", "bias": True, "reg": 0.3}),
        "no-bias": ({}, {"bias": False, "loss": "huber", "reg": 0.5}),
        "by-count": ({}, {"loss": "huber", "bias": True, "reg_by_count": True, "reg": 0.02}),
        "validation": ({}, {"loss": "huber", "validation_fraction": 0.1, "bounds": (0.5, 5.0)}),
        "weights": ({"weight": "trust"}, {"loss": "huber"}),
        "three-blocks": ({"blocks": 3}, {}),
        "user-loss": ({}, {"loss": Plain(0.4), "reg": 0.5}),
        "mm-refused": ({}, {"solver": "mm", "loss": "lsp"}),
    }
    for (label, (triplets, settings)), dtype in product(ways.items(), DTYPES):
        add(
            f"cluster/fit/{label}/{dtype}",
            lambda t=triplets, s=settings, d=dtype: on_cluster(rating_frame(d), t, {}, **s),
        )

    def duplicates(rule: str) -> Any:
        twice = pd.concat([frame, frame.iloc[:100].assign(rating=1.0)], ignore_index=True)
        return on_cluster(twice, {"duplicates": rule}, {})

    for rule in ("last", "mean", "error"):
        add(f"cluster/fit/duplicates-{rule}/float64", partial(duplicates, rule))
    large = partial(low_rank, 1200, 900, 2, share=0.26)
    short = {"loss": "huber", "max_iter": 10}
    tables: dict[str, tuple[Callable[[], Any], int, dict[str, Any]]] = {
        "square": (
            lambda: matrix_frame(low_rank(40, 40)),
            2,
            {"init": given_pair(40, 40), "loss": "huber"},
        ),
        "communities": (communities, 5, {"loss": "huber", "reg": 0.5}),
        "large": (lambda: matrix_frame(large()), 2, short),
        "large-given": (lambda: matrix_frame(large()), 2, {"init": given_pair(1200, 900)} | short),
    }
    for label, (table, blocks, settings) in tables.items():
        add(
            f"cluster/fit/{label}",
            lambda d=table, b=blocks, s=settings: on_cluster(d(), {"blocks": b}, {}, **s),
        )


def add_cluster_inputs() -> None:
    """Add fits on a Dask cluster to every form of data, and a checkpoint."""
    frame = rating_frame()

    def from_parts(form: str) -> Any:
        import dask.dataframe as dd  # noqa: PLC0415 - an optional dependency

        with tempfile.TemporaryDirectory() as folder:
            for k in range(2):
                frame.iloc[k::2].to_parquet(Path(folder) / f"{k}.parquet", index=False)
            parts: dict[str, Any] = {
                "folder": folder,
                "files": sorted(map(str, Path(folder).glob("*.parquet"))),
                "dask": dd.from_pandas(frame, npartitions=4),
                "mapping": [dict(frame.items())],
            }
            data = cluster_module().Triplets(parts[form], blocks=2, **NAMES)
            return make_model(2, loss="huber").fit(data, client=dask_client())

    for form in ("folder", "files", "dask", "mapping"):
        add(f"cluster/input/{form}", partial(from_parts, form))

    def resumed() -> Any:
        def leave(snapshot: Any) -> None:
            if snapshot.iteration >= 2:
                raise LeaveError

        settings = {"loss": "cauchy", "bias": True, "reg": 0.5, "tol": 1e-6, "max_iter": 12}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            with contextlib.suppress(LeaveError):
                options = {"checkpoint": path, "checkpoint_every": 0}
                on_cluster(frame, {}, options, callbacks=[leave], **settings)
            model = on_cluster(frame, {}, {"resume": path}, **settings)
        undisturbed = on_cluster(frame, {}, {}, **settings)
        return {"model": model, "same_as_undisturbed": same_fields(model, undisturbed)}

    add("cluster/checkpoint", resumed)


def add_cluster_answers() -> None:
    """Add the answers of models that were fitted on a Dask cluster."""
    frame = rating_frame()

    def saved() -> Any:
        model = on_cluster(frame, {}, {}, loss="huber", bias=True)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model")
            return robustmf.load(Path(folder) / "model")

    add("cluster/save", saved)

    def answers(bias: bool, shards: bool, seen: bool) -> dict[str, Any]:
        import dask.dataframe as dd  # noqa: PLC0415 - an optional dependency

        cluster = cluster_module()
        table = dd.from_pandas(frame, npartitions=3)
        users = pd.DataFrame({"user": sorted(frame.user.unique())[:5]})
        users = dd.from_pandas(users, npartitions=2)
        options = {"seen": table, "col": "item"} if seen else {}
        with tempfile.TemporaryDirectory() as folder:
            triplets = {"shards": folder} if shards else {}
            model = on_cluster(frame, triplets, {}, bias=bias, loss="huber")
            if shards:
                model = cluster.ShardedModel(folder)
                predict, scores, recommend = model.predict, model.outlier_scores, model.recommend
            else:
                predict, scores, recommend = (
                    partial(getattr(cluster, name), model)
                    for name in ("predict", "outlier_scores", "recommend")
                )
            best = recommend(users, 4, row="user", **options).compute()
            return {
                "predict": predict(table, row="user", col="item").compute(),
                "outlier_scores": scores(table, **NAMES).compute(),
                "recommend": best.sort_values(list(best.columns[:2]), ignore_index=True),
            }

    for bias, shards, seen in product((True, False), (False, True), (False, True)):
        name = f"cluster/answers/bias-{bias}{'-shards' * shards}{'-seen' * seen}"
        add(name, partial(answers, bias, shards, seen))


def add_all() -> None:
    """Add all cases."""
    add_losses()
    add_datasets()
    add_metrics()
    add_solvers()
    add_models()
    add_procedures()
    add_data_forms()
    add_labels()
    add_user_losses()
    add_partial_fits()
    add_answers()
    add_selection()
    add_baselines()
    add_checkpoints()
    add_large()
    add_cluster_fits()
    add_cluster_inputs()
    add_cluster_answers()


# --- Fields of a result --------------------------------------------------------------------------

#: Attributes of a fitted model that are recorded, where it has them.
ATTRIBUTES = (
    "row_factors_",
    "column_factors_",
    "row_bias_",
    "column_bias_",
    "center_",
    "bias_unit_",
    "has_bias_",
    "theta_",
    "reg_",
    "solver_",
    "n_iter_",
    "best_iteration_",
    "converged_",
    "criticality_",
    "median_",
    "scale_",
    "bounds_",
    "n_features_in_",
    "row_ids_",
    "column_ids_",
    "history_",
)
WORDING = ("stop_reason_", "solver_reason_")

#: Number of values of an array that are stored, evenly spaced.
SAMPLE = 4


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a result, each as what a record stores of it."""
    prefix = f"{name}." if name else ""
    if hasattr(value, "row_factors_"):
        for attribute in ATTRIBUTES:
            if hasattr(value, attribute):
                yield from flatten(getattr(value, attribute), prefix + attribute)
        for attribute in WORDING:
            if hasattr(value, attribute):
                yield f"text.{prefix}{attribute}", str(getattr(value, attribute))
    elif isinstance(value, Observed):
        yield from flatten(value.to_sparse(), name)
        yield from flatten(value.row_ids, f"{prefix}row_ids")
        yield from flatten(value.column_ids, f"{prefix}column_ids")
    elif sp.issparse(value):
        for part in ("indptr", "indices", "data"):
            yield from flatten(getattr(value, part), prefix + part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key != "seconds":
                yield from flatten(part, f"{prefix}{key}")
    elif is_dataclass(value):
        yield from flatten({part.name: getattr(value, part.name) for part in fields(value)}, name)
    elif hasattr(value, "iloc"):  # a pandas table or series, by the positions of its columns
        yield from flatten(value.index.to_numpy(), f"{prefix}index")
        columns = [value] if value.ndim == 1 else [value.iloc[:, k] for k in range(value.shape[1])]
        for k, column in enumerate(columns):
            yield from flatten(column.to_numpy(), f"{prefix}column{k}")
    elif isinstance(value, np.ndarray):
        yield name, stored_array(value)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if len(value) and all(is_number(one) for one in value):
            yield name, stored_array(np.asarray(value))
        elif all(
            isinstance(one, (str, int, float, tuple, type(None), np.generic)) for one in value
        ):
            yield name, stored_array(np.array([*value, None], object)[:-1])
        else:
            for k, part in enumerate(value):
                yield from flatten(part, f"{prefix}{k}")
    elif isinstance(value, np.generic):
        yield name, value.item()
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield name, value
    else:
        raise TypeError(f"{name}: a {type(value).__name__} cannot be recorded")


def same_fields(one: Any, other: Any) -> bool:
    """Return whether two results have the same fields."""
    pair = [dict(flatten(value)) for value in (one, other)]
    return differences(*pair) == ({}, {})


def is_number(value: Any) -> bool:
    """Return whether a value is a number, Python's or NumPy's."""
    return isinstance(value, (bool, int, float, np.number, np.bool_))


def stored_array(array: Array) -> dict[str, Any]:
    """Return the SHA-256 of an array, and some numbers to measure a difference by."""
    if array.dtype.kind not in "biuf":
        labels = [
            one.item() if isinstance(one, np.generic) else one for one in array.ravel().tolist()
        ]
        content = repr(labels).encode()
        return {
            "sha256": hashlib.sha256(content).hexdigest(),
            "dtype": "labels",
            "shape": list(array.shape),
        }
    flat = np.ascontiguousarray(array).ravel()
    stored: dict[str, Any] = {
        "sha256": hashlib.sha256(flat.tobytes()).hexdigest(),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }
    if flat.size:
        wide = flat.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        chosen = np.linspace(0, flat.size - 1, min(SAMPLE, flat.size)).astype(np.int64)
        with np.errstate(over="ignore"):
            square = float(np.einsum("t,t->", finite, finite))
        stored["rms"] = math.sqrt(square / max(finite.size, 1))
        stored["values"] = wide[chosen].tolist()
    return stored


# --- Recording -----------------------------------------------------------------------------------


def computed(name: str) -> dict[str, Any]:
    """Compute a case and return its fields; of an exception, its type."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = dict(flatten(CASES[name]()))
        except Exception as error:  # the type is the result
            print(f"{name} raises {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
            return {"raises": type(error).__name__}
    kinds = {one.category for one in caught if one.category.__module__.startswith("robustmf")}
    found["text.warnings"] = ", ".join(sorted(kind.__name__ for kind in kinds))
    return found


def environment() -> dict[str, str]:
    """Return what the last bits may depend on beside the code."""
    versions = {
        name: importlib.import_module(name).__version__ for name in ("numpy", "scipy", "numba")
    }
    numba = importlib.import_module("llvmlite.binding")
    return versions | {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": numba.get_host_cpu_name(),
    }


def record(path: Path, only: str | None) -> int:
    """Compute all cases, or those whose names match a regular expression, and write the record."""
    add_all()
    names = [name for name in CASES if only is None or re.search(only, name)]
    started = time.perf_counter()
    seconds: dict[str, float] = {}
    cases: dict[str, Any] = {}
    for name in names:
        before = time.perf_counter()
        cases[name] = computed(name)
        seconds[name] = time.perf_counter() - before
    lines = [
        f"{json.dumps(name)}: {json.dumps(case, sort_keys=True)}" for name, case in cases.items()
    ]
    body = ",\n".join(lines)
    path.write_text(f'{{"environment": {json.dumps(environment())},\n"cases": {{\n{body}\n}}}}\n')
    raised = sum("raises" in case for case in cases.values())
    total = time.perf_counter() - started
    print(f"{len(cases)} cases, {raised} of them exceptions, in {total:.0f} s: {path}")
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:5]
    print("slowest:", ", ".join(f"{name} {seconds[name]:.1f} s" for name in slowest))
    return 0


# --- Comparison ----------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Return whether two stored fields are equal; NaN equals NaN, and the type counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(one.get(key) == other.get(key) for key in ("sha256", "dtype", "shape"))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


def amount(one: Any, other: Any) -> str:
    """Describe how far two stored fields are apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in ("dtype", "shape"):
            if one[key] != other[key]:
                return f"{key} {one[key]} -> {other[key]}"
        if "rms" not in one:
            return "other labels"
        pairs = zip(one["values"], other["values"], strict=True)
        finite = [abs(a - b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        largest = max(finite, default=0.0)
        unit = max(one["rms"], other["rms"]) or 1.0
        return f"{largest / unit:.1e} of the root mean square, in {len(finite)} values"
    if is_number(one) and is_number(other) and not isinstance(one, bool):
        relative = abs(one - other) / (max(abs(one), abs(other)) or 1.0)
        return f"{one!r} -> {other!r} ({relative:.1e} relative)"
    short = [
        str(value["shape"]) if isinstance(value, dict) else repr(value) for value in (one, other)
    ]
    return f"{short[0][:80]} -> {short[1][:80]}"


def renamed_fields(one: dict[str, Any], other: dict[str, Any]) -> dict[str, str]:
    """Return fields that stand in one case only and have a counterpart with the same content."""
    left = [name for name in other if name not in one]
    found: dict[str, str] = {}
    for name, value in one.items():
        if name not in other:
            matches = [new for new in left if same(value, other[new])]
            if matches:
                found[name] = matches[0]
                left.remove(matches[0])
    return found


def differences(
    one: dict[str, Any], other: dict[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a case that differ, with the amount, and those that were renamed."""
    if "raises" in one or "raises" in other:
        kinds = [case.get("raises", "a result") for case in (one, other)]
        return ({} if kinds[0] == kinds[1] else {"raises": f"{kinds[0]} -> {kinds[1]}"}), {}
    renamed = renamed_fields(one, other)
    taken = {*renamed, *renamed.values()}
    found: dict[str, str] = {}
    for name in [*one, *(name for name in other if name not in one)]:
        if name in taken:
            continue
        if name not in other or name not in one:
            found[name] = f"only in the {'first' if name in one else 'second'} record"
        elif not same(one[name], other[name]):
            found[name] = amount(one[name], other[name])
    return found, renamed


def compare(first: Path, second: Path, only: str | None) -> int:
    """Print what differs between two records; return 1 if a result differs, else 0."""
    records = [json.loads(path.read_text()) for path in (first, second)]
    one, other = (
        {
            name: case
            for name, case in found["cases"].items()
            if only is None or re.search(only, name)
        }
        for found in records
    )
    for key, value in records[0]["environment"].items():
        if records[1]["environment"].get(key) != value:
            now = records[1]["environment"].get(key)
            print(f"environment: {key} {value} -> {now}; bits may differ for this reason")
    equal = 0
    wording = 0
    renamed: dict[str, str] = {}
    different = []
    for name in [name for name in one if name in other]:
        found, new_names = differences(one[name], other[name])
        renamed |= new_names
        wording += any(field.startswith("text.") for field in found)
        results = {field: how for field, how in found.items() if not field.startswith("text.")}
        if results:
            different.append(name)
            print(name)
            for field, how in results.items():
                print(f"    {field}: {how}")
        else:
            equal += 1
    missing = [name for name in one if name not in other]
    added = [name for name in other if name not in one]
    for label, names in (("first", missing), ("second", added)):
        for name in names:
            print(f"{name}: only in the {label} record")
    for old, new in renamed.items():
        print(f"renamed, with the same content: {old} -> {new}")
    print(
        f"{equal} cases are equal, {len(different)} differ, "
        f"{len(missing) + len(added)} are in one record only"
    )
    print(f"the wording of messages differs in {wording} cases (not counted)")
    return int(bool(different or missing or added))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks same_results", description=__doc__.partition("\n")[0]
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="compute all cases and write them to a file")
    recording.add_argument("out", type=Path)
    recording.add_argument(
        "--n-jobs", type=int, default=1, help="threads of every fit (default: 1)"
    )
    comparing = verbs.add_parser("compare", help="compare two files; exit with 1 if results differ")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    for verb in (recording, comparing):
        verb.add_argument("--only", help="only cases whose names match this regular expression")
    given = parser.parse_args(arguments)
    if given.verb == "compare":
        return compare(given.first, given.second, given.only)
    THREADS["n_jobs"] = given.n_jobs
    return record(given.out, given.only)


if __name__ == "__main__":
    sys.exit(main())
