"""Synthetic readings of sensors in a building, with spikes, a stuck sensor and gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustmf.validation import as_generator, require_integer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FaultOptions:
    """Constants of the noise and of the faults of sensors.

    Attributes
    ----------
    noise : float
        Standard deviation of the noise of a reading.
    spike_range : (float, float)
        Range of the absolute error of a spike.
    stuck_hours : int
        Number of hours for which one sensor repeats the same reading.
    down_hours : int
        Number of hours for which three sensors send nothing.
    """

    noise: float = 0.2
    spike_range: tuple[float, float] = (5.0, 40.0)
    stuck_hours: int = 48
    down_hours: int = 30


_FAULTS = FaultOptions()


@dataclass(frozen=True)
class Sensors:
    """Readings with the ground truth.

    Attributes
    ----------
    readings : array of shape (hours, sensors)
        The readings, NaN where they are missing.
    truth : array of shape (hours, sensors)
        The true values, without noise, of rank 5.
    spikes, stuck : array of bool
        Which observed readings are spikes, and which are those of the stuck sensor.
    times : array of datetime64
        The hours, the labels of the rows.
    names : list of str
        The sensors, the labels of the columns.
    """

    readings: Array
    truth: Array
    spikes: NDArray[np.bool_]
    stuck: NDArray[np.bool_]
    times: NDArray[np.datetime64]
    names: list[str]

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Readings that are spikes or stuck."""
        return np.asarray(self.spikes | self.stuck)


def make_sensors(
    days: int = 30,
    sensors: int = 40,
    spikes: float = 0.02,
    missing: float = 0.1,
    random_state: int | np.random.Generator | None = None,
) -> Sensors:
    """Generate hourly readings of sensors that follow five common rhythms.

    The rhythms are a constant, the day (sine and cosine), the weather (a random walk) and the
    working hours. One sensor repeats its reading for two days, and three are down for 30 hours.

    Parameters
    ----------
    days : int, default=30
        Number of days, at least 7; there are 24 rows per day.
    sensors : int, default=40
        Number of sensors, at least 8, which are the columns.
    spikes : float, default=0.02
        Fraction of the readings with an error of 5 to 40; the noise is 0.2.
    missing : float, default=0.1
        Fraction of the readings that are missing at random.
    random_state : int, Generator or None, default=None
        Seed of all random draws.

    Returns
    -------
    sensors : Sensors
        The readings with the ground truth.

    Examples
    --------
    >>> from robustmf.datasets import make_sensors
    >>> made = make_sensors(days=7, random_state=0)
    >>> made.readings.shape, made.names[:2], str(made.times[1])
    ((168, 40), ['s00', 's01'], '2026-03-01T01')
    """
    require_integer("days", days, 7)
    require_integer("sensors", sensors, 8)
    if not (0 <= spikes <= 1 and 0 <= missing < 1):
        raise ValueError(
            f"spikes must lie in [0, 1] and missing in [0, 1), got spikes={spikes},"
            f" missing={missing}"
        )
    rng = as_generator(random_state)
    hours = np.arange(24 * days)
    rhythms = np.column_stack(
        [
            np.ones(len(hours)),
            np.sin(2 * np.pi * hours / 24),
            np.cos(2 * np.pi * hours / 24),
            np.cumsum(rng.standard_normal(len(hours))) / 10,
            (hours // 24 % 7 < 5) & (hours % 24 > 7) & (hours % 24 < 18),
        ]
    )
    mixing = rng.standard_normal((5, sensors)) * [[0.5], [2], [1], [1.5], [1]]
    mixing[0] += 21
    truth = rhythms @ mixing
    readings = truth + _FAULTS.noise * rng.standard_normal(truth.shape)
    is_spike = rng.random(truth.shape) < spikes
    n_spikes = int(is_spike.sum())
    signs = rng.choice([-1.0, 1.0], n_spikes)
    readings[is_spike] += signs * rng.uniform(*_FAULTS.spike_range, n_spikes)
    first = len(hours) // 4
    is_stuck = np.zeros(truth.shape, bool)
    is_stuck[first : first + _FAULTS.stuck_hours, sensors // 3] = True
    readings[is_stuck] = readings[first, sensors // 3]
    readings[rng.random(truth.shape) < missing] = np.nan
    readings[len(hours) // 2 : len(hours) // 2 + _FAULTS.down_hours, 3:6] = np.nan
    observed = ~np.isnan(readings)
    return Sensors(
        readings,
        truth,
        is_spike & ~is_stuck & observed,
        is_stuck & observed,
        np.datetime64("2026-03-01T00", "h") + hours.astype("timedelta64[h]"),
        [f"s{k:02}" for k in range(sensors)],
    )
