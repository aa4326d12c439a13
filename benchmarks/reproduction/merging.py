"""Take over records that the same code made on another machine, in another folder."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.peer_models import NotInstalledError
from benchmarks.reproduction.plan import Run
from benchmarks.reproduction.store import Records
from benchmarks.reproduction.versions import common_version, outdated, reproduces

#: A commit without changed files.
_COMMIT = re.compile(r"[0-9a-f]{40}")


def offered(runs: Sequence[Run], other: Records, records: Records, replace: bool) -> list[Run]:
    """The runs that are finished in ``other``, and not here unless they are to be replaced."""
    return [run for run in runs if _done(run, other) and (replace or not _done(run, records))]


def refused(runs: Sequence[Run], other: Records, mix: bool) -> dict[str, str]:
    """Keys of records that cannot be taken over, and why.

    They are those whose commit is not known, and, unless they are to be mixed, those that the
    present code would not reproduce.
    """
    found = {} if mix else outdated(runs, other)
    environments = other.environments()
    for run in runs:
        commit = environments[other.latest(run.experiment)[run.key]["environment"]]["commit"]
        if not _COMMIT.fullmatch(commit or ""):
            found[run.key] = f"made by the commit {commit}"
    return found


def take_over(runs: Sequence[Run], other: Records, records: Records) -> None:
    """Append the records of the runs, each with the environment and the date of its origin."""
    environments = other.environments()
    for run in runs:
        record = dict(other.latest(run.experiment)[run.key])
        environment = dict(environments[record["environment"]])
        del environment["name"]
        record["environment"] = environment | {"date": record.pop("date")}
        record["numerical_version"] = _version(run, record["numerical_version"], records)
        records.append(run.experiment, record)


def _version(run: Run, version: str, records: Records) -> str:
    """The version of the method's records here where rounding explains the difference."""
    try:
        known = reproduces(run.experiment, run.method, version)
    except NotInstalledError:
        return version
    return common_version(run, version, records) if known else version


def _done(run: Run, records: Records) -> bool:
    return records.latest(run.experiment).get(run.key, {}).get("status") == "done"
