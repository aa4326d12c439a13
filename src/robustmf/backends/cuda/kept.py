"""The entries of a fit, kept on the card until somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from robustmf.data.observed import Observed

_NAMES = ("pointers", "indices", "values", "weights")


class KeptOnCard(Mapping[str, Any]):
    """Entries by name, as :meth:`Observed.to_keep` gives them: copied to the host, and let go on the card, at the first question.

    A pickle holds the host's arrays in a plain dict: it can be read where there is no card.
    """

    def __init__(self, observed: Observed, weights: Any) -> None:
        self._on_card: Observed | None = observed
        self._host: Mapping[str, Any] = {"weights": weights}

    def _brought(self) -> Mapping[str, Any]:
        if self._on_card is not None:
            self._host = self._on_card.to_host().to_keep(self._host["weights"])
            self._on_card = None
        return self._host

    def __getitem__(self, name: str) -> Any:
        return self._brought()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self._brought()),)
