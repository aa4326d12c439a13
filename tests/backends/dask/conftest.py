"""Data and fixtures of the tests of fits on a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from clusters import NAMES, InitialPoint, table

from robustmf import Observed
from robustmf.distributed import fitting

#: The tests that ``make test`` runs; the others are slow, mostly because they start processes.
QUICK = {
    "test_fit_equals_one_machine[defaults]",
    "test_ids_have_one_hash_in_every_process",
    "test_invalid_layout_of_a_checkpoint",
    "test_killed_workers_do_not_change_the_result",
    "test_row_groups_are_pieces",
    "test_sweep_and_measure",
    "test_temporary_names_of_shards_are_unique",
    "test_without_dask",
}


def pytest_collection_modifyitems(items):
    """Mark the tests of this folder as slow, except the quick ones."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and not {item.name, item.originalname} & QUICK:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def ratings():
    return table()


@pytest.fixture(scope="module")
def observed(ratings):
    return Observed.from_triplets(ratings, **NAMES)


@pytest.fixture
def initial_points(monkeypatch):
    """The initial points of the following fits on a cluster, in their order."""
    points = []
    initialize = fitting.initialize

    def recorded(*arguments):
        initial = initialize(*arguments)
        points.append(InitialPoint(replace(initial, factorization=initial.factorization.to_host())))
        return initial

    monkeypatch.setattr(fitting, "initialize", recorded)
    return points
