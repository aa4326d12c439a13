"""Execute the runs of a plan that have no record yet."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from benchmarks.measure import announce
from benchmarks.peer_models import NotInstalledError
from benchmarks.records import environment, plain
from benchmarks.reproduction.plan import DataMissingError, Run, experiment
from benchmarks.reproduction.store import Records
from benchmarks.reproduction.versions import common_version, origin
from robustmf.backends.cpu.blas import one_blas_thread

DONE = "done"
NO_DATA = "no data"
FAILED = "failed"

#: Called after every run with the number of finished runs, of all runs, and the record.
Announce = Callable[[int, int, dict[str, Any]], None]


def missing(runs: Sequence[Run], records: Records, replaced: Collection[str] = ()) -> list[Run]:
    """The runs without a finished record, and those whose record is to be replaced.

    Failed runs and those without data are repeated.
    """
    finished = {
        key
        for name in {run.experiment for run in runs}
        for key, record in records.latest(name).items()
        if record["status"] == DONE
    }
    return [run for run in runs if run.key not in finished or run.key in replaced]


def execute(run: Run) -> dict[str, Any]:
    """Execute one run and return its record."""
    names = {"key": run.key, "method": run.method, "data": run.data, "seed": run.seed}
    record: dict[str, Any] = {**names, "environment": environment()}
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(), one_blas_thread():
            warnings.simplefilter("ignore")
            result = experiment(run.experiment).execute(run)
        record |= {"status": DONE, "result": plain(result), **origin(run)}
    except DataMissingError as error:
        announce(str(error))
        record |= {"status": NO_DATA, "reason": f"{run.data} was not found"}
    except NotInstalledError:
        record |= {"status": NO_DATA, "reason": f"{run.method} was not installed"}
    except Exception as error:  # recorded and repeated next time; the other runs continue
        record |= {"status": FAILED, "reason": f"{type(error).__name__}: {error}"}
    return record | {"wall_seconds": time.perf_counter() - started}


def run_missing(
    runs: Sequence[Run],
    records: Records,
    jobs: int,
    progress: Announce,
    replaced: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Execute what is missing in ``jobs`` processes; a record is kept as soon as its run ends.

    The first seeds of all methods come before the second ones, so that an interrupted command
    leaves tables without empty cells.
    """
    waiting = sorted(missing(runs, records, replaced), key=lambda run: run.seed)
    made: list[dict[str, Any]] = []

    def keep(run: Run, record: dict[str, Any]) -> None:
        if record["status"] == DONE:
            version = record["numerical_version"]
            record["numerical_version"] = common_version(run, version, records)
        known = records.latest(run.experiment).get(run.key, {})
        if record["status"] != NO_DATA or known.get("reason") != record["reason"]:
            records.append(run.experiment, record)
        made.append(record)
        progress(len(made), len(waiting), record)

    if jobs == 1 or len(waiting) <= 1:
        for run in waiting:
            keep(run, execute(run))
        return made
    with ProcessPoolExecutor(min(jobs, len(waiting)), mp_context=get_context("spawn")) as pool:
        try:
            pending: dict[Future[dict[str, Any]], Run] = {
                pool.submit(execute, run): run for run in waiting
            }
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    keep(pending.pop(future), future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return made
