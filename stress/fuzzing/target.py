"""What is fuzzed: valid files, how they are changed, and what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Target(Protocol):
    """A kind of file.

    Files are represented in a form that is easy to change, e.g. arrays without a checksum.
    """

    #: Name of the file; readers choose by its ending.
    file: str

    def seeds(self) -> list[Any]:
        """Valid files."""

    def damaged(self, rng: np.random.Generator, one: Any, other: Any) -> Any:
        """A changed copy of ``one``; parts may be taken from ``other``."""

    def content(self, one: Any) -> bytes:
        """The bytes of the file."""

    def read(self, path: Path) -> None:
        """Read the file and use the result; a ValueError that names the file is allowed."""
