"""Triton kernels: one program a chunk of a row, so that long rows are spread over many; sums over chunks follow in a fixed order."""
