"""Constants of the search by variational inference."""

from __future__ import annotations

from dataclasses import dataclass


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
    exponent_steps : int
        Exponents of scales between 0 and 1 that are compared.
    unequal_scales : float
        With many outliers, and a larger standard deviation of the logarithms of the scales than
        this, another attempt is made in the units of the data.
    rescaling_gain : float
        Scales are raised to other exponents if the factors become more likely by more than this:
        very strong evidence, and worth the sweeps that it costs.
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
        How often factors of the residuals are added,
    surviving : float
        as long as at least this share of the added ones remain.
    resumed_sweeps : int
        Sweeps on the large block before its residuals are searched for further factors.
    growth_size : float
        The initial variance of such a factor, in units of the noise.
    many_outliers : float
        With more outliers than this share, the components of outliers are learned too, and factors
        that outliers may have formed are removed where the evidence is against them.
    removal_sweeps, first_sweeps, finalists : int
        Sweeps after which factors to be removed are compared; and sweeps after which all but so
        many of them are left out, because the others explain more without them.
    hopeless : float
        A factor is not removed if the entries have become less likely by this many times its cost
        after the first sweeps.
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
    raised_levels : int
        How many higher noise levels are tried for a row, up to standard deviations of eight times
        the present one: beyond, noise of the row is as large as most outliers.
    max_improvements : int
        A row that was improved so often is left alone: it alternates between local maxima.
    deficit : float
        A row is not repaired if it has more clean entries than the median row by minus this many
        standard deviations.
    poor : float
        With few outliers, a row is repaired only if it has fewer clean entries than the median row
        by this many standard deviations, or is explained by chance.
    by_chance : float
        A row is explained by chance if it has no more clean entries than a row of which one factor
        is wrong would have, up to this many standard deviations.
    within_noise : float
        An entry within this many standard deviations of the noise counts as clean there.
    min_variance : float
        Lower bound of the variance of one entry's being clean: a share of nearly 1 would otherwise
        make every other row suspect.
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
    row_relaxation : float
        After the repairs, steps of rows that determine their columns are lengthened: by
        1/(1 − relaxation), at most, where a row alone does. The columns follow it, so that
        alternation would be slow. Closer to 1, several such rows at a time would diverge.
    row_tol : float
        They have not settled while one of these rows can gain more log posterior than this.
    largest_leverage : float
        Upper bound of the mean leverage, above which a row counts as determining its columns.
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
    sample : int
        Medians over the entries are those of at most so many, evenly spaced.
    min_direct : float
        Lower bound of 1 − ρ, the direct share of an entry's influence on its own prediction:
        1/(1 − ρ) is bounded where ρ is near 1, for factors that are noise anyway.
    batch : int
        Entries whose uncertainty is computed together, which bounds the memory.
    """

    max_rank: int = 50
    entries_per_parameter: float = 1.25
    min_side: int = 2
    largest_value: float = 1e3
    scale_passes: int = 3
    exponent_steps: int = 20
    unequal_scales: float = 0.5
    rescaling_gain: float = 10.0
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
    surviving: float = 0.5
    resumed_sweeps: int = 3
    growth_size: float = 0.3
    many_outliers: float = 0.08
    removal_sweeps: int = 12
    first_sweeps: int = 2
    finalists: int = 3
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
    raised_levels: int = 3
    max_improvements: int = 3
    deficit: float = -1.0
    poor: float = 1.5
    by_chance: float = 3.0
    within_noise: float = 2.5
    min_variance: float = 0.03
    clean_bounds: tuple[float, float] = (0.1, 0.95)
    level_interval: int = 3
    sweeps: int = 40
    tol: float = 1e-3
    stationary: float = 0.2
    stationary_levels: float = 0.05
    relaxation: float = 1.8
    row_relaxation: float = 0.8
    row_tol: float = 0.1
    largest_leverage: float = 0.9
    level_weight: float = 0.1
    level_quantile: float = 0.75
    pruned: float = 0.3
    log_energies: tuple[float, float] = (-14.0, 40.0)
    tail: float = 1e-5
    max_repetitions: int = 4
    max_passes: int = 600
    sample: int = 1 << 16
    min_direct: float = 0.05
    batch: int = 1 << 14


OPTIONS = VariationalOptions()
