"""Search for factors by variational inference: rank, noise and outliers are learned together.

The model: an entry is u·v plus noise of a learned distribution (:class:`NoiseMixture`), whose
variance may differ by row and by column (:class:`NoiseLevels`). Each factor has its own prior
variance, so that a factor which the data do not support shrinks to zero and is removed.

1. Rows and columns are equilibrated; factors start from a spectrum of clipped values.
2. Annealing: the noise level falls from the size of the values, as far as residuals follow.
3. Rows and columns in a poor local maximum are fitted again from random subsets of their entries.
4. Noise distribution, levels and prior variances are learned until they settle.
5. Factors that the residuals still show are added, and 4 is repeated.

See docs/design/initialization.md.
"""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf import phases
from robustmf.backends.ridge import FactorRidge, Ridges
from robustmf.data.observed import Observed
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.initialization.noise_mixture import OPTIONS as NOISE
from robustmf.initialization.noise_mixture import NoiseMixture, NoiseModel
from robustmf.initialization.posterior import Side
from robustmf.initialization.scales import GROSS_OUTLIER, least_sigma
from robustmf.initialization.spectral import (
    bethe_hessian_rank,
    clipped,
    equilibrating_scales,
    spectral_factors,
)
from robustmf.kernels import variational as kernels
from robustmf.kernels.team import Team

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class VariationalOptions:
    """Constants of the search. Variances are in units of the values' mean square.

    Attributes
    ----------
    max_rank : int
        The largest rank that is found.
    entries_per_parameter : float
        More factors than this allows cannot be determined, whatever the noise.
    min_side : int
        Fewer rows or columns are too few for a search.
    largest_value : float
        Values are clipped to this many times the typical one: they are outliers, and their squares
        remain finite.
    scale_passes : int
        Passes of scales and outliers by value, each without the outliers of the one before.
    margin : (int, float)
        The search begins with this many factors, or this share, more than the spectrum shows.
    annealing : int
        Sweeps of annealing, while the noise level falls to
    least_noise : float
        this share of the values' size, unless residuals do not follow:
    slack : float
        the variance is at least the residuals' (by their median) divided by this.
    min_annealing, floor_sweeps, floor_change : float, int, float
        Annealing ends after this share of its sweeps if the residuals no longer follow the noise
        level and have decreased by no more than the change in so many sweeps.
    exact : float
        The smallest noise variance of a model without factors, where most entries are equal.
    outlier_variance : float
        The variance of outliers during annealing.
    initial_size : float
        The initial factors, in units of those that match the values.
    initial_covariance : float
        Their variance, in units of a factor's.
    least_priors : tuple of float
        During annealing a factor's prior variance is at least this share of the largest, so that a
        weak factor can grow when the noise has fallen. A small share is right with many outliers,
        a large one with many factors: one attempt each, until
    clear_noise : (float, float)
        the noise is below the first share of the values' standard deviation, where the right
        factors have been found, or above the second, where there is one maximum alone.
    max_growth : int
        How often factors of the residuals are added.
    growth_size : float
        The initial variance of such a factor, in units of the noise.
    many_outliers : float
        With more outliers than this share, the components of outliers are learned too, and factors
        that outliers may have formed are removed where the evidence is against them.
    removal_sweeps : int
        Sweeps after which factors to be removed are compared.
    hopeless : float
        A factor is not removed if the entries have become less likely by this many times its cost
        after two of these sweeps.
    early_repairs : tuple of float
        Repairs during annealing, after these shares of its sweeps.
    repair_interval : int
        Sweeps between two repairs.
    max_repairs : int
    repairable_noise : float
        No repairs where the noise variance is above this share of the values' variance.
    min_gain : float
        A repaired row must gain this much in log posterior probability.
    failure : float
        The probability that no subset is free of outliers; twice as many subsets are drawn.
    max_subsets : (int, int)
        The largest number of subsets of one row, and in the last repairs, when few rows are left.
    repair_work : float
        Multiply–adds of one repair of one side, at most.
    max_failures : int
        A row that was not improved so often is left alone until its clean entries change.
    max_improvements : int
        A row that was improved so often is left alone: it alternates between local maxima.
    deficit : float
        A row is left alone that has more clean entries than the median row by one standard
        deviation and more,
    min_variance : float
        where the variance of one entry is at least this: a share of nearly 1 would otherwise make
        every other row suspect.
    clean_bounds : (float, float)
        Bounds on a row's share of clean entries, from which the number of subsets follows.
    level_interval : int
        Sweeps between two estimates of the noise levels.
    sweeps : int
        The largest number of sweeps until the estimates settle.
    stationary : float
        Sweeps end if the log density of the entries, its mean over two estimates of the noise
        levels, changes by less than this share of its standard error, and
    stationary_levels : float
        the quantile of the changes of noise levels is at most this.
    relaxation : float
        Of the prior variances in these sweeps.
    tol : float
        They have settled when noise variance and prior variances change by less in a sweep, and
    level_weight, level_quantile : float
        this quantile of the changes of noise levels by less than the weight's reciprocal times
        that.
    pruned : float
        A factor is removed whose posterior means have less than this share of its second moment.
    max_repetitions : int
        At the end all rows may be repaired again, at most so often, while the evidence rises.
    max_passes : int
        Passes over the entries of one attempt, after which the search ends with the best state that
        it has found: a bound on the work where outliers have a structure of their own.
    log_energies : (float, float)
        The range of the logarithms of squared residuals, in units of the noise, in a table of its
        density.
    tail : float
        The density there of the logarithm of residuals beyond all components.
    batch : int
        Entries whose uncertainty is computed together, which bounds the memory.
    """

    max_rank: int = 50
    entries_per_parameter: float = 1.25
    min_side: int = 4
    largest_value: float = 1e3
    scale_passes: int = 3
    margin: tuple[int, float] = (2, 0.25)
    annealing: int = 40
    least_noise: float = 0.03
    slack: float = 3.0
    min_annealing: float = 0.3
    floor_sweeps: int = 5
    floor_change: float = 0.02
    exact: float = 1e-12
    outlier_variance: float = 4.0
    initial_size: float = 0.7
    initial_covariance: float = 0.3
    least_priors: tuple[float, ...] = (0.1, 0.6)
    clear_noise: tuple[float, float] = (0.05, 0.5)
    max_growth: int = 3
    growth_size: float = 0.3
    many_outliers: float = 0.08
    removal_sweeps: int = 12
    hopeless: float = 4.0
    early_repairs: tuple[float, ...] = (0.5, 0.75)
    repair_interval: int = 4
    max_repairs: int = 24
    repairable_noise: float = 0.15
    min_gain: float = 1.0
    failure: float = 1e-3
    max_subsets: tuple[int, int] = (300, 1000)
    repair_work: float = 1e9
    max_failures: int = 4
    max_improvements: int = 3
    deficit: float = -1.0
    min_variance: float = 0.03
    clean_bounds: tuple[float, float] = (0.1, 0.95)
    level_interval: int = 3
    sweeps: int = 40
    tol: float = 1e-3
    stationary: float = 0.2
    stationary_levels: float = 0.05
    relaxation: float = 1.8
    level_weight: float = 0.1
    level_quantile: float = 0.75
    pruned: float = 0.3
    log_energies: tuple[float, float] = (-14.0, 40.0)
    tail: float = 1e-5
    max_repetitions: int = 4
    max_passes: int = 600
    batch: int = 1 << 14


