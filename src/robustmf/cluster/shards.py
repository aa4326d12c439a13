"""Factors that are too large for one machine: one Parquet file a block, written by the worker that has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.cluster.factors import Factors, gather_mended
from robustmf.cluster.identity import Ids
from robustmf.cluster.load import Matrix
from robustmf.solvers.irls import BiasModel

Array = NDArray[np.floating[Any]]


def write_shards(matrix: Matrix, pair: tuple[Factors, Factors], biases: BiasModel, folder: Path) -> None:
    """Files ``rows-00000.parquet``, … and ``columns-00000.parquet``, … with the columns id, bias (where there are any) and factor0, ….

    Where they are written again, each is replaced whole.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def submitted() -> tuple[None, list[Any]]:
        return None, [
            matrix.connection.submit(_write, ids, factors, biases, str(folder / f"{name}-{k:05}.parquet"))
            for name, side, of in zip(("rows", "columns"), matrix.sides, pair, strict=True)
            for k, (ids, factors) in enumerate(zip(side.ids, of.blocks, strict=True))
        ]

    gather_mended(matrix.connection, submitted, pair)


def _write(ids: Ids, factors: Array, biases: BiasModel, path: str) -> str:
    import pyarrow as pa  # noqa: PLC0415 - in the worker
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    columns: dict[str, Any] = {"id": pa.array(ids)}
    if biases.center is not None:
        columns["bias"] = factors[:, -1] * factors.dtype.type(biases.unit)
        factors = factors[:, :-1]
    columns |= {f"factor{k}": np.ascontiguousarray(factors[:, k]) for k in range(factors.shape[1])}
    temporary = Path(f"{path}.tmp")
    pq.write_table(pa.table(columns), temporary)
    temporary.replace(path)
    return path
