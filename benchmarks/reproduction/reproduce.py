"""``python -m benchmarks reproduce``: execute the runs behind the paper's tables and figures.

Every run is recorded as soon as it ends. An interrupted command continues where it stopped;
``python -m benchmarks report`` turns the records into tables and figures. Records made with other
settings or another numerical version of the code are not mixed with new ones unless ``--mix`` is
given; ``--replace`` repeats them. ``--list`` shows what would be executed, and ``--merge`` takes
over records that were made on another machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.measure import announce
from benchmarks.reproduction.listing import listed
from benchmarks.reproduction.merging import offered, refused, take_over
from benchmarks.reproduction.plan import NAMES, Run, experiment
from benchmarks.reproduction.running import DONE, FAILED, NO_DATA, missing, run_missing
from benchmarks.reproduction.store import DEFAULT, Records
from benchmarks.reproduction.versions import outdated

#: Kept runs of other versions that a message lists.
_LISTED = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where a run failed, 2 where records may not be mixed."""
    parser = argparse.ArgumentParser("python -m benchmarks reproduce", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--all", action="store_true", help="all tables and figures")
    parser.add_argument("--quick", action="store_true", help="one seed and small sizes")
    parser.add_argument("--method", action="append", help="only this method; may be repeated")
    parser.add_argument(
        "--except",
        dest="left_out",
        action="append",
        default=[],
        metavar="METHOD",
        help="not this method; may be repeated",
    )
    parser.add_argument("--data", action="append", help="only this data set; may be repeated")
    parser.add_argument("--seeds", type=int, help="only this many seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--records", type=Path, default=DEFAULT, help="folder of the records")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--mix", action="store_true", help="add to records of other numerical versions"
    )
    which.add_argument(
        "--replace",
        action="store_true",
        help="repeat runs recorded with other versions; with --merge, replace records",
    )
    task = parser.add_mutually_exclusive_group()
    task.add_argument(
        "--list", action="store_true", help="only list what would be executed, with its time"
    )
    task.add_argument(
        "--merge",
        type=Path,
        metavar="FOLDER",
        help="execute nothing, but take over the records in this folder",
    )
    options = parser.parse_args(arguments)
    chosen = NAMES if options.all else tuple(options.names)
    if not chosen:
        parser.error(f"name at least one of {', '.join(NAMES)}, or use --all")
    try:
        planned = [run for name in chosen for run in experiment(name).runs(options.quick)]
    except ValueError as error:
        parser.error(str(error))
    runs = [run for run in planned if _is_selected(run, options)]
    records = Records(options.records)
    if options.merge:
        return _merge(runs, Records(options.merge), records, options)
    old = {} if options.mix else outdated(runs, records)
    if options.list:
        print(listed(runs, records, old))
        return 0
    if old and not options.replace:
        _refuse(old)
        return 2
    recorded = len(runs) - len(missing(runs, records, old))
    announce(f"{len(runs)} runs, {recorded} already recorded in {options.records}")
    with _Progress(len(runs) - recorded) as progress:
        made = run_missing(runs, records, options.jobs, progress, old)
    return _conclude(made)


def _is_selected(run: Run, options: argparse.Namespace) -> bool:
    return (
        (options.method is None or run.method in options.method)
        and run.method not in options.left_out
        and (options.data is None or run.data in options.data)
        and (options.seeds is None or run.seed < options.seeds)
    )


def _merge(runs: list[Run], other: Records, records: Records, options: argparse.Namespace) -> int:
    """Take over the records of another folder, or name those for which this is refused."""
    taken = offered(runs, other, records, options.replace)
    reasons = refused(taken, other, options.mix)
    if reasons:
        announce(f"{len(reasons)} records cannot be taken over:")
        _name(reasons)
        return 2
    take_over(taken, other, records)
    announce(f"{len(taken)} records taken over from {other.folder}")
    return 0


def _refuse(old: dict[str, str]) -> None:
    """Name the records that the present code would not reproduce."""
    announce(f"{len(old)} records were made with other settings or another numerical version:")
    _name(old)
    announce("Use --replace to repeat them, or --mix to keep them beside new ones.")


def _name(old: dict[str, str]) -> None:
    for key, reason in list(old.items())[:_LISTED]:
        announce(f"  {key}: {reason}")
    if len(old) > _LISTED:
        announce(f"  and {len(old) - _LISTED} more")


class _Progress:
    """One line for each run that ends; below them, in a terminal, a bar with the time left."""

    def __init__(self, runs: int) -> None:
        self._bar = None
        if runs and sys.stderr.isatty():
            from robustmf.solvers.progress import WorkBar  # noqa: PLC0415 - imports rich

            self._bar = WorkBar("reproduce", "runs", runs)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*raised)

    def __call__(self, made: int, total: int, record: dict[str, Any]) -> None:
        seconds = record["wall_seconds"]
        announce(f"{made}/{total} {record['key']}: {record['status']}, {seconds:.1f} s")
        if self._bar is not None:
            self._bar.advance()


def _conclude(made: list[dict[str, Any]]) -> int:
    """Report what could not be executed."""
    reasons = (record["reason"] for record in made if record["status"] == NO_DATA)
    for reason in dict.fromkeys(reasons):
        announce(f"Not executed: {reason}")
    failed = [record for record in made if record["status"] == FAILED]
    for record in failed:
        announce(f"Failed: {record['key']}: {record['reason']}")
    announce(f"{sum(record['status'] == DONE for record in made)} runs finished")
    return 1 if failed else 0
