"""The hot loops and nothing else: arrays in, arrays out. See docs/design/kernels.md for their contract."""