OPTIONS = VariationalOptions()

#: What a pass over the entries finds of each of them, beside its weight.
_OF_ENTRIES = ("energies", "clean", "reliability", "log_densities", "residuals")


@dataclass(frozen=True)
class FoundFactors:
    """The result of a search.

    Attributes
    ----------
    U, V : array
        Posterior means.
    sigma : float
        The noise level of an entry whose row and column have scale 1.
    noise : NoiseModel
    ridge : float
        The ridge that corresponds to the prior, for squared residuals.
    ridges : (FactorRidge, FactorRidge)
        The same for each factor of rows and columns in units of the noise scales, with the
        uncertainty of the other side's factors.
    reliability : array over the entries
        The probability that the entry is no outlier.
    residuals : array over the entries
        The difference of each entry from its prediction by the others.
    evidence : float
        The log evidence of the model, in the unit of the data: the higher, the better.
    log_densities : array over the entries
        The log density of each entry given the others.
    """

    U: Array
    V: Array
    sigma: float
    noise: NoiseModel
    ridge: float
    ridges: Ridges
    reliability: Array
    residuals: Array
    evidence: float
    log_densities: Array

    @property
    def rank(self) -> int:
        """The number of factors."""
        return int(self.U.shape[1])


class VariationalSearch:
    """One search on the entries of ``observed``; see the module."""

    def __init__(self, observed: Observed, team: Team, seed: int) -> None:
        self.team = team
        self.seed = seed
        rows = observed.rows
        values = rows.values.astype(np.float64)
        self.unit = float(np.median(np.abs(values))) * MAD_TO_SIGMA
        if not self.unit > 0:
            self.unit = float(np.sqrt(np.mean(values**2))) or 1.0
        self.observed = observed
        self.i = rows.group_of_entry()
        self.j = rows.indices
        # outliers by value alone have no influence on scales, nor until the noise is learned
        self.gross = np.zeros(len(values), bool)
        for _ in range(OPTIONS.scale_passes):
            before = self.gross
            typical = self._equilibrate(values)
            if typical == 0 or not (self.gross & ~before).any():
                break
        self.rows = Side(observed, self.values, np.log(self.row_scale))
        self.columns = Side(
            observed.transposed, self.values, np.log(self.column_scale), observed.column_order
        )
        self.sides = (self.rows, self.columns)
        self.weights = np.zeros(len(values))
        self.targets = self.values.copy()
        self.reliability = np.empty(len(values))
        self.energies = np.empty(len(values))
        self.clean = np.empty(len(values))
        self.log_densities = np.empty(len(values))
        self.residuals = np.empty(len(values))
        largest = 1.5 * float(np.max(self.values**2))
        least = least_sigma(self.unit, rows.values.dtype) / self.unit
        self.noise = NoiseMixture(self.size, largest, least**2)
        self.sums: tuple[NDArray[np.intp], Array, float] | None = None
        self.n_repairs = 0
        self.n_passes = 0
        self.levels_are_learned = False
        self.level_change = 0.0

    def _equilibrate(self, values: Array) -> float:
        """Divide rows and columns by their scales without the outliers by value known so far.

        Returns the median deviation from the median, which is zero where most values are equal.
        """
        kept = ~self.gross
        observed = self.observed if kept.all() else self.observed.select(kept)
        self.row_scale, self.column_scale = equilibrating_scales(observed)
        scale = self.unit * self.row_scale[self.i] * self.column_scale[self.j]
        most = OPTIONS.largest_value
        self.values = np.clip(values / scale, -most, most)
        self.size = float(np.median(self.values[kept] ** 2)) * MAD_TO_SIGMA**2 or 1.0
        center = np.median(self.values[kept])
        deviation = np.abs(self.values - center)
        typical = float(np.median(deviation[kept]))
        self.gross = deviation > GROSS_OUTLIER * MAD_TO_SIGMA * typical
        self.spread = typical**2 * MAD_TO_SIGMA**2 or self.size
        return typical

    # --- passes ---

    @property
    def rank(self) -> int:
        """The number of factors."""
        return int(self.rows.U.shape[1])

    def start(self, U: Array, V: Array, covariance: float) -> None:
        """Begin at these factors."""
        self.rows.start(U, covariance)
        self.columns.start(V, covariance)
        rank = U.shape[1]
        self.precision = np.full(rank, 1 / np.sqrt(self.size / max(rank, 1)))
        self.variances = 1 / self.precision

    def posteriors(self, own: Side, other: Side) -> None:
        """Posteriors of one side, given the other and the weights."""
        weights = own.take(self.weights)
        size = other.covariances.shape[1]
        self.team.run(
            kernels.posteriors,
            len(own.bounds) - 1,
            2 * size * len(weights),
            own.bounds,
            own.groups.pointers,
            own.groups.indices,
            own.take(self.targets),
            weights,
            other.U,
            other.covariances,
            self.precision,
            own.U,
            own.covariances,
        )

    def expectations(self, complete: bool = True) -> None:
        """Judge the entries: new weights, and what the noise distribution learns from.

        Unless ``complete``, components that hardly any entry belongs to are left out.
        """
        used, *components = self.noise.components(0.0 if complete else NOISE.least_share)
        rows = self.rows
        columns = self.columns
        n_blocks = len(rows.bounds) - 1
        sums = (np.empty((n_blocks, 3, len(used))), np.empty(n_blocks))
        self.team.run(
            kernels.expectations,
            n_blocks,
            4 * rows.covariances.shape[1] * len(self.values),
            rows.bounds,
            rows.groups.pointers,
            rows.groups.indices,
            self.values,
            rows.U,
            rows.covariances,
            columns.U,
            columns.covariances,
            rows.levels.values,
            columns.levels.values,
            *components,
            self.noise.is_free,
            self.weights,
            self.targets,
            self.energies,
            self.clean,
            self.reliability,
            self.log_densities,
            self.residuals,
            sums,
        )
        moments, energy = (part.sum(axis=0) for part in sums)
        self.sums = (used, moments, float(energy))
        self.n_passes += 1

    def sweep(self) -> None:
        """Posteriors of rows and columns, in the basis in which both have diagonal moments."""
        self.posteriors(self.rows, self.columns)
        self.posteriors(self.columns, self.rows)
        self.balance()

    def balance(self) -> None:
        """Transform both sides such that E[uuᵀ] and E[vvᵀ] are the same diagonal matrix."""
        A = self.rows.second_moment()
        B = self.columns.second_moment()
        # positive definite also where covariances vanish in single precision
        LA, LB = (
            np.linalg.cholesky(C + (1e-12 * np.trace(C) + 1e-30) * np.eye(len(C))) for C in (A, B)
        )
        X, s, _ = np.linalg.svd(LA.T @ LB)
        T = np.linalg.solve(LA.T, X * np.sqrt(s))
        self.rows.transform(T)
        self.columns.transform(np.linalg.inv(T).T)
        self.variances = s

    def learn_precision(self, floor: float, relaxation: float = 1.0) -> float:
        """New precision of the priors; return the largest relative change.

        A relaxation between 1 and 2 lengthens the steps of expectation maximization, which are
        short for weak factors.
        """
        least = max(floor * float(self.variances.max()), 1e-12)
        step = np.clip(self.variances * self.precision, 0.5, 2.0)
        new = 1 / np.maximum(self.variances * step ** (relaxation - 1), least)
        strong = self.variances > 0.05 * self.variances.max()
        change = float(np.max(np.abs(new / self.precision - 1)[strong]))
        self.precision = new
        return change

    # --- steps ---

    def anneal(self, least_prior: float) -> None:
        """Lower the noise level from the size of the values, as far as residuals follow."""
        noise = self.noise
        steps = OPTIONS.annealing
        repairs = {round(share * steps) for share in OPTIONS.early_repairs}
        outliers = OPTIONS.outlier_variance * self.size
        floors: list[float] = []
        noise.impose(self.size, outliers)
        self.expectations()
        self.weights[self.gross] = 0
        phases.begin("initialization, annealing", steps, at_most=True)
        for k in range(1, steps + 1):
            phases.step(k - 1)
            self.sweep()
            self.learn_precision(least_prior)
            target = self.size * OPTIONS.least_noise ** (2 * k / steps)
            own = float(np.median(self.energies)) * MAD_TO_SIGMA**2
            noise.impose(max(target, own / OPTIONS.slack), outliers)
            self.expectations()
            self.weights[self.gross] = 0
            if k in repairs:
                self.repair()
                self.weights[self.gross] = 0
            # residuals that have ceased to follow are those of the noise
            floors.append(own)
            late = k >= OPTIONS.min_annealing * steps and target < own / OPTIONS.slack
            if late and own > (1 - OPTIONS.floor_change) * floors[-OPTIONS.floor_sweeps]:
                break
        noise.variance = float(np.median(self.energies)) * MAD_TO_SIGMA**2
        self.learn_levels(common=True)
        noise.release(float(np.median(self.energies)) * MAD_TO_SIGMA**2 / 2)
        self.expectations()

    def learn_levels(self, common: bool) -> None:
        """New noise levels of rows, then of columns; if ``common``, as their scales have them."""
        self.levels_are_learned |= not common
        self.level_change = 0.0
        step = NOISE.level_step
        lowest, highest = OPTIONS.log_energies
        grid = np.arange(lowest, highest, step)
        # beyond all components, a tail that is uniform in the logarithm: one entry that is far off
        # must not make its row noisy
        table = np.logaddexp(self.noise.mean_log_density(grid), np.log(OPTIONS.tail) - 0.5 * grid)
        table = np.pad(table, 2 * NOISE.level_steps + 2, mode="edge")[::-1].copy()
        for own in (self.rows, self.columns):
            levels = own.levels
            # in units of the noise and of the other side's levels, but of the own side's base
            unit = self.noise.variance * levels.base / levels.values
            energies = own.take(self.energies)
            likelihoods = np.empty((len(own.groups), len(levels.offsets)))
            self.team.run(
                kernels.level_likelihoods,
                len(own.bounds) - 1,
                len(levels.offsets) * len(energies),
                own.bounds,
                own.groups.pointers,
                energies,
                unit,
                table,
                lowest,
                step,
                likelihoods,
            )
            before = levels.values
            levels.learn(likelihoods, own.groups.counts, common)
            own.scale(self.energies, before / levels.values)
            # a few rows without noise, whose levels fall on and on, do not count; nor does a
            # common factor, which belongs to the noise variance
            change = np.log(levels.values / before)
            change = np.quantile(np.abs(change - np.median(change)), OPTIONS.level_quantile)
            self.level_change = max(self.level_change, float(change))

    def repair(self, last: bool = False) -> int:
        """Fit rows, then columns, again from random subsets where that is better.

        Where the noise is large, the posterior of a row has one mode, and there is nothing to
        repair.
        """
        variance = max(self.noise.variance, float(np.median(self.energies)) * MAD_TO_SIGMA**2)
        if variance > OPTIONS.repairable_noise * self.spread:
            return 0
        _, *components = self.noise.components(NOISE.least_share, with_tails=True)
        changed = 0
        for own, other in ((self.rows, self.columns), (self.columns, self.rows)):
            weights = own.take(self.weights)
            targets = own.take(self.targets)
            rows, n_subsets = self._suspects(own, OPTIONS.max_subsets[last])
            new_weights = weights.copy()
            improved = np.zeros(len(rows), np.int64)
            self.n_repairs += 1
            self.team.run(
                kernels.resample_rows,
                len(rows),
                int((n_subsets * own.groups.counts[rows]).sum()) * self.rank**2,
                own.groups.pointers,
                own.groups.indices,
                own.values,
                weights,
                targets,
                own.U,
                other.U,
                other.covariances,
                self.precision,
                own.levels.values,
                own.levels.base,
                other.levels.values,
                *components,
                rows,
                n_subsets,
                np.uint64(self.seed + self.n_repairs),
                OPTIONS.min_gain,
                improved,
                new_weights,
            )
            own.improvements[rows] += improved > 0
            if improved.any():
                changed += int(np.count_nonzero(improved))
                own.levels.reset(rows[improved == 2])
                own.put(new_weights, self.weights)
                # weights of a new fit are those of entries that are no outliers
                refitted = np.isin(own.of_entry, rows[improved > 0])
                own.put(np.where(refitted, own.values, targets), self.targets)
                self.posteriors(own, other)
                self.posteriors(other, own)
                self.expectations()
        return changed

    def _suspects(self, own: Side, max_subsets: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Rows with fewer clean entries than the median row, the worst first."""
        counts = own.groups.counts
        filled = counts > 0
        total = np.bincount(own.of_entry, own.take(self.clean), minlength=len(counts))
        # of the entries of a row that looks noisy, so many are within the noise of the others
        share = total / np.maximum(counts, 1)
        share *= np.sqrt(np.minimum(own.levels.base / own.levels.values, 1.0))
        median = float(np.median(share[filled]))
        variance = max(median * (1 - median), OPTIONS.min_variance)
        deficit = (median - share) * np.sqrt(counts / variance)
        # a row that could not be improved is left alone until its share changes by an entry
        own.failures[np.abs(share - own.tried) * counts >= 1] = 0
        open_ = own.failures < OPTIONS.max_failures
        open_ &= own.improvements < OPTIONS.max_improvements
        suspect = (deficit > OPTIONS.deficit) & (counts >= self.rank + 2) & open_
        rows = np.flatnonzero(suspect)
        rows = rows[np.argsort(-deficit[rows], kind="stable")]
        chance = np.clip(share[rows], *OPTIONS.clean_bounds) ** self.rank
        subsets = np.ceil(2 * np.log(OPTIONS.failure) / np.log1p(-chance))
        subsets = np.minimum(subsets, max_subsets).astype(np.int64)
        work = np.cumsum(subsets * counts[rows] * (2 * self.rank**2 + 40.0))
        number = int(np.searchsorted(work, OPTIONS.repair_work, side="right"))
        rows = rows[:number]
        own.tried[rows] = share[rows]
        # where the number of subsets was not limited, one more attempt is as good as many
        own.failures[rows] += np.where(subsets[:number] < max_subsets, OPTIONS.max_failures // 2, 1)
        return rows, subsets[:number]

    def forget_failures(self) -> None:
        """Every row may be repaired again."""
        for side in self.sides:
            side.failures[:] = 0
            side.improvements[:] = 0

    def settle(self) -> None:
        """Learn noise, levels and prior variances, with repairs, until they change no more."""
        repairs = 0
        changed = 1
        interval = OPTIONS.level_interval
        noise = [np.inf] * interval  # the variance of the last sweeps
        densities: list[float] = []  # the log density of the entries since the last repair
        most = OPTIONS.sweeps + OPTIONS.max_repairs * OPTIONS.repair_interval
        phases.begin("initialization, rank and noise", most, at_most=True)
        for k in range(most):
            phases.step(k, f"rank {self.rank}")
            if self.rank == 0:
                self.settle_noise()
                break
            # a row that is to be repaired looks noisy: its own level is learned afterwards
            repairing = changed > 0
            complete = k % interval == 0
            due = complete and not (repairing and self.levels_are_learned)
            moved = self.learning_sweep(due, repairing, complete)
            if changed and k % OPTIONS.repair_interval == OPTIONS.repair_interval - 1:
                changed = self.repair()
                repairs += 1
                if repairs >= OPTIONS.max_repairs or self.is_exhausted:
                    changed = 0
                last_repair = k
                densities.clear()
            self.prune()
            densities.append(float(self.log_densities.sum()))
            # passes differ in their components, so that the variance alternates between them
            noise.append(self.noise.variance)
            moved = max(moved, abs(noise[-1] / noise[-1 - interval] - 1) / interval)
            moved = max(moved, OPTIONS.level_weight * self.level_change)
            if not changed and k > last_repair + 2 * interval and moved < OPTIONS.tol:
                break
            if not changed and (k > last_repair + OPTIONS.sweeps or self._is_stationary(densities)):
                break

    def _is_stationary(self, densities: list[float]) -> bool:
        """Whether the log density of the entries has changed by less than its standard error.

        Estimates may alternate for ever, or a factor vanish slowly, without a change that the
        entries could show.
        """
        period = 2 * OPTIONS.level_interval
        if len(densities) < 2 * period or self.level_change > OPTIONS.stationary_levels:
            return False
        before, now = np.reshape(densities[-2 * period :], (2, period)).mean(axis=1)
        error = float(np.std(self.log_densities)) * np.sqrt(len(self.log_densities))
        return bool(abs(now - before) < OPTIONS.stationary * error)

    def settle_noise(self) -> None:
        """Learn noise and levels of a model without factors, until they change no more."""
        self.noise.impose(self.size, OPTIONS.outlier_variance * self.size)
        self.expectations()
        least = OPTIONS.exact * self.size
        self.noise.release(max(float(np.median(self.energies)) * MAD_TO_SIGMA**2, least))
        self.expectations()
        for k in range(OPTIONS.sweeps):
            before = self.noise.variance
            assert self.sums is not None
            self.noise.learn(*self.sums)
            self.noise.variance = max(self.noise.variance, least)
            if k % OPTIONS.level_interval == 0:
                self.learn_levels(common=False)
            self.expectations()
            if abs(self.noise.variance / before - 1) < OPTIONS.tol:
                break

    def learning_sweep(
        self, levels: bool = False, common: bool = False, complete: bool = True
    ) -> float:
        """One sweep that learns prior variances and noise; the largest change of the former."""
        self.sweep()
        moved = self.learn_precision(0.0, OPTIONS.relaxation)
        assert self.sums is not None
        self.noise.learn(*self.sums)
        if levels:
            self.learn_levels(common)
        self.expectations(complete)
        return moved

    def prune(self) -> None:
        """Remove factors that hold little but uncertainty."""
        if self.rank == 0:
            return
        means = np.sqrt(np.mean(self.rows.U**2, axis=0) * np.mean(self.columns.U**2, axis=0))
        kept = means > OPTIONS.pruned * self.variances
        if kept.all():
            return
        self.keep_factors(kept)

    def keep_factors(self, kept: NDArray[np.bool_]) -> None:
        """Remove the other factors."""
        T = np.eye(self.rank)[:, kept]
        for side in self.sides:
            side.transform(T)
        self.precision = self.precision[kept]
        self.variances = self.variances[kept]

    def grow(self, most: int) -> bool:
        """Add the factors that the residuals show; return whether there are any."""
        rows = self.rows
        columns = self.columns
        residual = self.values - np.einsum("tq,tq->t", rows.U[self.i], columns.U[self.j])
        level = rows.levels.values[self.i] * columns.levels.values[self.j] * self.noise.variance
        z = clipped(residual / np.sqrt(level))
        largest = most - self.rank
        shown = bethe_hessian_rank(self.observed, z, largest, self.seed)
        if shown == 0:
            return False
        variance = np.sqrt(OPTIONS.growth_size * self.noise.variance)
        new = spectral_factors(self.observed, z, shown, self.seed)
        for side, vectors in zip((rows, columns), new, strict=True):
            side.extend(vectors * np.sqrt(len(vectors) * variance), 0.5 * variance)
        self.precision = np.concatenate((self.precision, np.full(shown, 1 / variance)))
        self.variances = 1 / self.precision
        return True

    def remove_factor(self) -> bool:
        """Remove the factor without which the others explain most; return whether it may pay.

        Outliers that do not cancel, because they have one sign or share a column, can form a factor
        of their own. Without it they are outliers again. The evidence can only rise if the entries
        become less likely by no more than the factor costs.
        """
        start = self.state()
        cost = sum(side.divergence(self.precision) for side in self.sides) / self.rank
        least = float(self.log_densities.sum()) - cost
        best = None
        for k in range(self.rank):
            if self.is_exhausted:
                break
            self.restore(start)
            self.keep_factors(np.arange(self.rank) != k)
            self.expectations()
            for number in range(OPTIONS.removal_sweeps):
                self.learning_sweep()
                value = float(self.log_densities.sum())
                if number >= 1 and value < least - OPTIONS.hopeless * cost:
                    break
            else:
                if best is None or value > best[0]:
                    best = (value, self.state())
        self.restore(start if best is None else best[1])
        if best is not None:
            self.forget_failures()
            self.settle()
        return best is not None

    def state(self) -> dict[str, Any]:
        """A copy of the posterior and the noise; not of the records of repairs."""
        sides = [side.changed() for side in self.sides]
        names = ("precision", "variances", "noise", "weights", "targets", "sums", *_OF_ENTRIES)
        return deepcopy({name: getattr(self, name) for name in names} | {"sides": sides})

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a copy.

        The entries are not judged anew: their weights are already those of the next sweep, and the
        influence of an entry on the factors is that of the weights of the last one.
        """
        own = deepcopy(state)
        for side, changed in zip(self.sides, own.pop("sides"), strict=True):
            vars(side).update(changed)
        vars(self).update(own)

    def evidence(self) -> float:
        """Approximate log evidence of the model: fit to the entries less the cost of the factors.

        The cost is the Kullback–Leibler divergence of the factors' posterior from their prior.
        """
        weights = self.weights
        kept = {name: getattr(self, name) for name in (*_OF_ENTRIES, "targets", "sums")}
        self.weights = np.zeros_like(weights)  # without the removal of an entry's own influence
        self.targets = self.targets.copy()
        vars(self).update({name: np.empty_like(weights) for name in _OF_ENTRIES})
        self.expectations()
        fit = float(self.log_densities.sum())
        self.weights = weights
        vars(self).update(kept)
        return fit - sum(side.divergence(self.precision) for side in self.sides)

    def _ridge(self, own: Side, other: Side, other_unit: float) -> FactorRidge:
        """The ridge of one side's factors, in units in which the noise of all entries is equal."""
        levels = own.levels.values
        unit = self.noise.variance * self.unit * other_unit**2
        reliability = own.take(self.reliability)
        precisions = reliability * own.take(self.weights) * levels[own.of_entry]
        of_other = np.bincount(own.groups.indices, precisions, minlength=len(other.U))
        a, c = np.tril_indices(self.rank)
        variances = other.covariances[:, a == c]
        by_count = of_other @ variances / reliability.sum()
        shared = self._shared(own, other, precisions, by_count)
        return FactorRidge(unit * self.precision, unit * by_count, levels, shared)

    def _shared(self, own: Side, other: Side, precisions: Array, by_count: Array) -> Array:
        """The uncertainty of the other side in the entries of each row, relative to ``by_count``.

        It is small for a row with large factors: the other side is determined by that row.
        """
        a, c = np.tril_indices(self.rank)
        outer = own.U[:, a] * own.U[:, c]
        sums = np.zeros(len(own.U))
        for low in range(0, len(precisions), OPTIONS.batch):
            part = slice(low, low + OPTIONS.batch)
            i = own.of_entry[part]
            spread = np.einsum("tk,tk->t", other.covariances[own.groups.indices[part]], outer[i])
            sums += np.bincount(i, precisions[part] * spread, minlength=len(sums))
        counts = np.bincount(own.of_entry, own.take(self.reliability), minlength=len(own.U))
        expected = counts * (np.square(own.U) @ by_count)
        return np.divide(sums, expected, out=np.ones_like(sums), where=expected > 0)

    def found(self) -> FoundFactors:
        """The result, in the unit and scales of the data."""
        scales = self.unit * self.row_scale[self.i] * self.column_scale[self.j]
        log_scales = np.log(scales)
        precision = self.precision.mean() if self.rank else 1 / np.sqrt(self.size)
        ridge = self.noise.variance * precision * self.unit
        root = np.sqrt(self.unit)
        row_levels = np.sqrt(self.rows.levels.values) * self.row_scale
        column_levels = np.sqrt(self.columns.levels.values) * self.column_scale
        row_unit = float(np.exp(np.mean(np.log(row_levels[self.i]))))
        column_unit = float(np.exp(np.mean(np.log(column_levels[self.j]))))
        sigma = np.sqrt(self.noise.variance) * self.unit * row_unit * column_unit
        return FoundFactors(
            self.rows.U * (root * self.row_scale)[:, None],
            self.columns.U * (root * self.column_scale)[:, None],
            float(sigma),
            NoiseModel(row_levels / row_unit, column_levels / column_unit, copy(self.noise)),
            float(ridge),
            (
                self._ridge(self.rows, self.columns, column_unit),
                self._ridge(self.columns, self.rows, row_unit),
            ),
            self.reliability.clip(0.0, 1.0),
            self.residuals * scales,
            self.evidence() - float(log_scales.sum()),
            self.log_densities - log_scales,
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether the search has made as many passes over the entries as it may."""
        return self.n_passes >= OPTIONS.max_passes

    @property
    def is_clear(self) -> bool:
        """Whether no further attempt is needed."""
        low, high = OPTIONS.clear_noise
        return not low <= float(np.sqrt(self.noise.variance / self.spread)) <= high


def search_factors(
    observed: Observed, rank: int | None, team: Team, rng: np.random.Generator
) -> FoundFactors | None:
    """Factors, noise level and scales; at most ``rank`` factors, or as many as the data show.

    None where the data are too few to show any: a model of rank 1 has nearly as many parameters as
    there are rows and columns.
    """
    seed = int(rng.integers(1 << 40))
    if not is_searchable(observed):
        return None
    attempts: list[VariationalSearch] = []
    many_outliers = False
    n_complete = 0
    for least_prior in OPTIONS.least_priors:
        search = VariationalSearch(observed, team, seed)
        _attempt(search, rank, least_prior)
        attempts.append(search)
        # with many outliers the removal of factors decides which attempt is the better one
        many_outliers |= search.noise.outlier_share > OPTIONS.many_outliers
        if many_outliers:
            for attempt in attempts[n_complete:]:
                _complete(attempt, rank)
            n_complete = len(attempts)
        if search.is_clear:
            break
    best = max(attempts, key=lambda attempt: attempt.evidence())
    if n_complete == 0:
        _complete(best, rank)
    return best.found()


def is_searchable(observed: Observed) -> bool:
    """Whether there are enough entries to find factors and noise."""
    enough = observed.n_entries > sum(observed.shape) and min(observed.shape) >= OPTIONS.min_side
    return bool(enough and observed.rows.values.any())


def largest_rank(observed: Observed) -> int:
    """The largest number of factors that the entries can determine, at least 1."""
    filled = [int((side.counts > 0).sum()) for side in (observed.rows, observed.columns)]
    determined = int(observed.n_entries / (OPTIONS.entries_per_parameter * sum(filled)))
    return max(1, min(determined, min(observed.shape) - 1))


def noise_without_factors(observed: Observed, team: Team) -> FoundFactors:
    """The distribution of the noise if the entries are noise alone."""
    search = VariationalSearch(observed, team, 0)
    m, n = observed.shape
    search.start(np.zeros((m, 0)), np.zeros((n, 0)), 0.0)
    search.settle_noise()
    return search.found()


def _most_factors(observed: Observed, rank: int | None) -> int:
    return min(largest_rank(observed), OPTIONS.max_rank if rank is None else rank)


def _attempt(search: VariationalSearch, rank: int | None, least_prior: float) -> None:
    """Anneal and settle, from the spectrum of clipped values."""
    observed = search.observed
    m, n = observed.shape
    values = clipped(search.values)
    values[search.gross] = np.median(values)
    most = _most_factors(observed, rank)
    centered = values - np.median(values)
    shown = bethe_hessian_rank(observed, centered, most, search.seed)
    number, share = OPTIONS.margin
    start = min(most, shown + max(number, round(share * shown)))
    left, right = spectral_factors(observed, values, start, search.seed)
    size = OPTIONS.initial_size * (search.size / start) ** 0.25
    search.start(
        left * (np.sqrt(m) * size),
        right * (np.sqrt(n) * size),
        OPTIONS.initial_covariance * np.sqrt(search.size / start),
    )
    search.anneal(least_prior)
    search.settle()
    if search.rank and search.noise.outlier_share > OPTIONS.many_outliers:
        search.noise.is_free = True
        search.settle()


def _complete(search: VariationalSearch, rank: int | None) -> None:
    """Add factors; remove those that outliers formed; repair rows: while the evidence rises."""
    best = _BestState(search)
    _add_factors(best, _most_factors(search.observed, rank))
    _remove_factors(best)
    _repair_again(best)


class _BestState:
    """The state of a search with the largest evidence so far, to which it can return."""

    def __init__(self, search: VariationalSearch) -> None:
        self.search = search
        self.evidence = search.evidence()
        self.state = search.state()

    def update(self) -> bool:
        """Keep the present state if its evidence is larger; return whether it is."""
        evidence = self.search.evidence()
        if evidence <= self.evidence:
            return False
        self.evidence = evidence
        self.state = self.search.state()
        return True

    def restore(self) -> None:
        """Return to the best state."""
        self.search.restore(self.state)


def _add_factors(best: _BestState, most: int) -> None:
    """Add factors that the residuals show."""
    search = best.search
    for _ in range(OPTIONS.max_growth if search.rank else 0):
        before = search.rank
        if search.is_exhausted or not search.grow(most):
            break
        search.settle()
        if not best.update() or search.rank <= before:
            break
    best.restore()


def _remove_factors(best: _BestState) -> None:
    """Remove factors that outliers formed."""
    search = best.search
    while search.rank > 1 and search.noise.outlier_share > OPTIONS.many_outliers:
        if search.is_exhausted or not search.remove_factor() or not best.update():
            break
    best.restore()


def _repair_again(best: _BestState) -> None:
    """Repair all rows, with more subsets."""
    search = best.search
    for _ in range(OPTIONS.max_repetitions if search.rank else 0):
        search.forget_failures()
        if not any(search.repair(last=True) for _ in range(OPTIONS.max_failures)):
            break
        if search.is_exhausted:
            break
        search.settle()
        if not best.update():
            break
    best.restore()
