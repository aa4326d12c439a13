"""The hot loops and nothing else: arrays in, arrays out. See docs/design/backends.md for their contract."""
