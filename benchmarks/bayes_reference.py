"""Problems of the gauntlet: errors of the posterior mean, and of a search started at the truth.

The Gibbs sampler starts at the truth and knows what no fit knows: the rank, the priors of the
factors, the noise level of each entry, the share of outliers and their distribution. Its mean of
the posterior has the least expected squared error of all estimators. Where it is worse than 1.1
times the oracle, which knows the outliers, the entries do not tell which of them are outliers.

The variational inference of the initialization, started at the true factors and noise level, shows
what belongs to its model and not to the search: a fit that ends there has not missed a better one.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import gaussian_kde

from benchmarks.gauntlet import FIRST, WITHIN, Problem, make, oracle_error
from benchmarks.measure import announce, column, grouped, markdown
from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF
from robustmf.initialization.variational import VariationalSearch
from robustmf.kernels.team import Team

SMALL = {"seeds": 1, "jobs": 1, "sweeps": 20, "only": "20 %"}

#: Problems whose factors are normal and whose outliers are anywhere.
PROBLEMS = (
    "paper, 20 %",
    "uniform in range, 20 %",
    "values of other cells, 20 %",
    "moderate (10 sd), 20 %",
    "moderate (5 sd), 10 %",
    "noise differs by row",
    "singular values 1 to 1/200",
)

#: The share of the sweeps that are not averaged.
BURN_IN = 0.25

Array = Any


def _log_normal(e: Array, deviation: Array) -> Array:
    return -0.5 * (e / deviation) ** 2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)


def _log_outliers(problem: Problem, options: dict[str, Any], e: Array, density: Array) -> Array:
    """Log densities of the kinds of outliers, a row each, at the residuals of the clean model."""
    if options.get("kind") in ("range", "swap"):
        return density[None]
    size = options.get("size", 5.0)
    return np.array([_log_normal(e - s, problem.noise) + np.log(0.5) for s in (-size, size)])


def _value_density(problem: Problem, kind: str | None) -> Array:
    """Log density of the values of outliers that do not depend on the clean value."""
    clean = np.einsum("tq,tq->t", problem.U[problem.i], problem.V[problem.j])
    if kind == "range":
        return np.full(len(clean), -np.log(clean.max() - clean.min()))
    return np.log(gaussian_kde(clean[:4000])(problem.values) + 1e-300)


def _drawn(
    rng: np.random.Generator,
    own: Array,
    other: Array,
    weights: Array,
    targets: Array,
    shape: Any,
    prior: Array,
) -> Array:
    """Factors of one side drawn from their posterior, given the other side's.

    ``prior`` is the precision of the prior of each factor.
    """
    rank = other.shape[1]
    W, Y = (sp.csr_matrix((x, own), shape) for x in (weights, weights * targets))
    products = (other[:, :, None] * other[:, None, :]).reshape(len(other), -1)
    precision = (W @ products).reshape(-1, rank, rank) + np.diag(prior)
    root = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, (Y @ other)[:, :, None])
    noise = rng.standard_normal(mean.shape)
    return (mean + np.linalg.solve(np.swapaxes(root, 1, 2), noise))[:, :, 0]


def posterior_mean(problem: Problem, options: dict[str, Any], sweeps: int, seed: int) -> Array:
    """The mean of the clean matrix given the entries, by Gibbs sampling from the truth."""
    rng = np.random.default_rng(seed)
    i, j, noise = problem.i, problem.j, problem.noise
    share = options.get("bad", 0.05)
    size = options.get("size", 5.0)
    density = _value_density(problem, options.get("kind"))
    prior = np.geomspace(1, options.get("spectrum", 1.0), problem.U.shape[1])
    U = problem.U
    V = problem.V
    total = np.zeros((len(U), len(V)))
    kept = 0
    for sweep in range(sweeps):
        e = problem.values - np.einsum("tq,tq->t", U[i], V[j])
        logs = np.vstack(
            [
                np.log(1 - share) + _log_normal(e, noise),
                np.log(share) + _log_outliers(problem, options, e, density),
            ]
        )
        p = np.exp(logs - np.logaddexp.reduce(logs))
        state = (rng.random(len(e)) > np.cumsum(p, axis=0)[:-1]).sum(axis=0)
        if len(p) == 3:  # outliers of a known size: the value less it is informative
            weights = 1 / noise**2
            targets = problem.values - size * np.array([0.0, -1.0, 1.0])[state]
        else:
            weights = (state == 0) / noise**2
            targets = problem.values
        U = _drawn(rng, (i, j), V, weights, targets, total.shape, prior)
        V = _drawn(rng, (j, i), U, weights, targets, total.shape[::-1], prior)
        if sweep >= BURN_IN * sweeps:
            total += U @ V.T
            kept += 1
    return total / kept


def from_truth(problem: Problem, observed: Observed) -> Array:
    """The posterior means of the initialization's inference, started at the truth."""
    search = VariationalSearch(observed, Team(1), 0)
    root = np.sqrt(search.unit)
    covariance = float(np.median(problem.noise) / search.unit) ** 2
    U = problem.U / (root * search.row_scale[:, None])
    V = problem.V / (root * search.column_scale[:, None])
    search.start(U, V, covariance)
    search.noise.release(covariance)
    search.expectations()
    search.settle()
    found = search.found()
    return found.U @ found.V.T


def one(job: tuple[str, int, int]) -> dict[str, Any]:
    """The errors of one problem, relative to the oracle's."""
    name, seed, sweeps = job
    options = FIRST[name]
    problem = make(seed, **options)
    shape = (len(problem.U), len(problem.V))
    observed = Observed.from_indices(problem.i, problem.j, problem.values, shape)
    model = RobustMF(random_state=seed, n_jobs=1).fit(observed)
    found = {
        "posterior mean": posterior_mean(problem, options, sweeps, seed),
        "from the truth": from_truth(problem, observed),
        "default fit": model.row_factors_ @ model.column_factors_.T,
    }
    oracle = oracle_error(problem)
    errors = {kind: problem.error(predicted) / oracle for kind, predicted in found.items()}
    return {"problem": name, "seed": seed, **errors}


def run(
    seeds: int = 20,
    first_seed: int = 30_000,
    jobs: int = 2,
    sweeps: int = 400,
    only: str = "",
) -> list[dict[str, Any]]:
    """The problems that have ``only`` in their names, with ``seeds`` seeds each of the gauntlet."""
    names = [name for name in PROBLEMS if only in name]
    plan = [(name, first_seed + k, sweeps) for name in names for k in range(seeds)]
    if jobs == 1:
        results = list(map(one, plan))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            results = list(pool.map(one, plan))
    announce(f"{len(results)} samplers")
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Ratios of errors by problem."""
    kinds = ("posterior mean", "from the truth", "default fit")
    rows = []
    for (name,), own in grouped(results, "problem").items():
        cells = [name]
        for kind in kinds:
            ratios = column(own, kind)
            cells.append(f"{np.median(ratios):.3f}, {ratios.max():.3f}")
            cells.append(f"{(ratios <= WITHIN).sum()} of {len(ratios)}")
        rows.append(cells)
    header = [title for kind in kinds for title in (f"{kind}: median, worst", f"within {WITHIN}")]
    return markdown("Errors relative to the oracle's", ["problem", *header], rows)
