"""Synthetic problems, loaders of public data sets, and attacks on ratings."""

from robustmf.datasets.attacks import (
    Attacked,
    average_attack,
    bandwagon_attack,
    love_hate,
    random_attack,
    segment_attack,
)
from robustmf.datasets.dinosaur import load_dinosaur
from robustmf.datasets.jester import load_jester
from robustmf.datasets.movielens import load_movielens
from robustmf.datasets.netflix import load_netflix
from robustmf.datasets.rating_set import RatingSet
from robustmf.datasets.sensors import Sensors, make_sensors
from robustmf.datasets.synthetic import Synthetic, make_synthetic
from robustmf.datasets.tracks import Tracks, make_tracks
from robustmf.datasets.video import Video, make_video
from robustmf.datasets.yahoo import load_yahoo

__all__ = [
    "Attacked",
    "RatingSet",
    "Sensors",
    "Synthetic",
    "Tracks",
    "Video",
    "average_attack",
    "bandwagon_attack",
    "load_dinosaur",
    "load_jester",
    "load_movielens",
    "load_netflix",
    "load_yahoo",
    "love_hate",
    "make_sensors",
    "make_synthetic",
    "make_tracks",
    "make_video",
    "random_attack",
    "segment_attack",
]
