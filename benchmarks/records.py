"""Records: what was measured, with which settings, by which code, on which machine."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import numerics

#: The committed records.
FOLDER = Path(__file__).parent / "records"

#: Files of the checkout that measurements write.
_WRITTEN = ("benchmarks/records", "mutants/record.json")

_PACKAGES = ("robustmf", "numpy", "scipy", "numba", "scikit-learn", "torch", "triton", "dask")


def environment() -> dict[str, Any]:
    """Commit, date, versions of packages, and machine."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "gpu": _gpu()},
    }


def save(name: str, settings: dict[str, Any], results: Any, path: Path | None = None) -> Path:
    """Write the record of a benchmark, by default where the committed records are."""
    path = path or FOLDER / f"{name}.json"
    record = {
        "benchmark": name,
        **environment(),
        "numerical_version": numerics.version(),
        "settings": settings,
        "results": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(plain(record)), encoding="utf-8")
    return path


def load(name: str) -> dict[str, Any]:
    """Read the committed record of a benchmark."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def dumps(record: dict[str, Any]) -> str:
    """JSON with one line for each field, and for each item of the results."""
    fields = []
    for name, value in record.items():
        text = _lines(value) if name == "results" else json.dumps(value, ensure_ascii=False)
        fields.append(f'"{name}": {text}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]"
    items = (
        f"{json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items()
    )
    return "{\n" + ",\n".join(items) + "\n}"


def plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to Python's, and numbers that are not finite to None."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def commit() -> str | None:
    """The commit of the checkout, marked where files other than records differ from it.

    Without Git it is the value of ``ROBUSTMF_COMMIT``, by which a copy of the files of a commit can
    name it, or None. Records do not change what is measured, and a command that adds several of
    them would mark all but the first.
    """
    others = [":(top)", *(f":(top,exclude){path}" for path in _WRITTEN)]
    try:
        found = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *others)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("ROBUSTMF_COMMIT")
    return f"{found}-dirty" if changed else found


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpu() -> str | None:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
