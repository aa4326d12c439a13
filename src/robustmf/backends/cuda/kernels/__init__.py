"""Triton kernels. A program processes one chunk of a row; sums over chunks have a fixed order."""
