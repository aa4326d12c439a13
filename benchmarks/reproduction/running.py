"""Make the runs of a plan that have no record yet."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from benchmarks.peer_models import NotInstalledError
from benchmarks.reproduction import registry
from benchmarks.reproduction.plan import DataMissingError, Run
from benchmarks.reproduction.records import Records, machine
from robustmf.backends.cpu.blas import one_blas_thread

DONE, NO_DATA, FAILED = "done", "no data", "failed"

#: Told after every run: how many are made, how many there are, the record.
Announce = Callable[[int, int, dict[str, Any]], None]


def missing(runs: Sequence[Run], records: Records) -> list[Run]:
    """The runs without a finished record; those that failed, or whose data was missing, are tried again."""
    finished = {
        key
        for experiment in {run.experiment for run in runs}
        for key, record in records.latest(experiment).items()
        if record["status"] == DONE
    }
    return [run for run in runs if run.key not in finished]


def make(run: Run) -> dict[str, Any]:
    """The record of one run."""
    record: dict[str, Any] = {
        "key": run.key,
        "method": run.method,
        "data": run.data,
        "seed": run.seed,
        "machine": machine(),
    }
    started = time.time()
    try:
        with warnings.catch_warnings(), one_blas_thread():
            warnings.simplefilter("ignore")
            result = registry.experiment(run.experiment).execute(run)
        record |= {"status": DONE, "result": plain(result)}
    except (DataMissingError, NotInstalledError) as error:
        record |= {"status": NO_DATA, "why": str(error)}
    except (
        Exception
    ) as error:  # one bad run must not end the others; it is reported, and tried again next time
        record |= {"status": FAILED, "why": f"{type(error).__name__}: {error}"}
    return record | {"started": started, "took": time.time() - started}


def plain(value: Any) -> Any:
    """NumPy numbers and arrays as Python's; what is not finite as None."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_missing(
    runs: Sequence[Run], records: Records, jobs: int, announce: Announce
) -> list[dict[str, Any]]:
    """Make what is missing, in ``jobs`` processes of one thread each; a record is kept as soon as its run ends."""
    waiting = missing(runs, records)
    made: list[dict[str, Any]] = []

    def keep(run: Run, record: dict[str, Any]) -> None:
        records.append(run.experiment, record)
        made.append(record)
        announce(len(made), len(waiting), record)

    if jobs == 1 or len(waiting) <= 1:
        for run in waiting:
            keep(run, make(run))
        return made
    with ProcessPoolExecutor(min(jobs, len(waiting)), mp_context=get_context("spawn")) as pool:
        try:
            under_way: dict[Future[dict[str, Any]], Run] = {
                pool.submit(make, run): run for run in waiting
            }
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    keep(under_way.pop(future), future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return made
