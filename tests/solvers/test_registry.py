"""The choice of the solver, and what the registry declares."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import random_problem
from robustmf import MM, RobustMF
from robustmf.backends.base import Capabilities
from robustmf.losses import make_loss
from robustmf.solvers.registry import (
    choose_solver,
    get_solver,
    is_worth_eliminating,
    may_have_biases,
    solver_names,
)


def test_a_rank_that_was_found_is_fitted_with_the_ridges_it_was_found_with():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 300))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) > 0.45] = np.nan
    model = RobustMF(random_state=0).fit(X)
    assert model.rank_ == 2
    assert model.solver_ == "irls"
    assert RobustMF(2, random_state=0).fit(X).solver_ == "varpro"
    assert RobustMF(loss="l1", random_state=0).fit(X).solver_ == "varpro"  # has no such ridges
    assert RobustMF(solver="varpro", random_state=0).fit(X).solver_ == "varpro"


def test_auto_chooses_by_shape_density_and_loss_and_reports_why():
    wide = np.random.default_rng(0).standard_normal((20, 300))
    square = np.random.default_rng(0).standard_normal((60, 60))
    sparse = np.where(np.random.default_rng(1).random(wide.shape) < 0.45, wide, np.nan)
    few = np.where(np.add.outer(np.arange(20), np.arange(300)) % 10 == 0, wide, np.nan)
    assert RobustMF(2, bias=False, random_state=0).fit(sparse).solver_ == "varpro"
    assert RobustMF(2, random_state=0).fit(few).solver_ == "irls"  # 0.9 entries per parameter
    assert is_worth_eliminating(
        (72, 4983), 32_900, 4, nonsmooth=False
    )  # all tracks of Dinosaur, 1.6
    assert RobustMF(2, bias=False, loss="l1", random_state=0).fit(wide).solver_ == "varpro"
    assert RobustMF(2, random_state=0).fit(wide).solver_ == "irls"
    model = RobustMF(2, random_state=0).fit(square)
    assert model.solver_ == "irls"
    assert "60 × 60" in model.solver_reason_
    assert RobustMF(2, bias=True, random_state=0).fit(wide).solver_ == "irls"
    with pytest.raises(ValueError, match="need solver='irls'"):
        RobustMF(2, bias=True, solver="varpro").fit(wide)


def test_options_that_cannot_go_together_are_refused():
    observed, *_ = random_problem()
    for option in ({"bias": True}, {"reg_by_count": True}):
        with pytest.raises(ValueError, match="certify=True needs the plain model"):
            RobustMF(3, loss="lsp", certify=True, **option).fit(observed)


def test_each_solver_declares_what_it_requires():
    assert solver_names() == ["irls", "varpro", "mm"]
    with pytest.raises(ValueError, match=r"solver must be 'auto', .*'mm' or MM\(...\), got"):
        get_solver("newton")
    assert [may_have_biases(name) for name in ("auto", *solver_names())] == [
        True,
        True,
        False,
        False,
    ]
    on_gpu = Capabilities(host_arrays=False)
    with pytest.raises(ValueError, match="use device='cpu', or solver='irls' or 'mm'"):
        choose("varpro", on_gpu)
    with pytest.raises(ValueError, match="solver='mm' needs all entries in the memory of one"):
        choose("mm", Capabilities(entry_operations=False))
    assert choose("auto", on_gpu).spec.name == "irls"
    assert choose("auto", Capabilities()).spec.name == "varpro"


def choose(solver, capabilities):
    return choose_solver(
        solver, (20, 300), 2700, 2, make_loss("l1"), plain_model=True, capabilities=capabilities
    )


def test_options_of_mm_are_checked_by_name():
    for options, message in (
        ({"inner": "admm"}, "MM: inner must be one of apg, apg-dense, ladmpsap, got inner='admm'"),
        ({"max_iter": 0}, "MM: max_iter must be an integer >= 1, got max_iter=0"),
        ({"tol": 0.0}, "MM: tol must be a finite number > 0, got tol=0.0"),
        ({"gap": -1.0}, "MM: gap must be a finite number > 0, got gap=-1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            MM(**options)
    assert MM().certifying().gap == 0.1
    assert MM(gap=0.5).certifying().gap == 0.5
