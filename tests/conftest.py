"""Problems and tools that several tests share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import sklearn

from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.observed import Observed
from robustmf.operations import Operations


def pytest_terminal_summary(terminalreporter):
    """How many of scikit-learn's estimator checks ran, and how they ended."""
    kinds = ("passed", "failed", "error", "skipped", "xfailed")
    counts = {kind: sum("::test_estimator_check[" in report.nodeid for report in terminalreporter.getreports(kind)) for kind in kinds}
    if any(counts.values()):
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        terminalreporter.write_line(f"scikit-learn {sklearn.__version__} estimator checks: {shown}")


@dataclass(frozen=True)
class Root(Loss):
    """A concave loss of one's own: √(a + θ) − √θ."""

    name = "root"
    concave = True

    def _value(self, a):
        return np.sqrt(a + self.theta) - np.sqrt(self.theta)

    def _derivative(self, a):
        return 0.5 / np.sqrt(a + self.theta)


@pytest.fixture
def team():
    with Team(1) as team:
        yield team


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


def random_problem(m=40, n=30, rank=3, share=0.4, seed=0, dtype=np.float64):
    """Entries of a noisy low-rank matrix with outliers, and unrelated factors to stand at."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((n, rank)).T + 0.1 * rng.standard_normal((m, n))
    X += 5 * (rng.random((m, n)) < 0.05) * rng.choice([-1, 1], (m, n))
    X[rng.random((m, n)) > share] = np.nan
    U, V = rng.standard_normal((m, rank)), rng.standard_normal((n, rank))
    return Observed.from_dense(X.astype(dtype)), U.astype(dtype), V.astype(dtype)


@pytest.fixture
def problem(team, dtype):
    observed, U, V = random_problem(dtype=dtype)
    return Operations(observed, team), U, V


@pytest.fixture(scope="session")
def ratings():
    """Ratings of half stars by 400 users of 500 items, some far more popular than others, with tastes."""
    rng = np.random.default_rng(0)
    kinds, tastes = rng.integers(6, size=500), rng.dirichlet(np.full(6, 0.6), 400)
    popular = rng.lognormal(sigma=1.2, size=500)
    wanted = tastes[:, kinds] * popular
    seen = rng.random(wanted.shape) < np.minimum(1, wanted * (30 * rng.lognormal(sigma=0.6, size=400) / wanted.sum(axis=1))[:, None])
    mean = 3.4 + 0.4 * rng.standard_normal((400, 1)) + 0.5 * rng.standard_normal(500)
    mean = mean + 0.5 * rng.standard_normal((400, 3)) @ rng.standard_normal((500, 3)).T
    stars = np.clip(np.rint(2 * (mean + 0.7 * rng.standard_normal(mean.shape))) / 2, 0.5, 5)
    i, j = np.nonzero(seen)
    return Observed.from_triplets(row=[f"user {k}" for k in i], col=[f"item {k}" for k in j], value=stars[seen])
