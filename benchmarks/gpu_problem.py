"""Problems drawn on the card, and how good a fit of one is."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.netflix_scale import NOISE, OUTLIERS, RANK
from robustmf.estimator import RobustMF

#: Rows and columns of the entries, their values, and the true factors.
Made = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def make_entries(total: int, shape: tuple[int, int], tail: float = 1.5, seed: int = 0) -> Made:
    """The law of :mod:`netflix_scale`, drawn on the card: distinct places in random order, values, and the true factors."""
    m, n = shape
    rng = torch.Generator("cuda").manual_seed(seed)
    like = {"device": "cuda", "generator": rng}
    activity = torch.exp(1.3 * torch.randn(m, **like))
    popularity = torch.exp(tail * torch.randn(n, **like)).double().cumsum(0)
    popularity /= popularity[-1].clone()
    counts = torch.poisson(
        torch.clamp(1.45 * total * activity / activity.sum(), max=0.25 * n), generator=rng
    ).long()
    places = []
    for low in range(0, m, m // 8 + 1):
        some = counts[low : low + m // 8 + 1]
        rows = torch.repeat_interleave(torch.arange(low, low + len(some), device="cuda"), some)
        columns = torch.searchsorted(
            popularity, torch.rand(len(rows), dtype=torch.float64, **like)
        ).clamp(max=n - 1)
        places.append(torch.unique(rows * n + columns))
    place = torch.cat(places)
    place = place[torch.randperm(len(place), **like)[:total]]
    i = torch.div(place, n, rounding_mode="floor")
    j = (place - i * n).int()
    i = i.int()
    U, V = 0.5 * torch.randn(m, RANK, **like), 0.5 * torch.randn(n, RANK, **like)
    values = torch.cat(
        [
            (U[a.long()] * V[b.long()]).sum(1)
            for a, b in zip(i.split(10_000_000), j.split(10_000_000), strict=True)
        ]
    )
    values += NOISE * torch.randn(len(values), **like)
    bad = torch.rand(len(values), **like) < OUTLIERS
    values += 5 * bad * torch.sign(torch.randn(len(values), **like))
    return i, j, values, U, V


def clean_rmse(model: RobustMF, U: Tensor, V: Tensor) -> float:
    """Against the true factors' product at random places."""
    rng = np.random.default_rng(5)
    i, j = rng.integers(0, len(U), 1_000_000), rng.integers(0, len(V), 1_000_000)
    clean = np.einsum("tq,tq->t", U.cpu().numpy()[i], V.cpu().numpy()[j])
    return float(np.sqrt(np.mean(np.square(model.predict(i, j) - clean, dtype=np.float64))))
