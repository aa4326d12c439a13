"""Attacks on ratings, each with the ground truth."""

from robustmf.datasets.attacks.attacked import Attacked
from robustmf.datasets.attacks.average import average_attack
from robustmf.datasets.attacks.bandwagon import bandwagon_attack
from robustmf.datasets.attacks.love_hate import love_hate
from robustmf.datasets.attacks.random import random_attack
from robustmf.datasets.attacks.segment import segment_attack

__all__ = [
    "Attacked",
    "average_attack",
    "bandwagon_attack",
    "love_hate",
    "random_attack",
    "segment_attack",
]
