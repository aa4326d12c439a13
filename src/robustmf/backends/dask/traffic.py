"""Bytes that a sweep puts on the wire: what the model of docs/design/dask.md says, and what the workers have sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.backends.dask.load import Matrix


@dataclass(frozen=True)
class Traffic:
    """Bytes of a sweep between workers: columns to rows, rows to columns, and copies for when a worker is lost."""

    to_rows: int
    to_columns: int
    copies: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.to_rows + self.to_columns + self.copies


def predicted(matrix: Matrix, width: int) -> Traffic:
    """Of a sweep at so many factors a row, blocks being where they are now.

    A block's factors travel once to every other worker that has a block which gets all of them, and the rows wanted to every block on
    another worker that gets these alone. Copies: of a block that has been sent whole there is one already.
    """
    homes = [[home[0] for home in matrix.connection.homes(side.blocks)] for side in matrix.sides]
    row_bytes = width * matrix.dtype.itemsize
    sent = []
    for side, of in enumerate(matrix.sides):
        rows = 0
        for c, size in enumerate(matrix.sides[1 - side].sizes):
            there = homes[1 - side][c]
            rows += size * len(
                {homes[side][b] for b, wanted in enumerate(of.wanted) if wanted[c] is None}
                - {there}
            )
            rows += sum(
                of.counts[b][c]
                for b, wanted in enumerate(of.wanted)
                if wanted[c] is not None and homes[side][b] != there
            )
        sent.append(rows * row_bytes)
    copies = 0
    if len(matrix.connection.workers()) > 1:
        for side, of in enumerate(matrix.sides):
            for c, size in enumerate(of.sizes):
                served = {
                    homes[1 - side][b]
                    for b, wanted in enumerate(matrix.sides[1 - side].wanted)
                    if wanted[c] is None
                }
                copies += 0 if served - {homes[side][c]} else size
    return Traffic(sent[0], sent[1], copies * row_bytes)


def sent_bytes(client: Any) -> int:
    """Bytes that the workers have sent to each other since they were started."""
    return int(sum(client.run(_sent).values()))


def _sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)
