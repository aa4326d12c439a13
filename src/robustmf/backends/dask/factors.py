"""Factors that stay with the blocks: one array a block, each on two workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.connection import Connection, MendedError
from robustmf.backends.dask.tasks import same

Array = NDArray[np.floating[Any]]


class Factors:
    """The factors of one side, block by block; nothing changes them. ``np.asarray`` brings them here, in the order of the ids.

    Parameters
    ----------
    blocks : futures of arrays
    sizes : rows of each
    order : function
        Gives the place of each row, numbered over all blocks, in the order of the ids.
    """

    def __init__(
        self,
        connection: Connection,
        blocks: Sequence[Any],
        sizes: Sequence[int],
        width: int,
        dtype: np.dtype[Any],
        order: Callable[[], NDArray[Any]],
    ) -> None:
        self._connection, self.blocks, self.sizes, self.dtype, self.order = (
            connection,
            list(blocks),
            list(sizes),
            dtype,
            order,
        )
        self.shape = (sum(sizes), width)
        self._copies: list[Any] = []
        #: What blocks of the other side were sent of these, for each a list; None where that is not known.
        self.sections: list[list[Any]] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def copy(self) -> Factors:
        """These: nothing changes them."""
        return self

    def keep_copies(self, wait: bool = False) -> None:
        """Have every block on a second worker too, where there is one."""
        addresses = list(self._connection.workers())
        for k, (block, homes) in enumerate(
            zip(self.blocks, self._connection.homes(self.blocks), strict=True)
        ):
            # another worker that was sent the block for its own work has it already
            others = list(homes[1:2]) or [one for one in addresses if one not in homes]
            if not others:
                return
            chosen = others[k % len(others)]
            self._copies.append(
                self._connection.submit(same, block, workers=[chosen], allow_other_workers=True)
            )
        if wait:
            self._connection.wait(self._copies)

    def mend(self) -> bool:
        """Replace blocks that were lost by their copies, where there are any; whether one was."""
        lost = [
            k
            for k, copy in enumerate(self._copies)
            if self.blocks[k].status != "finished" and copy.status == "finished"
        ]
        for k in lost:
            self.blocks[k] = self._copies[k]
        if lost:
            self._copies, self.sections = [], None
            self.keep_copies()
        return bool(lost)

    def each(self) -> Iterator[Array]:
        """The blocks one after the other, each brought here and let go."""
        for k in range(len(self.blocks)):
            yield gather_mended(self._connection, partial(self._block, k), [self])[1]

    def _block(self, k: int) -> tuple[None, Any]:
        return None, self.blocks[k]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        whole = np.empty(self.shape, self.dtype)
        start, order = 0, self.order()
        for block in self.each():
            whole[order[start : start + len(block)]] = block
            start += len(block)
        return whole if dtype is None else whole.astype(dtype, copy=False)


def gather_mended(
    connection: Connection, submit: Callable[[], tuple[Any, Any]], needed: Sequence[Any]
) -> tuple[Any, Any]:
    """What ``submit()`` gives to keep, and the results of the futures that it gives to wait for.

    It is asked again until nothing that it needs was lost meanwhile: factors, or the matrix's workers.
    """
    while True:
        kept, futures = submit()
        try:
            return kept, connection.gather(futures, lambda: sum(each.mend() for each in needed) > 0)
        except MendedError:
            del kept, futures
