"""Kernels generated line by line, because Triton has no arrays of registers."""

from __future__ import annotations

from typing import Any

import triton

from robustmf.backends.cuda.expression import compiled_function

#: Lanes of a group: the threads of a warp.
LANES = 32


def compiled(name: str, lines: list[str]) -> Any:
    """The Triton function that these lines define; the first one is its signature."""
    return compiled_function(name, "\n    ".join(lines) + "\n")


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, which has no machine instructions."""
    return bool(triton.knobs.runtime.interpret)


# Triton's compiler compares every load and store with all that depend on it: with 150 of them it
# takes a minute. It does not analyse machine instructions.


def load(address: str, wide: bool) -> str:
    """Code that reads one float32 per lane; ``wide``: by a machine instruction."""
    if not wide:
        return f"tl.load({address})"
    return (
        "tl.inline_asm_elementwise('ld.global.f32 $0, [$1];', '=f,l', "
        f"[({address}).to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1)"
    )


def store(address: str, name: str, mask: str, wide: bool) -> str:
    """Code that writes one float32 in each lane of ``mask``."""
    if not wide:
        return f"tl.store({address}, {name}, mask={mask})"
    code = (
        "'{ .reg .pred p; setp.ne.s32 p, $3, 0; @p st.global.f32 [$1], $2; mov.u32 $0, 0; }', "
        "'=r,l,f,r'"
    )
    arguments = f"[({address}).to(tl.int64), {name}, {mask}.to(tl.int32)]"
    return f"tl.inline_asm_elementwise({code}, {arguments}, dtype=tl.int32, is_pure=False, pack=1)"
