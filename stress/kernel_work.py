"""``python -m stress.kernel_work CASES SEED``: every kernel against NumPy, on random shapes.

For a process with NUMBA_BOUNDSCHECK=1 and a separate cache, where a kernel that reads or writes
outside its arrays raises IndexError (one with vector instructions ends the process). Prints the
tally as JSON on the last line.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numba.core.caching import NullCache

from robustmf import Observed, RobustMF, baselines, kernels
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.kernels.dictionary import row_codes
from robustmf.kernels.gradient import batch_gradient
from robustmf.kernels.grouped import FINE, parse_grouped
from robustmf.kernels.repair import mean_weights, normal_inverses
from robustmf.kernels.team import Team, block_bounds
from robustmf.kernels.varpro import assemble_rows, solve_columns
from robustmf.losses import L2, Welsch
from stress.tally import Tally
from tests import oracles

Array = np.ndarray[Any, Any]

#: Fits that together run every kernel.
_FITS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (RobustMF, {}),
    (RobustMF, {"nonnegative": True}),
    (RobustMF, {"solver": "mm", "loss": "lsp"}),
    (RobustMF, {"solver": "varpro"}),
    (RobustMF, {"solver": "irls", "bias": True, "loss": "huber"}),
    (baselines.OMDL, {}),
    (baselines.GRASTA, {}),
    (baselines.AltGrad, {}),
    (baselines.AltImpute, {}),
)


def problem(rng: np.random.Generator, dtype: Any) -> tuple[Observed, Array, Array]:
    """Entries of a matrix of 1 to 40 rows and columns, some of them empty, and factors."""
    m, n = rng.integers(1, 40, 2)
    rank = int(rng.integers(1, 1 + min(m, n, 20)))
    X = rng.standard_normal((m, n))
    X[rng.random((m, n)) < rng.choice([0.0, 0.5, 0.9])] = np.nan
    X[0, 0] = 1.0
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    return Observed.from_dense(X.astype(dtype)), U.astype(dtype), V.astype(dtype)


def check(rng: np.random.Generator, dtype: Any) -> None:
    """Compare each operation with its oracle on one problem."""
    observed, U, V = problem(rng, dtype)
    close = {"rtol": 2e-3, "atol": 2e-3} if dtype == np.float32 else {"rtol": 1e-8, "atol": 1e-8}

    def same(found: Any, expected: Any) -> None:
        np.testing.assert_allclose(np.asarray(found, float), expected, **close)

    rows = observed.rows
    rank = U.shape[1]
    bounds = block_bounds(rows.pointers, 3)
    last = len(bounds) - 1
    e = oracles.residuals(observed, U, V)
    with Team(1) as team:
        operations = CPUOperations(observed, team)
        same(operations.residuals(U, V), e)
        same(operations.row_products(rows.values, V), oracles.dense(observed, rows.values) @ V)
        same(operations.column_products(rows.values, U), oracles.dense(observed, rows.values).T @ U)
        solved = U.copy()
        operations.half_step(L2(), 0.7, solved, V)
        same(solved, oracles.weighted_ridge_rows(observed, np.ones(observed.n_entries), 0.7, V))
        solved = U.copy()
        weights = Welsch(1.5).weight(e)
        operations.half_step(Welsch(1.5), 0.7, solved, V)
        same(solved, oracles.weighted_ridge_rows(observed, weights, 0.7, V))
    out = np.empty(observed.shape[0])
    mean_weights(0, last, bounds, rows.pointers, rows.indices, rows.values, U, V, 0.5, out)
    same(out, oracles.mean_weights(observed, U, V, 0.5))
    inverses = np.empty((observed.shape[0], rank, rank))
    normal_inverses(
        0, last, bounds, rows.pointers, rows.indices, rows.values, U, V, 0.7, 0.5, inverses
    )
    same(inverses, oracles.normal_inverses(observed, U, V, 0.7, 0.5))
    codes = np.empty((observed.shape[0], rank))
    row_codes(
        0,
        last,
        bounds,
        rows.pointers,
        rows.indices,
        rows.values.astype(float),
        V.astype(float),
        3.0,
        codes,
    )
    same(codes, oracles.row_codes(observed, V, 3.0))
    gradients = np.empty_like(U), np.empty_like(V)
    batch_gradient(rows.group_of_entry(), rows.indices, rows.values, U, V, dtype(0.3), *gradients)
    for found, expected in zip(gradients, oracles.batch_gradient(observed, U, V, 0.3), strict=True):
        same(found, expected)
    _check_projection(observed, U.astype(float), same)


def _check_projection(observed: Observed, U: Array, same: Any) -> None:
    """V by columns, residuals, and the Gauss–Newton matrix."""
    columns = observed.columns
    m, n = observed.shape
    rank = U.shape[1]
    values = columns.values.astype(float)
    w = 1 / (1 + values**2)
    V = np.empty((n, rank))
    e = np.empty(len(values))
    Q = np.empty((len(values), rank))
    bounds = block_bounds(columns.pointers, 3)
    solve_columns(
        0, len(bounds) - 1, bounds, columns.pointers, columns.indices, values, w, U, 0.4, V, e, Q
    )
    expected = oracles.projected(observed, w, U, 0.4)
    same(V, expected.V)
    same(e, expected.e)
    H = np.zeros((m * rank, m * rank))
    g = np.empty((m, rank))
    stripes = np.linspace(0, m, min(m, 3) + 1).astype(np.int64)
    assemble_rows(0, len(stripes) - 1, stripes, columns.pointers, columns.indices, w, V, e, Q, H, g)
    same(g, expected.g)
    lower = np.kron(np.tril(np.ones((m, m))), np.ones((rank, rank))) > 0
    same(H[lower], expected.H[lower])


def check_ids(rng: np.random.Generator) -> None:
    """Ids and merged duplicates, compared with a dictionary."""
    rows = rng.integers(-5, 5, 30)
    cols = rng.integers(0, 4, 30)
    values = rng.standard_normal(30)
    made = Observed.from_triplets(row=rows, col=cols, value=values, duplicates="mean")
    pairs: dict[tuple[int, int], list[float]] = {}
    for i, j, value in zip(rows.tolist(), cols.tolist(), values.tolist(), strict=True):
        pairs.setdefault((i, j), []).append(value)
    found = made.to_sparse().tocoo()
    named = {
        (made.row_ids[i], made.column_ids[j]): v
        for i, j, v in zip(found.row, found.col, found.data, strict=True)
    }  # type: ignore[index]
    assert named.keys() == pairs.keys()
    assert all(abs(named[pair] - np.mean(values)) < 1e-12 for pair, values in pairs.items())


def check_text(rng: np.random.Generator) -> None:
    """The parser of grouped ratings stays within its arrays on random text of its alphabet."""
    text = rng.choice(np.frombuffer(b"0123456789:,\n\r -x", np.uint8), int(rng.integers(1, 200)))
    room = int((text == ord("\n")).sum()) + 1
    arrays = [np.empty(room, kind) for kind in (np.int32, np.uint8, np.int64, np.int64, np.int64)]
    found = parse_grouped(
        np.append(text, np.uint8(ord("\n"))),
        ord(":"),
        ord(","),
        1,
        5,
        bool(rng.integers(2)),
        *arrays,
    )
    assert found[3] == FINE or found[2] >= 1


def all_kernels() -> Iterator[tuple[str, Any]]:
    """Every kernel, by name."""
    for module in pkgutil.iter_modules(kernels.__path__):
        for name, what in vars(importlib.import_module(f"robustmf.kernels.{module.name}")).items():
            home = getattr(getattr(what, "py_func", None), "__module__", "")
            # Kernels with a cache are called from Python; the others are compiled into them.
            if home == f"robustmf.kernels.{module.name}" and not isinstance(what._cache, NullCache):
                yield f"{module.name}.{name}", what


def kernels_that_never_ran() -> list[str]:
    """Kernels that this process has not called."""
    return [name for name, what in all_kernels() if not what.signatures]


def functions_called() -> set[str]:
    """Functions of robustmf that a kernel calls and that were not inlined, by their linker names.

    The process that compiles has two copies of such a function, and the linker takes its own; a
    process that loads the kernel from disk has only the kernel's copy. The copies may sum in a
    different order. Only kernels compiled by this process are examined.
    """
    shared = re.compile(r'^define linkonce_odr [^@]*@"?([^"(]*robustmf[^"(]*)', re.MULTILINE)
    return {
        called
        for _, what in all_kernels()
        for code in what.inspect_llvm().values()
        for called in shared.findall(code)
    }


def work(cases: int, seed: int, fits: bool = True) -> Tally:
    """Problems in both precisions; with ``fits``, also fits that run the remaining kernels."""
    tally = Tally()
    for case, rng in enumerate(np.random.default_rng(seed).spawn(cases)):
        dtype = (np.float64, np.float32)[case % 2]
        with tally.case(f"operations, case {case}, {dtype.__name__}"):
            check(rng, dtype)
        with tally.case(f"ids, case {case}"):
            check_ids(rng)
        with tally.case(f"grouped text, case {case}"):
            check_text(rng)
    if not fits:
        return tally
    for rng in np.random.default_rng(seed + 1).spawn(max(cases // 40, 1)):
        observed, _, _ = problem(rng, np.float64)
        for method, settings in _FITS:
            with (
                tally.case(f"{method.__name__}, {settings}, {observed}"),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                method(1, random_state=0, n_jobs=1, max_iter=3, **settings).fit(observed)
    with tally.case("every kernel ran"):
        assert not (idle := kernels_that_never_ran()), f"these did not: {idle}"
    return tally


if __name__ == "__main__":
    tally = work(int(sys.argv[1]), int(sys.argv[2]), fits=sys.argv[3:] != ["operations"])
    with tally.case("functions are inlined into kernels"):
        assert not (called := functions_called()), f"these are called: {sorted(called)}"
    print(json.dumps(asdict(tally)))
