"""Where the files of a data set are: a folder of one's own, the cache, or a checked download.

Archives are read where they lie; nothing is extracted.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from robustmf.datasets.catalog import Archive, DataSet
from robustmf.io.reading.source import Source

VARIABLE = "ROBUSTMF_DATA"


def data_folders(folder: str | Path | None = None) -> list[Path]:
    """Folders to look in, the first being the one to download into: the given one or ``ROBUSTMF_DATA``'s, then the cache."""
    import pooch  # noqa: PLC0415 - only those who load data sets pay for it

    own = folder or os.environ.get(VARIABLE)
    return [*([Path(own).expanduser()] if own else []), Path(pooch.os_cache("robustmf"))]


def find_files(
    data: DataSet, patterns: tuple[str, ...], folder: str | Path | None = None
) -> list[Source]:
    """Files of a data set that match the first pattern that any does, sorted by name; plain files before members of archives."""
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
    """One file of a data set; if it is not there, from ``data.archives[archive]`` by download, or an error that says what to do."""
    found = find_files(data, (name,), folder)
    if not found and download and data.archives:
        found = _members(
            fetch(data, data.archives[archive], folder), data.archives[archive], (name,)
        )
    if not found:
        raise FileNotFoundError(how_to_get(data, name, folder))
    return found[0]


def fetch(data: DataSet, archive: Archive, folder: str | Path | None = None) -> Path:
    """Download an archive, check it, keep it; one that is there already and right is not downloaded again."""
    import pooch  # noqa: PLC0415 - as above

    base = data_folders(folder)[0]
    there = base / archive.file_name
    if there.is_file():
        _require_checksum(there, archive)
        return there
    if not archive.url.startswith(
        ("https://", "http://127.0.0.1:")
    ):  # this machine alone is trusted without
        raise ValueError(f"{data.name} must be fetched over HTTPS, got {archive.url}")
    try:
        return Path(pooch.retrieve(archive.url, archive.checksum, archive.file_name, base))
    except OSError as error:
        raise FileNotFoundError(
            f"{how_to_get(data, archive.file_name, folder)} (downloading {archive.url}: {_short(error)})"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{archive.url} has changed or was damaged on the way: {_short(error)}"
        ) from None


def how_to_get(data: DataSet, name: str, folder: str | Path | None = None) -> str:
    """Which file is wanted, from where, and where to put it."""
    bases = data_folders(folder)
    wanted = (
        name if any(name == one.file_name for one in data.archives) else f"{data.folder}/{name}"
    )
    packed = (
        f" (or the archive {', '.join(one.file_name for one in data.archives)} as it is)"
        if data.archives and wanted != name
        else ""
    )
    return (
        f"{name} not found, looked in {', '.join(str(base) for base in bases)}: get {data.name} from {data.home} and put {wanted}{packed} "
        f"into {bases[0]}, or pass folder= or set {VARIABLE} to the folder that has it"
    )


def _members(path: Path, archive: Archive, patterns: tuple[str, ...]) -> list[Source]:
    _require_checksum(path, archive)
    with zipfile.ZipFile(path) as packed:
        names = packed.namelist()
    for pattern in patterns:
        if matching := sorted(name for name in names if Path(name).match(pattern)):
            return [Source(path, name) for name in matching]
    return []


def _require_checksum(path: Path, archive: Archive) -> None:
    import pooch  # noqa: PLC0415 - as above

    kind, wanted = archive.checksum.split(":")
    got = pooch.file_hash(str(path), alg=kind)
    if got != wanted:
        raise ValueError(
            f"{path} is not the official archive: its {kind} is {got}, not {wanted}; delete it and download {archive.url} again, "
            "or extract it, if it is meant to differ"
        )


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."
