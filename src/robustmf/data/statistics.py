"""Constants of robust statistics."""

from __future__ import annotations

#: Ratio of the standard deviation to the median absolute deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826
