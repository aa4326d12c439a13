"""How every kernel is compiled."""

from __future__ import annotations

from numba import njit

#: Sums may be reordered and fused, which vectorization needs; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

#: For functions that are compiled into the kernels which call them. Inlining is forced: a function
#: that is called instead may be compiled differently in another process, with the terms of a sum in
#: another order; see "Forced inlining" in docs/design/backends.md.
inlined = njit(nogil=True, forceinline=True, error_model="numpy", fastmath=FASTMATH)

#: For kernels: compiled once, cached on disk, without the GIL; division by zero gives inf as in
#: NumPy.
kernel = njit(nogil=True, cache=True, error_model="numpy", fastmath=FASTMATH)
