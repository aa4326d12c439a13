"""BLAS is limited to one thread; the last user restores the limit, also across forks."""

from __future__ import annotations

import os
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from robustmf import RobustMF
from robustmf.backends.cpu import blas
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.initialization import pipeline
from robustmf.outliers.noise import Regressors, moment_sum

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="requires os.fork")


def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def ends_well(child, seconds=20):
    """Whether ``child``, called in a forked process, returns true in time."""
    with warnings.catch_warnings():
        # a fork of a process with threads is intended
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0 if child() else 1)
    for _ in range(20 * seconds):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def held():
    with one_blas_thread():
        return threads() == {1}


def test_the_last_user_restores_the_limits_before_the_first():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread(), one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def in_thread(function):
    """The result of ``function``, called in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_limit_holds_in_other_threads_after_use_in_this_one():
    with threadpool_limits(2, user_api="blas"):
        assert held()
        assert in_thread(held)
        assert threads() == {2}


def test_a_limit_holds_although_another_thread_controls_blas():
    """``threadpool_limits`` without a context leaves the calling thread in control of OpenBLAS."""
    limits = threadpool_limits(2, user_api="blas")
    try:
        assert in_thread(held)
        assert threads() == {2}
    finally:
        limits.restore_original_limits()


def test_overlapping_users_in_different_threads_restore_the_limit():
    """The first to enter is the first to leave, so that another thread restores the limit."""
    with (
        threadpool_limits(2, user_api="blas"),
        ThreadPoolExecutor(1) as first,
        ThreadPoolExecutor(1) as second,
    ):
        users = [one_blas_thread(), one_blas_thread()]
        first.submit(users[0].__enter__).result()
        second.submit(users[1].__enter__).result()
        first.submit(users[0].__exit__, None, None, None).result()
        assert threads() == {1}
        second.submit(users[1].__exit__, None, None, None).result()
        assert threads() == {2}


def test_a_fork_waits_for_a_thread_that_changes_limits():
    """Otherwise the child could inherit a lock of the BLAS library that nobody releases."""
    inside = threading.Event()

    def change():
        with blas._lock:
            inside.set()
            time.sleep(0.3)
            return time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(change)
        inside.wait()
        assert ends_well(held)
        assert time.monotonic() > changed.result()
    assert held()


def test_a_process_forked_by_another_thread_has_all_threads():
    inside = threading.Event()
    over = threading.Event()

    def use():
        with one_blas_thread():
            inside.set()
            over.wait()

    with threadpool_limits(2, user_api="blas"):
        user = threading.Thread(target=use)
        user.start()
        inside.wait()
        try:
            assert ends_well(lambda: threads() == {2} and held() and threads() == {2})
        finally:
            over.set()
            user.join()
        assert threads() == {2}


def test_a_user_that_forks_is_still_a_user_in_the_new_process():
    with threadpool_limits(2, user_api="blas"), one_blas_thread():
        assert ends_well(lambda: threads() == {1})


def test_a_solver_chosen_for_the_rank_that_was_found_has_one_thread(monkeypatch):
    """The rank decides on variable projection, whose bits depend on the threads of BLAS."""
    used = []
    initialize = pipeline.projection_initialization

    def recorded(*arguments):
        used.append(("initialization", *threads()))
        return initialize(*arguments)

    monkeypatch.setattr(pipeline, "projection_initialization", recorded)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2)) @ rng.standard_normal((2, 25))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) > 0.5] = np.nan
    model = RobustMF(
        2, callbacks=[lambda _: used.append(("iteration", *threads()))], random_state=0
    )
    with threadpool_limits(2, user_api="blas"):
        model.fit(X)
        assert threads() == {2}
    assert model.solver_ == "varpro"
    assert set(used) == {("initialization", 1), ("iteration", 1)}


@pytest.fixture(scope="module")
def tall():
    """A tall matrix: BLAS divides products over so many rows between its threads."""
    rng = np.random.default_rng(0)
    m, n = 12_000, 10
    filled = rng.uniform(0.15, 0.95, m)
    X = rng.standard_normal((m, 1)) @ rng.standard_normal((1, n))
    X += rng.standard_normal((m, n)) * (0.1 / filled)[:, None]
    X[rng.random((m, n)) > filled[:, None]] = np.nan
    return X


def same_bits(compute):
    """Whether the arrays that ``compute`` returns are equal with one and with two BLAS threads."""
    found = []
    for number in (1, 2):
        with threadpool_limits(number, user_api="blas"):
            found.append([np.asarray(array) for array in compute()])
            assert threads() == {number}
    return [np.array_equal(*pair, equal_nan=True) for pair in zip(*found, strict=True)]


def test_fits_and_scores_of_a_tall_matrix_do_not_depend_on_the_threads_of_blas(tall):
    def fitted():
        model = RobustMF(1, solver="irls", n_jobs=1, max_iter=1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(tall)
        yield model.row_factors_
        yield model.column_factors_
        yield model.outlier_scores()
        yield model.row_scores()

    assert same_bits(fitted) == [True] * 4


def test_answers_do_not_depend_on_the_threads_of_blas():
    """Products of several factors: with one factor there is no sum whose order could change."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((859, 13)) @ rng.standard_normal((13, 432))
    init = tuple(rng.standard_normal((size, 13)) for size in X.shape)
    X[rng.random(X.shape) > 0.2] = np.nan
    model = RobustMF(13, solver="irls", init=init, reg=1.0, n_jobs=1, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    every = np.arange(len(X))

    def answers():
        yield model.inverse_transform(model.row_factors_)
        yield model.recommend(every, 5).scores
        yield model.similar_items(np.arange(432), 5).scores
        yield model.outlier_scores()

    assert same_bits(answers) == [True] * 4


@pytest.mark.parametrize("rank", [12, 13, 32])
def test_sums_of_the_noise_model_do_not_depend_on_the_threads_of_blas(rank):
    """Which products have other bits with two threads depends on the shape, and on BLAS."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((12_001, rank))
    counts = rng.integers(1, 100, len(factors))

    def sums():
        total = moment_sum(factors, counts, 0.5)
        found = Regressors.from_moment(total, int(counts.sum()), 0.5, 1.0, False)
        yield total
        yield found.axes
        yield found.squared_coordinates(factors)

    assert same_bits(sums) == [True] * 3


def test_libraries_are_searched_once(monkeypatch):
    """The search holds the loader's lock; a process forked at that moment would deadlock."""

    def search(self):
        raise AssertionError("searched for libraries")

    monkeypatch.setattr(ThreadpoolController, "_load_libraries", search)
    with one_blas_thread():
        pass
