"""``python -m benchmarks reproduce``: execute the runs behind the paper's tables and figures.

Every run is recorded as soon as it ends. An interrupted command continues where it stopped;
``python -m benchmarks report`` turns the records into tables and figures.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import announce
from benchmarks.reproduction.plan import NAMES, experiment
from benchmarks.reproduction.running import DONE, FAILED, NO_DATA, missing, run_missing
from benchmarks.reproduction.store import DEFAULT, Records


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where a run failed."""
    parser = argparse.ArgumentParser("python -m benchmarks reproduce", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--all", action="store_true", help="all tables and figures")
    parser.add_argument("--quick", action="store_true", help="fewer seeds and smaller sizes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--records", type=Path, default=DEFAULT, help="folder of the records")
    options = parser.parse_args(arguments)
    chosen = NAMES if options.all else tuple(options.names)
    if not chosen:
        parser.error(f"name at least one of {', '.join(NAMES)}, or use --all")
    try:
        runs = [run for name in chosen for run in experiment(name).runs(options.quick)]
    except ValueError as error:
        parser.error(str(error))
    records = Records(options.records)
    recorded = len(runs) - len(missing(runs, records))
    announce(f"{len(runs)} runs, {recorded} already recorded in {options.records}")
    return _conclude(run_missing(runs, records, options.jobs, _progress))


def _progress(made: int, total: int, record: dict[str, Any]) -> None:
    seconds = record["wall_seconds"]
    announce(f"{made}/{total} {record['key']}: {record['status']}, {seconds:.1f} s")


def _conclude(made: list[dict[str, Any]]) -> int:
    """Report what could not be executed."""
    reasons = (record["reason"] for record in made if record["status"] == NO_DATA)
    for reason in dict.fromkeys(reasons):
        announce(f"Not found: {reason}")
    failed = [record for record in made if record["status"] == FAILED]
    for record in failed:
        announce(f"Failed: {record['key']}: {record['reason']}")
    announce(f"{sum(record['status'] == DONE for record in made)} runs finished")
    return 1 if failed else 0
