"""Check that the GPU has enough free memory."""

from __future__ import annotations

import torch


def check_memory(needed: int, device: torch.device, description: str) -> None:
    """Raise a MemoryError with the sizes if ``needed`` bytes are not free on ``device``."""
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    # a process may be limited to less than the GPU has (set_per_process_memory_fraction)
    index = torch.cuda.current_device() if device.index is None else device.index
    allowed = int(torch.cuda.get_per_process_memory_fraction(index) * total) - reserved
    # memory that torch keeps for reuse is free too
    free = min(free, allowed) + reserved - torch.cuda.memory_allocated(device)
    if needed > free:
        raise MemoryError(
            f"{description} needs about {needed / 1e9:.1f} GB on {device}, "
            f"which has {max(free, 0) / 1e9:.1f} of {total / 1e9:.1f} GB free; "
            "use device='cpu', float32 values, or fewer entries"
        )
