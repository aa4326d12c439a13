"""The CPU backend: Numba kernels run by a team of threads."""
