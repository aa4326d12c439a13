"""Inner loops compiled by Numba: arrays in, arrays out; see docs/design/backends.md."""
