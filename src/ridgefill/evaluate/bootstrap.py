"""Paired bootstrap intervals: every comparison is over the same prompts or documents."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % percentile bootstrap interval over ``n`` documents."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}] (n={self.n})"


def paired_interval(
    ours: Sequence[float], theirs: Sequence[float], resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Interval of the mean of ``ours - theirs``, pairs resampled together (Efron, 1979).

    Raises ValueError for unequal lengths and for no pairs.
    """
    if len(ours) != len(theirs) or not len(ours):
        raise ValueError(f"pairs must match, got {len(ours)} and {len(theirs)} values")
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return mean_interval(differences, resamples, seed)


def mean_interval(
    values: Sequence[float] | np.ndarray, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Interval of the mean of ``values``."""
    values = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high), len(values))
