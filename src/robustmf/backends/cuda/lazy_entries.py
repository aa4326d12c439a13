"""The entries of a fit, which stay in GPU memory until they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from robustmf.data.observed import Observed

_NAMES = ("pointers", "indices", "values", "weights")


class LazyEntries(Mapping[str, Any]):
    """The mapping that :meth:`Observed.to_keep` returns, copied to the host on first access.

    GPU memory is released at that moment. A pickle contains a plain dict of host arrays, so it can
    be read on a machine without a GPU.
    """

    def __init__(self, observed: Observed, weights: Any) -> None:
        self._on_gpu: Observed | None = observed
        self._host: Mapping[str, Any] = {"weights": weights}

    def _copied(self) -> Mapping[str, Any]:
        """The entries on the host."""
        if self._on_gpu is not None:
            self._host = self._on_gpu.to_host().to_keep(self._host["weights"])
            self._on_gpu = None
        return self._host

    def __getitem__(self, name: str) -> Any:
        return self._copied()[name]

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self._copied()),)
