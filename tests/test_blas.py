"""BLAS held to one thread: given back by the last user, and no trap for processes that are forked meanwhile."""

from __future__ import annotations

import os
import threading
import time
import warnings

import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from robustmf.solvers import blas
from robustmf.solvers.blas import one_blas_thread

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")


def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def ends_well(child, seconds=20):
    """Whether ``child``, called in a forked process, returns true in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is meant here
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


def test_the_last_user_gives_back_what_the_first_found():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread(), one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_a_process_forked_while_the_lock_is_held_does_not_wait_for_ever():
    with blas._lock:
        assert ends_well(held)
    assert held()


def test_a_process_forked_beside_a_user_has_all_threads():
    inside, over = threading.Event(), threading.Event()

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


def test_the_user_that_forks_is_still_one_in_the_new_process():
    with threadpool_limits(2, user_api="blas"), one_blas_thread():
        assert ends_well(lambda: threads() == {1})


def test_fits_do_not_look_for_libraries_again(monkeypatch):
    """The loader's lock is held meanwhile; a process that is forked in such a moment would hang when it looks for them."""

    def looked(self):
        raise AssertionError("looked for libraries")

    monkeypatch.setattr(ThreadpoolController, "_load_libraries", looked)
    with one_blas_thread():
        pass
