"""Bytes that a sweep on a cluster sends: those of the model of docs/design/dask.md, and measured.

Used by ``cluster.py`` and by the tests of the Dask backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.backends.dask.matrix import Matrix


@dataclass(frozen=True)
class Traffic:
    """Bytes of a sweep between workers: columns to rows, rows to columns, and copies."""

    to_rows: int
    to_columns: int
    copies: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.to_rows + self.to_columns + self.copies


def predicted(matrix: Matrix, width: int) -> Traffic:
    """The bytes of a sweep with ``width`` factors per row, for the present workers of the blocks.

    The factors of a block are sent once to every other worker with a block that receives all of
    them, and rows to every block on another worker that receives only these. A block that was sent
    whole has its copy already.
    """
    workers = [
        [holders[0] for holders in matrix.connection.holders(side.blocks)] for side in matrix.sides
    ]
    row_bytes = width * matrix.dtype.itemsize
    sent = [0, 0]
    copies = 0
    connection = matrix.connection
    several = len(connection.workers()) > 1
    for side, of in enumerate(matrix.sides):
        for c, size in enumerate(matrix.sides[1 - side].sizes):
            source = workers[1 - side][c]
            whole = {workers[side][b] for b, needed in enumerate(of.needed) if needed[c] is None}
            rows = size * len(whole - {source})
            parts = [
                needed[c]
                for b, needed in enumerate(of.needed)
                if needed[c] is not None and workers[side][b] != source
            ]
            rows += sum(connection.gather(connection.map(len, parts)))
            sent[side] += rows * row_bytes
            if several and not whole - {source}:
                copies += size * row_bytes
    return Traffic(sent[0], sent[1], copies)


def sent_bytes(client: Any) -> int:
    """Bytes that the workers have sent to each other since they were started."""
    return int(sum(client.run(_sent).values()))


def _sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)
