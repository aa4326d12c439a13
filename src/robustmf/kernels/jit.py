"""How every kernel is compiled, and how its machine code is found again on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import njit

from robustmf.kernels import compilation

#: Sums may be reordered and fused, which vectorization needs; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

# Numba's annotations do not know all options. No kernel is called through its address, so the code
# for such calls is left out.
_compile: Any = partial(
    njit, nogil=True, error_model="numpy", fastmath=FASTMATH, no_cfunc_wrapper=True
)

#: For functions that are compiled into the kernels which call them. Inlining is forced: a function
#: that is called instead may be compiled differently in another process, with the terms of a sum in
#: another order; see "Forced inlining" in docs/design/backends.md.
inlined = _compile(forceinline=True)


@cache
def sources_digest() -> str:
    """Digest of the sources of all kernels: machine code on disk is valid for these only."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.name} {len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel when it is called first, without the GIL, and cache it on disk.

    Division by zero gives inf as in NumPy. Numba's cache compares the file of the function only;
    here its stamp also has the digest of the files of all kernels, because what a kernel calls is
    part of its machine code.
    """
    compiled = _compile(cache=True)(function)
    index = compiled._cache._cache_file
    index._source_stamp = (index._source_stamp, sources_digest())
    return compiled


compilation.watch()
