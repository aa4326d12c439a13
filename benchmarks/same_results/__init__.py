"""Record the exact results of several hundred computations, and compare two records bit by bit.

A refactoring must not change results. Record them before and after it, on the same machine and in
the same environment (libraries and the processor's instruction set decide about the last bits)::

    python -m benchmarks same_results record before.json
    python -m benchmarks same_results record after.json
    python -m benchmarks same_results compare before.json after.json

A record has no times, dates or paths: two recordings of the same code are the same file. Every case
has a name and a number of fields. An array is stored as its SHA-256, type, shape, root mean square
and a few of its values; a scalar is stored as it is. Fields whose names begin with ``text.`` hold
the wording of messages and names of warnings; differences there are reported but do not count. A
field that was renamed and has the same content counts as equal, and is reported.

The package runs with several versions of the library. Names that differ between versions are
resolved in ``library.py``; everything else uses public names only. The data are made in
``problems.py``, from NumPy alone, so that the fits do not depend on ``robustmf.datasets``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.same_results.answers import (
    add_answers,
    add_baselines,
    add_checkpoints,
    add_datasets,
    add_metrics,
    add_selection,
)
from benchmarks.same_results.cluster import (
    add_cluster_answers,
    add_cluster_fits,
    add_cluster_inputs,
)
from benchmarks.same_results.comparison import compare
from benchmarks.same_results.fits import (
    add_data_forms,
    add_labels,
    add_large,
    add_losses,
    add_models,
    add_partial_fits,
    add_procedures,
    add_solvers,
    add_user_losses,
)
from benchmarks.same_results.library import THREADS
from benchmarks.same_results.recording import record


def add_all() -> None:
    """Add all cases."""
    add_losses()
    add_datasets()
    add_metrics()
    add_solvers()
    add_models()
    add_procedures()
    add_data_forms()
    add_labels()
    add_user_losses()
    add_partial_fits()
    add_answers()
    add_selection()
    add_baselines()
    add_checkpoints()
    add_large()
    add_cluster_fits()
    add_cluster_inputs()
    add_cluster_answers()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks same_results", description=__doc__.partition("\n")[0]
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="compute all cases and write them to a file")
    recording.add_argument("out", type=Path)
    recording.add_argument(
        "--n-jobs", type=int, default=1, help="threads of every fit (default: 1)"
    )
    comparing = verbs.add_parser("compare", help="compare two files; exit with 1 if results differ")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    for verb in (recording, comparing):
        verb.add_argument("--only", help="only cases whose names match this regular expression")
    given = parser.parse_args(arguments)
    if given.verb == "compare":
        return compare(given.first, given.second, given.only)
    THREADS["n_jobs"] = given.n_jobs
    add_all()
    return record(given.out, given.only)
