"""Commands that run benchmarks and the reproduction of the paper."""
