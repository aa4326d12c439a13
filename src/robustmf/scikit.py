"""What this library takes from scikit-learn, imported without ``scipy.stats`` and pandas.

``sklearn.base`` imports the one for a function that no fit here calls, the other for none; a third of the time from ``import robustmf`` to
the first sweep was theirs. So they are postponed while it is imported.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from types import ModuleType
from typing import Any


@contextmanager
def postponed(name: str) -> Iterator[None]:
    """Within, ``import name`` gives a stand-in, which imports the real one once something of it is asked for; afterwards, the real one.

    Nothing is done where it has been imported, or is not installed.
    """
    if name in sys.modules or importlib.util.find_spec(name) is None:
        yield
        return
    stand_in, lock = ModuleType(name), Lock()

    def give_way() -> None:
        with lock:
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]

    def attribute(asked: str) -> Any:
        give_way()
        return getattr(importlib.import_module(name), asked)

    stand_in.__getattr__ = attribute  # type: ignore[method-assign]
    # another thread may have begun to import it since the question above
    if sys.modules.setdefault(name, stand_in) is not stand_in:
        yield
        return
    try:
        yield
    finally:
        give_way()


with postponed("scipy.stats"), postponed("pandas"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, MetaEstimatorMixin, TransformerMixin, clone
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = [
    "BaseEstimator", "ClassNamePrefixFeaturesOutMixin", "MetaEstimatorMixin", "TransformerMixin", "check_is_fitted", "clone",
    "validate_data",
]  # fmt: skip
