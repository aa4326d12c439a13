"""Data to try things on."""

from robustmf.datasets.synthetic import Synthetic, make_synthetic

__all__ = ["Synthetic", "make_synthetic"]
