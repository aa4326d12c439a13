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
from scipy.special import ndtr

from robustmf import phases
from robustmf.backends.ridge import FactorRidge, Ridges
from robustmf.data.observed import Observed
from robustmf.data.sampling import evenly_spaced
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
from robustmf.initialization.variational_options import OPTIONS
from robustmf.kernels import variational as kernels
from robustmf.kernels.team import Team

Array = NDArray[np.floating[Any]]


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
    exponents : (float, float)
        Of the scales by which rows and columns were divided.
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
    exponents: tuple[float, float]

    @property
    def rank(self) -> int:
        """The number of factors."""
        return int(self.U.shape[1])


class VariationalSearch:
    """One search on the entries of ``observed``; see the module.

    Rows and columns are divided by the median sizes of their values, raised to the ``exponents``.
    """

    def __init__(
        self,
        observed: Observed,
        team: Team,
        seed: int,
        exponents: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.exponents = exponents
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
        self.spaced = evenly_spaced(len(values), OPTIONS.sample)
        self.clean = np.empty(len(values))
        self.log_densities = np.empty(len(values))
        self.residuals = np.empty(len(values))
        largest = 1.5 * float(np.max(self.values**2))
        least = least_sigma(self.unit, rows.values.dtype) / self.unit
        self.noise = NoiseMixture(self.size, largest, least**2)
        self.sums: tuple[NDArray[np.intp], Array, float] | None = None
        self.n_repairs = 0
        self.n_passes = 0
        #: The smallest variance of a factor during annealing, relative to the largest.
        self.smallest_share = 1.0
        self.levels_are_learned = False
        self.level_change = 0.0

    @property
    def typical_energy(self) -> float:
        """A robust variance of the residuals."""
        return float(np.median(self.energies[self.spaced])) * MAD_TO_SIGMA**2

    def _equilibrate(self, values: Array) -> float:
        """Divide rows and columns by their scales without the outliers by value known so far.

        Returns the median deviation from the median, which is zero where most values are equal.
        """
        kept = ~self.gross
        scales = equilibrating_scales(self.observed, kept)
        self.row_scale, self.column_scale = map(np.power, scales, self.exponents)
        scale = self.unit * self.row_scale[self.i] * self.column_scale[self.j]
        most = OPTIONS.largest_value
        self.values = np.clip(values / scale, -most, most)
        sample = self.values[kept]
        sample = sample[evenly_spaced(len(sample), OPTIONS.sample)]
        self.size = float(np.median(sample**2)) * MAD_TO_SIGMA**2 or 1.0
        center = np.median(sample)
        deviation = np.abs(self.values - center)
        typical = float(np.median(np.abs(sample - center)))
        self.gross = deviation > GROSS_OUTLIER * MAD_TO_SIGMA * typical
        self.value_variance = typical**2 * MAD_TO_SIGMA**2 or self.size
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

    def posteriors(self, own: Side, other: Side, relaxed: bool = False) -> None:
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
            min(self.rank * len(other.U) / len(weights), OPTIONS.largest_leverage),
            OPTIONS.row_relaxation if relaxed else 0.0,
            own.U,
            own.covariances,
            own.remaining,
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
            rows.levels.base,
            columns.levels.base,
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

    def sweep(self, relaxed: bool = False) -> None:
        """Posteriors of rows and columns, in the basis in which both have diagonal moments."""
        self.posteriors(self.rows, self.columns, relaxed)
        self.posteriors(self.columns, self.rows, relaxed)
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
            share = float(self.variances.min() / self.variances.max())
            self.smallest_share = min(self.smallest_share, share)
            self.learn_precision(least_prior)
            target = self.size * OPTIONS.least_noise ** (2 * k / steps)
            own = self.typical_energy
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
        self.release_noise()

    def resume(self, U: Array, V: Array) -> None:
        """Begin near these factors, in the unit of the data; the noise is that of their errors."""
        root = np.sqrt(self.unit)
        row_factors = U / (root * self.row_scale[:, None])
        self.start(row_factors, V / (root * self.column_scale[:, None]), 0.0)
        self.noise.impose(self.size, OPTIONS.outlier_variance * self.size)
        self.expectations()
        self.release_noise()

    def release_noise(self) -> None:
        """Learn the distribution of the noise from here, first that of the present residuals."""
        self.noise.variance = self.typical_energy
        self.learn_levels(common=True)
        self.noise.release(self.typical_energy / 2)
        self.expectations()

    def learn_levels(self, common: bool) -> None:
        """New noise levels of rows, then of columns; if ``common``, as their scales have them."""
        self.levels_are_learned |= not common
        self.level_change = 0.0
        step = NOISE.level_step
        lowest, highest = OPTIONS.log_energies
        grid = np.arange(lowest, highest, step)
        offsets = step * self.rows.levels.offsets
        table = self.noise.level_table(grid, offsets, OPTIONS.tail)
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
        variance = max(self.noise.variance, self.typical_energy)
        if variance > OPTIONS.repairable_noise * self.value_variance:
            return 0
        _, *components = self.noise.components(NOISE.least_share, with_tails=True)
        changed = 0
        learned = self.levels_are_learned
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
                other.levels.base,
                *components,
                rows,
                n_subsets,
                np.uint64(self.seed + self.n_repairs),
                OPTIONS.min_gain,
                own.levels.raised_priors(rows, OPTIONS.raised_levels if learned else 0),
                improved,
                new_weights,
            )
            own.improvements[rows] += improved > 0
            if improved.any():
                changed += int(np.count_nonzero(improved))
                own.levels.reset(rows[improved == 2])
                own.levels.raise_(rows, kernels.RAISED ** np.maximum(improved - 2.0, 0.0))
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
        poor = (deficit > OPTIONS.poor) | (total <= self._explained_by_chance(counts, median))
        # many outliers may agree with a wrong factor, which then explains more than by chance
        poor |= self.noise.outlier_share > OPTIONS.many_outliers
        suspect = (deficit > OPTIONS.deficit) & poor & (counts >= self.rank + 2) & open_
        rows = np.flatnonzero(suspect)
        rows = rows[np.argsort(-deficit[rows], kind="stable")]
        chance = np.clip(share[rows], *OPTIONS.clean_bounds) ** self.rank
        subsets = np.ceil(2 * np.log(OPTIONS.failure) / np.log1p(-chance))
        subsets = np.minimum(subsets, max_subsets).astype(np.int64)
        work = np.cumsum(subsets * counts[rows] * (2 * self.rank**2 + 40.0))
        number = int(np.searchsorted(work, OPTIONS.repair_work, side="right"))
        rows = rows[:number]
        own.tried[rows] = share[rows]
        # where the number of subsets was not limited, one more attempt suffices
        own.failures[rows] += np.where(subsets[:number] < max_subsets, OPTIONS.max_failures // 2, 1)
        return rows, subsets[:number]

    def _explained_by_chance(self, counts: NDArray[np.int64], share: float) -> Array:
        """The most clean entries of rows of which one factor, the weakest, is wrong.

        A row is fitted to as many entries as it has factors; of the others, ``share`` of which are
        clean, those remain that the error of that factor leaves within the noise. The error is the
        difference of two independent factors of its variance.
        """
        error = 2 * float(self.variances.min()) ** 2
        ratio = np.sqrt(1 + error / self.noise.variance)
        within = OPTIONS.within_noise
        chance = share * (2 * ndtr(within / ratio) - 1) / (2 * ndtr(within) - 1)
        others = np.maximum(counts - self.rank, 0)
        deviation = np.sqrt(others * chance * (1 - chance))
        return np.asarray(self.rank + others * chance + OPTIONS.by_chance * deviation)

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
            moved = self.learning_sweep(due, repairing, complete, relaxed=not repairing)
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
            if changed:
                continue
            slow = max(float(side.remaining.max(initial=0.0)) for side in self.sides)
            settled = k > last_repair + 2 * interval and moved < OPTIONS.tol
            settled |= self._is_stationary(densities)
            if k > last_repair + OPTIONS.sweeps or (settled and slow < OPTIONS.row_tol):
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
        self.noise.release(max(self.typical_energy, least))
        self.expectations()
        for k in range(OPTIONS.sweeps):
            before = self.noise.variance
            assert self.sums is not None
            self.noise.learn(*self.sums)
            self.noise.variance = max(self.noise.variance, least)
            complete = k % OPTIONS.level_interval == 0
            if complete:
                self.learn_levels(common=False)
            self.expectations(complete)
            if complete and abs(self.noise.variance / before - 1) < OPTIONS.tol:
                break

    def learning_sweep(
        self,
        levels: bool = False,
        common: bool = False,
        complete: bool = True,
        relaxed: bool = False,
    ) -> float:
        """One sweep that learns prior variances and noise; the largest change of the former."""
        self.sweep(relaxed)
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
        shown = bethe_hessian_rank(self.observed, z, most - self.rank, self.seed)
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
        least = float(self.log_densities.sum()) - (1 + OPTIONS.hopeless) * cost
        trials: list[tuple[float, dict[str, Any]]] = []
        for k in range(self.rank):
            if self.is_exhausted:
                break
            self.restore(start)
            self.keep_factors(np.arange(self.rank) != k)
            self.expectations()
            value = self._learned(OPTIONS.first_sweeps)
            if value >= least:
                trials.append((value, self.state()))
                trials.sort(key=lambda trial: -trial[0])
                del trials[OPTIONS.finalists :]
        best = None
        for _, state in trials:
            if self.is_exhausted:
                break
            self.restore(state)
            value = self._learned(OPTIONS.removal_sweeps - OPTIONS.first_sweeps)
            if best is None or value > best[0]:
                best = (value, self.state())
        self.restore(start if best is None else best[1])
        if best is not None:
            self.forget_failures()
            self.settle()
        return best is not None

    def _learned(self, sweeps: int) -> float:
        """The log density of the entries after these sweeps."""
        for _ in range(sweeps):
            self.learning_sweep()
        return float(self.log_densities.sum())

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

        The entries are those of uncertain noise levels: while the search settles, levels are shrunk
        to their prior, which makes the entries less likely at the levels, but not on average.

        It is that of the data in their own unit.

        The cost is the Kullback–Leibler divergence of the factors' posterior from their prior.
        """
        weights = self.weights
        kept = {name: getattr(self, name) for name in (*_OF_ENTRIES, "targets", "sums")}
        self.weights = np.zeros_like(weights)  # without the removal of an entry's own influence
        self.targets = self.targets.copy()
        vars(self).update({name: np.empty_like(weights) for name in _OF_ENTRIES})
        self.expectations()
        fit = float(self.log_densities.sum() - self._log_scales.sum())
        self.weights = weights
        vars(self).update(kept)
        fit += sum(side.levels.log_marginal for side in self.sides)
        return fit - sum(side.divergence(self.precision) for side in self.sides)

    @property
    def _log_scales(self) -> Array:
        """The logarithms of the scales of the entries, in the unit of the data."""
        scales = np.log(self.row_scale[self.i]) + np.log(self.column_scale[self.j])
        return np.asarray(scales + np.log(self.unit))

    @property
    def scale_deviation(self) -> float:
        """The standard deviation of the logarithms of the scales; the larger one of the sides."""
        return max(float(np.std(side.levels.log_scale)) for side in self.sides)

    def preferred_exponents(self) -> tuple[tuple[float, float], float]:
        """Exponents of the scales for which the factors are most likely; the gain of evidence.

        A factor of rows divided by their scales has the same prior variance for all rows. So has a
        factor of rows of different units; but where a few strong factors make the sizes of rows
        different, weak ones have nothing to do with these sizes. The gain is that of the log
        density of the factors, each with the variance that fits it best.
        """
        a, c = np.tril_indices(self.rank)
        exponents = []
        total = 0.0
        for side, exponent in zip(self.sides, self.exponents, strict=True):
            filled = side.groups.counts > 0
            second = (side.U**2 + side.covariances[:, a == c])[filled]
            log_scale = side.levels.log_scale[filled]
            if self.rank == 0:
                exponents.append(exponent)
                continue
            shares = np.linspace(1.0, 0.0, OPTIONS.exponent_steps + 1)  # the present one first
            gains = np.empty(len(shares))
            for k, share in enumerate(shares):
                change = (1 - share) * log_scale
                variances = np.exp(2 * change) @ second / len(change)
                gains[k] = self.rank * change.sum() - 0.5 * len(change) * np.log(variances).sum()
            exponents.append(exponent * float(shares[np.argmax(gains)]))
            total += float(gains.max() - gains[0])
        return (exponents[0], exponents[1]), total

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
            uncertain = np.einsum("tk,tk->t", other.covariances[own.groups.indices[part]], outer[i])
            sums += np.bincount(i, precisions[part] * uncertain, minlength=len(sums))
        counts = np.bincount(own.of_entry, own.take(self.reliability), minlength=len(own.U))
        expected = counts * (np.square(own.U) @ by_count)
        return np.divide(sums, expected, out=np.ones_like(sums), where=expected > 0)

    def _predicted_residuals(self) -> Array:
        """The difference of each entry from its prediction by the others.

        The residuals of a pass are without the influence that an entry has on its own row and
        column. A change of a row also returns to it, through the columns of its entries: in all the
        influence is larger by 1/(1 − ρ), where ρ is the share of the row's posterior precision that
        is the uncertainty of these columns. It is large for factors hardly stronger than the noise.
        """
        if self.rank == 0:
            return self.residuals
        fitted = np.einsum("tq,tq->t", self.rows.U[self.i], self.columns.U[self.j])
        residuals = self.values - fitted
        factors = [
            1 / np.maximum(1 - own.returned(other, own.take(self.weights)), OPTIONS.min_direct)
            for own, other in (self.sides, self.sides[::-1])
        ]
        influence = 0.5 * (factors[0][self.i] + factors[1][self.j])
        return np.asarray(residuals + influence * (self.residuals - residuals))

    def factors(self) -> tuple[Array, Array]:
        """The posterior means in the unit and scales of the data."""
        root = np.sqrt(self.unit)
        return (
            self.rows.U * (root * self.row_scale)[:, None],
            self.columns.U * (root * self.column_scale)[:, None],
        )

    def found(self) -> FoundFactors:
        """The result, in the unit and scales of the data."""
        log_scales = self._log_scales
        scales = np.exp(log_scales)
        precision = self.precision.mean() if self.rank else 1 / np.sqrt(self.size)
        ridge = self.noise.variance * precision * self.unit
        row_levels = np.sqrt(self.rows.levels.values) * self.row_scale
        column_levels = np.sqrt(self.columns.levels.values) * self.column_scale
        row_unit = float(np.exp(np.mean(np.log(row_levels[self.i]))))
        column_unit = float(np.exp(np.mean(np.log(column_levels[self.j]))))
        sigma = np.sqrt(self.noise.variance) * self.unit * row_unit * column_unit
        return FoundFactors(
            *self.factors(),
            float(sigma),
            NoiseModel(row_levels / row_unit, column_levels / column_unit, copy(self.noise)),
            float(ridge),
            (
                self._ridge(self.rows, self.columns, column_unit),
                self._ridge(self.columns, self.rows, row_unit),
            ),
            self.reliability.clip(0.0, 1.0),
            self._predicted_residuals() * scales,
            self.evidence(),
            self.log_densities - log_scales,
            self.exponents,
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether the search has made as many passes over the entries as it may."""
        return self.n_passes >= OPTIONS.max_passes

    @property
    def is_clear(self) -> bool:
        """Whether no further attempt is needed."""
        low, high = OPTIONS.clear_noise
        return not low <= float(np.sqrt(self.noise.variance / self.value_variance)) <= high
