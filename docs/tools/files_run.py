"""Which files of the package run code in a call of the estimator.

``python docs/tools/files_run.py`` prints the numbers, ``--files`` also the files. Compiled kernels
are counted by the Python code that calls them.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

import robustmf

_PACKAGE = Path(robustmf.__file__).parent


def files_run(call: Callable[[], Any]) -> list[str]:
    """Return the files of the package in which a function runs during the call.

    Threads that the call starts are included.
    """
    call()  # imports, and compiles kernels
    found: set[str] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    paths = (Path(name) for name in found)
    return sorted(
        path.relative_to(_PACKAGE).as_posix() for path in paths if path.is_relative_to(_PACKAGE)
    )


def fit_on_cluster(X: np.ndarray) -> None:
    """Fit the entries of a matrix on a Dask cluster of two workers in this process."""
    import distributed  # noqa: PLC0415 - an optional dependency

    i, j = np.indices(X.shape)
    entries = pd.DataFrame({"row": i.ravel(), "column": j.ravel(), "value": X.ravel()})
    pieces = [entries.iloc[k::2] for k in range(2)]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        robustmf.RobustMF(rank=2, random_state=0).fit(pieces, client=client)


def files_of_calls() -> dict[str, list[str]]:
    """Return the files of calls on 60 rows and 40 columns with outliers.

    Settings are the defaults, but the rank of the fit on a cluster, which must be given.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.05] += 10
    model = robustmf.RobustMF(random_state=0).fit(X)
    calls: dict[str, Callable[[], Any]] = {
        "fit(X)": lambda: robustmf.RobustMF(random_state=0).fit(X),
        "fit(data, client=...)": lambda: fit_on_cluster(X),
        "predict(rows, columns)": lambda: model.predict([0, 1], [2, 3]),
        "recommend(users)": lambda: model.recommend([0, 1], n=3, exclude_seen=False),
        "transform(X)": lambda: model.transform(X),
        "outlier_scores()": model.outlier_scores,
        "audit()": model.audit,
    }
    return {name: files_run(call) for name, call in calls.items()}


def table(files: dict[str, list[str]]) -> str:
    """Return the number of files per call, as a table in Markdown."""
    rows = [f"| `{name}` | {len(run)} |" for name, run in files.items()]
    return "\n".join(["| call | files that run code |", "|---|---|", *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files of each call")
    listed = parser.parse_args().files
    found = files_of_calls()
    if listed:
        for name, files in found.items():
            print(name, *files, sep="\n    ")
    else:
        print(table(found))
