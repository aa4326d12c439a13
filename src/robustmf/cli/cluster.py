"""Options of the command line for fits on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.cli.errors import reading_input
from robustmf.cli.input import FileOptions
from robustmf.cli.output import print_note

_PANEL = "On a Dask cluster (extra 'dask')"

#: Local clusters accept connections from this machine only: whoever connects can run code.
_LOOPBACK = "127.0.0.1"

#: Workers of a local cluster are replaced however often they are lost. By default ``LocalCluster``
#: gives one up that is lost twice and not running 15 seconds after the first time.
_KEEP_LOST_WORKERS = {"distributed.deploy.lost-worker-timeout": "1 day"}

Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Address of the scheduler, e.g. tcp://10.0.0.1:8786.",
        rich_help_panel=_PANEL,
    ),
]
LocalWorkers = Annotated[
    int | None,
    typer.Option(
        "--local-workers",
        min=1,
        help="Start a local cluster with this number of worker processes.",
        rich_help_panel=_PANEL,
    ),
]


def is_requested(scheduler: str | None, local_workers: int | None) -> bool:
    """Whether one of the options requests a fit on a cluster."""
    if scheduler is not None and local_workers is not None:
        raise typer.BadParameter(
            "cannot be combined with --scheduler: give one of them, not both",
            param_hint="--local-workers",
        )
    return scheduler is not None or local_workers is not None


@contextmanager
def connected(scheduler: str | None, local_workers: int | None) -> Iterator[Any]:
    """Context with a client of the cluster; a local cluster is closed at the end."""
    from robustmf.backends.dask import require_dask  # noqa: PLC0415 - keeps --help fast

    require_dask()
    import dask  # noqa: PLC0415 - Dask is an extra
    import distributed  # noqa: PLC0415 - as above

    with ExitStack() as stack:
        if scheduler is None:
            stack.enter_context(dask.config.set(_KEEP_LOST_WORKERS))
            address: Any = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=local_workers,
                    threads_per_worker=1,
                    host=_LOOPBACK,
                    dashboard_address=f"{_LOOPBACK}:0",
                    silence_logs=50,
                )
            )
        else:
            address = scheduler
        try:
            client = stack.enter_context(distributed.Client(address, timeout=10))
        except ValueError as error:
            raise typer.BadParameter(
                f"{scheduler!r} is not an address such as tcp://10.0.0.1:8786 ({error})",
                param_hint="--scheduler",
            ) from None
        except OSError as error:
            raise ConnectionError(
                f"no scheduler answers at {scheduler}: {' '.join(str(error).split())}"
            ) from None
        if scheduler is not None and is_exposed(client.scheduler.address):
            print_note(
                f"The connection to {scheduler} is neither encrypted nor authenticated: use a"
                " tls:// address outside a trusted network"
            )
        print_note(f"Cluster: {client.scheduler.address}, {len(client.nthreads())} workers")
        yield client


def is_exposed(address: str) -> bool:
    """Whether an address of a scheduler is on a network, without TLS."""
    protocol, _, location = address.rpartition("://")
    host = location.rpartition(":")[0].strip("[]")
    return protocol not in ("tls", "wss", "inproc") and not _is_loopback(host)


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine; a name other than localhost may be that of any machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def as_triplets(path: Path, options: FileOptions) -> Any:
    """The triplets of a Parquet file or folder."""
    from robustmf.backends.dask.source import Triplets, pieces_of  # noqa: PLC0415 - as above

    if path.is_file() and path.suffix.lower() != ".parquet":
        raise typer.BadParameter(
            f"{path} must be a Parquet file or a folder of Parquet files with --scheduler or "
            "--local-workers",
            param_hint="DATA",
        )
    if options.wide or options.missing is not None:
        raise typer.BadParameter(
            "needs the file in this process; omit it with --scheduler or --local-workers",
            param_hint="--wide" if options.wide else "--missing",
        )
    with reading_input():
        triplets = Triplets(
            path,
            options.row,
            options.col,
            options.value,
            duplicates=options.duplicates,  # type: ignore[arg-type]
        )
        pieces, columns = pieces_of(triplets)
    print_note(
        f"{path}: Parquet in {len(pieces)} pieces; "
        f"row={columns.row}, col={columns.col}, value={columns.value}"
    )
    return triplets
