"""Forged files of models that were fitted on a cluster: they hold a sample of the entries."""

from __future__ import annotations

import numpy as np
import pytest

import robustmf
from forged import changed, refused, rewritten
from robustmf import RobustMF
from robustmf.datasets import make_synthetic

DATA = make_synthetic(40, rank=2, observed=0.6, random_state=0)

SAMPLED = {
    "row_counts": np.full(40, 7),
    "column_counts": np.full(40, 7),
    "rows": np.array([0, 39]),
    "columns": np.array([39, 0]),
    "values": np.ones(2),
}


def with_sampled_entries(**changes):
    """The entries that a fit on a cluster keeps, some of them changed."""

    def alter(document, arrays):
        old = document["state"].pop("reliability_")
        for place in (old, *document["state"]["entries_"]["dict"].values()):
            if place is not None:
                del arrays[place["array"]]
        places = {}
        for name, array in (SAMPLED | changes).items():
            arrays[name] = array
            places[name] = {"array": name, "dtype": array.dtype.name}
        document["state"]["entries_"] = {"dict": places}

    return alter


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows", changed(0, -1)),
        ("rows", changed(1, 40)),
        ("columns", changed(0, 40)),
        ("columns", lambda a: a[:-1].copy()),
        ("row_counts", changed(3, -1)),
        ("column_counts", lambda a: a.astype(np.int32)),
        ("column_counts", lambda a: a[:-1].copy()),
        ("values", changed(0, np.nan)),
        ("values", lambda a: a[:0].copy()),
    ],
)
def test_sampled_entries_are_checked(tmp_path, name, change):
    path = tmp_path / "model.rmf"
    model = RobustMF(2, random_state=0, n_jobs=1).fit(DATA.train)
    model.save(path)
    content = path.read_bytes()
    path.write_bytes(rewritten(content, with_sampled_entries()))
    assert robustmf.load(path).predict(0, 0) == model.predict(0, 0)
    forged = with_sampled_entries(**{name: change(SAMPLED[name])})
    refused(path, rewritten(content, forged), "entries_ must be")
