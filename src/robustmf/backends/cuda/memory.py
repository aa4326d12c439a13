"""Whether the card has the memory that is needed."""

from __future__ import annotations

import torch


def check_memory(needed: int, device: torch.device, what: str) -> None:
    """Refuse, with the sizes, what does not fit."""
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    # a process may be given less than the card has (set_per_process_memory_fraction)
    index = torch.cuda.current_device() if device.index is None else device.index
    allowed = int(torch.cuda.get_per_process_memory_fraction(index) * total) - reserved
    # what torch keeps for reuse is free too
    free = min(free, allowed) + reserved - torch.cuda.memory_allocated(device)
    if needed > free:
        raise MemoryError(
            f"{what} needs about {needed / 1e9:.1f} GB on {device}, which has {max(free, 0) / 1e9:.1f} of {total / 1e9:.1f} GB free; "
            "use device='cpu', float32 values, or fewer entries"
        )
