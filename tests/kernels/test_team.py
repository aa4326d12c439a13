"""The team of threads: numbers of jobs, blocks, ranges of blocks and errors."""

from __future__ import annotations

import threading
import time

import joblib
import numpy as np
import pytest

from robustmf.kernels import team as team_module
from robustmf.kernels.team import Team, block_bounds, n_cores


@pytest.mark.parametrize("blocks", [1, 3, 64])
def test_blocks_cover_all_rows_once_and_have_similar_sizes(blocks):
    counts = np.random.default_rng(0).integers(0, 50, 1000)
    bounds = block_bounds(np.concatenate(([0], np.cumsum(counts))), blocks)
    assert bounds[0] == 0
    assert bounds[-1] == 1000
    assert np.all(np.diff(bounds) > 0)
    assert len(bounds) <= blocks + 1
    sizes = np.add.reduceat(counts, bounds[:-1])
    assert sizes.max() <= counts.sum() / blocks + 100


@pytest.mark.parametrize("n_jobs", [2, 3, 8])
@pytest.mark.parametrize("blocks", [1, 2, 3, 64, 257])
@pytest.mark.parametrize("parts", [0, 1, 2, 3, 5, 9, 40, 1000])
def test_every_block_is_processed_once_in_ranges_of_at_least_the_minimal_work(
    blocks, n_jobs, parts
):
    taken = []
    with Team(n_jobs) as team:
        team.run(
            lambda first, last: taken.append((first, last)),
            blocks,
            parts * team_module.OPTIONS.small_work,
        )
    taken.sort()
    assert [first for first, _ in taken] == [0, *(last for _, last in taken[:-1])]
    assert taken[-1][1] == blocks
    assert min(last - first for first, last in taken) >= max(1, blocks // max(parts, 1))


@pytest.mark.parametrize("caller_fails", [True, False])
def test_an_error_is_raised_in_the_caller_after_all_threads_have_stopped(monkeypatch, caller_fails):
    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=0))
    caller = threading.get_ident()
    begun = []
    ended = []

    def failing(first, last):
        begun.append(first)
        time.sleep(0.02)
        if (threading.get_ident() == caller) == caller_fails:
            ended.append(first)
            raise RuntimeError("from a thread")
        time.sleep(0.05)
        ended.append(first)

    with Team(2) as team:
        with pytest.raises(RuntimeError, match="from a thread"):
            team.run(failing, 16, 16)
        assert sorted(begun) == sorted(ended)
    if caller_fails:
        assert len(begun) <= 2  # no further range is begun


@pytest.mark.parametrize("n_jobs", [1, 3, np.int64(2), -1, -2, -3])
def test_n_jobs_has_the_meaning_that_it_has_in_joblib(monkeypatch, n_jobs):
    cores = joblib.effective_n_jobs(-1)
    monkeypatch.setattr(team_module, "n_cores", lambda: cores)
    assert Team(n_jobs).n_jobs == joblib.effective_n_jobs(n_jobs)


@pytest.mark.parametrize(("n_jobs", "threads"), [(None, 8), (-1, 8), (-2, 7), (-8, 1), (-9, 1)])
def test_negative_n_jobs_count_from_the_number_of_cores(monkeypatch, n_jobs, threads):
    monkeypatch.setattr(team_module, "n_cores", lambda: 8)
    assert Team(n_jobs).n_jobs == threads


def test_none_is_all_cores():
    assert Team(None).n_jobs == n_cores() >= 1


@pytest.mark.parametrize("n_jobs", [0, 1.5, -1.0, True, False, "two"])
def test_other_values_of_n_jobs_are_refused(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a positive integer, None or -1"):
        Team(n_jobs)


def test_rows_without_entries_are_divided_between_blocks_too():
    """They cost time although they have no entries: their factors are written."""
    pointers = np.concatenate([[0], np.full(1000, 10)]).astype(np.int64)
    sizes = np.diff(block_bounds(pointers, 4))
    assert len(sizes) == 4
    assert sizes.max() < 300
