"""Data to try things on."""

from robustmf.datasets.dinosaur import load_dinosaur
from robustmf.datasets.synthetic import Synthetic, make_synthetic

__all__ = ["Synthetic", "load_dinosaur", "make_synthetic"]
