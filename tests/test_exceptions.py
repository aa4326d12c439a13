"""Warnings of searches: once per search, in whatever processes its fits run."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from robustmf import RobustMF
from robustmf.exceptions import EmptyRowsWarning, IssuedWarnings, NotConvergedWarning


def test_a_category_is_issued_once_in_all_processes():
    issued = IssuedWarnings()
    assert issued.is_first(EmptyRowsWarning)
    one, other = (pickle.loads(pickle.dumps(issued)) for _ in range(2))
    assert not one.is_first(EmptyRowsWarning)
    assert one.is_first(NotConvergedWarning)
    assert not other.is_first(NotConvergedWarning)
    assert not issued.is_first(NotConvergedWarning)


def test_the_folder_of_a_search_is_removed_with_it():
    issued = IssuedWarnings()
    copy = pickle.loads(pickle.dumps(issued))
    folder = Path(copy.folder)
    assert folder.is_dir()
    del issued
    assert not folder.exists()
    assert copy.is_first(EmptyRowsWarning)
    assert not copy.is_first(EmptyRowsWarning)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.RobustMFWarning")
def test_a_fitted_model_does_not_refer_to_the_search_that_made_it():
    X = np.outer(np.arange(1.0, 21), np.arange(1.0, 9))
    best = GridSearchCV(RobustMF(1, random_state=0), {"reg": [1.0]}, cv=2).fit(X).best_estimator_
    assert set(best.__getstate__()) == set(vars(best))
    assert set(clone(best).__getstate__()) == set(vars(clone(best)))
    X[:, 3] = np.nan
    for _ in range(2):  # nor is it silent
        with pytest.warns(EmptyRowsWarning):
            clone(best).fit(X)
