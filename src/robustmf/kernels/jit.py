"""How every kernel is compiled."""

from __future__ import annotations

from numba import njit

#: Sums may be reordered and fused (that is what makes them vectorise), but NaN and infinity keep their meaning.
FAST_BUT_HONEST = {"reassoc", "contract", "arcp", "nsz"}

#: Compiled into the kernels that call it; forced, since a copy that is called instead may be another one in the next process, with the
#: terms of a sum in another order: see "Forced inlining" in docs/design/backends.md.
inlined = njit(nogil=True, forceinline=True, error_model="numpy", fastmath=FAST_BUT_HONEST)

#: Compiled once, kept on disk, free of the GIL; division by zero gives inf as in NumPy.
kernel = njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST_BUT_HONEST)
