"""Names that differ between versions of the library, and the settings of all fits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from robustmf import RobustMF
from robustmf.losses import loss_names

Array = NDArray[Any]
Case = Callable[[], Any]

DTYPES = ("float64", "float32")
SMOOTH = ("l2", "huber", "cauchy", "welsch", "tukey", "geman-mcclure")
NONSMOOTH = ("l1", "lsp", "geman", "laplace", "mcp", "scad")
INNER = ("apg", "apg-dense", "ladmpsap")
RANK = 3

#: Threads of every fit; set by the command line. Results must not depend on it.
THREADS = {"n_jobs": 1}


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
