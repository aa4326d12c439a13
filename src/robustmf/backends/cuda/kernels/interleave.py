"""Copy entries from row order to lane order."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def interleave(
    starts, widths, counts, origins, indices, values, new_indices, new_values,
    LANES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """One group of lanes; elements beyond the chunk of a lane are not written."""
    group = tl.program_id(0).to(tl.int64)
    start, width = tl.load(starts + group), tl.load(widths + group)
    lane, step = tl.arange(0, LANES)[:, None], tl.arange(0, STEPS)[None, :]
    count, origin = tl.load(counts + group * LANES + lane), tl.load(origins + group * LANES + lane)
    for o in range(0, width, STEPS):
        inside = o + step < count
        source, target = origin + o + step, start + (o + step) * LANES + lane
        tl.store(new_indices + target, tl.load(indices + source, mask=inside), mask=inside)
        tl.store(new_values + target, tl.load(values + source, mask=inside), mask=inside)
