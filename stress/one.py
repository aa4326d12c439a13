"""``python -m stress.one NAME CASES SEED``: run one check and print its tally as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict

from stress.tally import Tally


def run(name: str, cases: int | None, seed: int) -> Tally:
    """Run a check in this process; ``cases=None`` means its number of cases for the table."""
    check = importlib.import_module(f"stress.checks.{name}")
    tally = Tally()
    check.run(tally, check.CASES if cases is None else cases, seed)
    return tally


if __name__ == "__main__":
    print(json.dumps(asdict(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
