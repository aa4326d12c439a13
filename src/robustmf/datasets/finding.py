"""Files of data sets: in the user's data folder, in the cache, or from a verified download.

Archives are read in place; nothing is extracted.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from robustmf.datasets.catalog import Archive, DataSet
from robustmf.io.reading.source import Source

VARIABLE = "ROBUSTMF_DATA"


def data_folders(folder: str | Path | None = None) -> list[Path]:
    """Return the folders to search: the given one or that of ``ROBUSTMF_DATA``, then the cache.

    Downloads are stored in the first one.
    """
    import pooch  # noqa: PLC0415 - slow import

    given = folder or os.environ.get(VARIABLE)
    cache = Path(pooch.os_cache("robustmf"))
    return [Path(given).expanduser(), cache] if given else [cache]


def find_files(
    data: DataSet, patterns: tuple[str, ...], folder: str | Path | None = None
) -> list[Source]:
    """Return the files that match the first pattern with a match, sorted by name.

    Plain files take precedence over members of archives.
    """
    for base in data_folders(folder):
        for pattern in patterns:
            if plain := sorted(
                path for path in (base / data.folder).glob(f"**/{pattern}") if path.is_file()
            ):
                return [Source(path) for path in plain]
        for archive in data.archives:
            for path in (base / archive.file_name, base / data.folder / archive.file_name):
                if path.is_file() and (found := _members(path, archive, patterns)):
                    return found
    return []


def require_file(
    data: DataSet,
    name: str,
    folder: str | Path | None = None,
    download: bool = False,
    archive: int = 0,
) -> Source:
    """Return one file of a data set, downloaded from ``data.archives[archive]`` if allowed.

    If it is not available, the error explains how to get it.
    """
    found = find_files(data, (name,), folder)
    if not found and download and data.archives:
        found = _members(
            fetch(data, data.archives[archive], folder), data.archives[archive], (name,)
        )
    if not found:
        raise FileNotFoundError(how_to_get(data, name, folder))
    return found[0]


def fetch(data: DataSet, archive: Archive, folder: str | Path | None = None) -> Path:
    """Download an archive and verify it, unless a verified copy exists."""
    import pooch  # noqa: PLC0415 - as above

    base = data_folders(folder)[0]
    existing = base / archive.file_name
    if existing.is_file():
        _require_checksum(existing, archive)
        return existing
    # Only a server on this machine is accepted without encryption.
    if not archive.url.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError(f"{data.name} must be fetched over HTTPS, got {archive.url}")
    try:
        return Path(pooch.retrieve(archive.url, archive.checksum, archive.file_name, base))
    except OSError as error:
        raise FileNotFoundError(
            f"{how_to_get(data, archive.file_name, folder)} (downloading {archive.url}:"
            f" {_short(error)})"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{archive.url} has changed or was damaged during the download: {_short(error)}"
        ) from None


def how_to_get(data: DataSet, name: str, folder: str | Path | None = None) -> str:
    """Return instructions: the file, where to get it, and where to put it."""
    bases = data_folders(folder)
    target = (
        name if any(name == one.file_name for one in data.archives) else f"{data.folder}/{name}"
    )
    packed = (
        f" (or the archive {', '.join(one.file_name for one in data.archives)} as it is)"
        if data.archives and target != name
        else ""
    )
    return (
        f"{name} not found, searched in {', '.join(str(base) for base in bases)}: get {data.name}"
        f" from {data.home} and put {target}{packed} into {bases[0]}, or pass folder= or set"
        f" {VARIABLE} to the folder that contains it"
    )


def _members(path: Path, archive: Archive, patterns: tuple[str, ...]) -> list[Source]:
    """Return the members of an archive that match the first pattern with a match."""
    _require_checksum(path, archive)
    with zipfile.ZipFile(path) as packed:
        names = packed.namelist()
    for pattern in patterns:
        if matching := sorted(name for name in names if Path(name).match(pattern)):
            return [Source(path, name) for name in matching]
    return []


def _require_checksum(path: Path, archive: Archive) -> None:
    """Raise an error unless a file has the checksum of the archive."""
    import pooch  # noqa: PLC0415 - as above

    algorithm, expected = archive.checksum.split(":")
    found = pooch.file_hash(str(path), alg=algorithm)
    if found != expected:
        raise ValueError(
            f"{path} is not the official archive: its {algorithm} is {found}, not {expected};"
            f" delete it and download {archive.url} again, or extract it if it differs on purpose"
        )


def _short(error: BaseException) -> str:
    """Return the message of an error as one line of limited length."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."
