"""Data to try things on, and attacks on them."""

from robustmf.datasets.attacks import Attacked, average_attack, bandwagon_attack, love_hate, random_attack, segment_attack
from robustmf.datasets.dinosaur import load_dinosaur
from robustmf.datasets.synthetic import Synthetic, make_synthetic

__all__ = [
    "Attacked",
    "Synthetic",
    "average_attack",
    "bandwagon_attack",
    "load_dinosaur",
    "love_hate",
    "make_synthetic",
    "random_attack",
    "segment_attack",
]
