"""Bootstrap intervals of means, paired differences and ratios.

Every comparison is over the same prompts or documents, which are resampled together. Scores with
bounds and losses need different care: the plain percentile bootstrap of few right-or-wrong answers
is far too narrow (its width is zero when all agree), and of heavy-tailed losses it covers too
little. See `mean_interval` and `ratio_interval` for what is done instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 10_000
_DRAWS_AT_ONCE = 4_000_000
_LEAST_ERROR = 0.5
_LEAST_VALUES = 3

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bootstrap interval over ``n`` documents or prompts.

    The limits are infinite where one or two values tell too little about the spread.
    """

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}] (n={self.n})"

    def as_json(self) -> dict[str, Any]:
        """A JSON object; an infinite limit is null."""
        low, high = (x if math.isfinite(x) else None for x in (self.low, self.high))
        return {"mean": self.mean, "low": low, "high": high, "n": self.n}


def paired_interval(
    ours: Values,
    theirs: Values,
    bounds: tuple[float, float] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Interval of the mean of ``ours - theirs``; ``bounds`` are those of the difference.

    Raises ValueError for unequal lengths and for no pairs.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"pairs must match, got {len(ours)} and {len(theirs)} values")
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return mean_interval(differences, bounds, resamples, seed)


def mean_interval(
    values: Values,
    bounds: tuple[float, float] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Interval of the mean of ``values``.

    Without ``bounds``: the symmetric bootstrap-t interval (Hall, The Bootstrap and Edgeworth
    Expansion, 1992). With them: the percentile bootstrap over the values and one pseudo-value at
    either bound, which for paired right-or-wrong answers is the adjustment of Bonett and Price
    (Adjusted Wald intervals for a difference of binomial proportions, 2012). The mean itself is
    that of the values. Raises ValueError for no values.
    """
    values = np.asarray(values, dtype=np.float64)
    if bounds is None:
        return ratio_interval(values, np.ones_like(values), resamples, seed)
    _check(values)
    smoothed = np.concatenate([values, np.asarray(bounds, dtype=np.float64)])
    means = _resampled(smoothed[:, None], resamples, seed)[:, 0]
    low, high = np.percentile(means, [2.5, 97.5])
    mean = float(values.mean())
    return Interval(mean, min(float(low), mean), max(float(high), mean), len(values))


def ratio_interval(
    numerators: Values, denominators: Values, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Interval of ``sum(numerators) / sum(denominators)``, pairs resampled together.

    For a loss over tokens: a document's summed loss over its number of tokens. The symmetric
    bootstrap-t interval, with the standard error of the linearised ratio; a resample's is taken to
    be at least half the sample's, because resamples that miss the outliers of a few documents
    would make the interval absurdly wide. Documents whose denominator is 0 count in ``n`` no more
    than in the ratio. Raises ValueError for unequal
    lengths and where every denominator is 0.
    """
    a, b = (np.asarray(part, dtype=np.float64) for part in (numerators, denominators))
    if a.shape != b.shape:
        raise ValueError(f"pairs must match, got {a.size} and {b.size} values")
    a, b = a[b != 0], b[b != 0]
    _check(a)
    ratio, n = float(a.sum() / b.sum()), len(a)
    if n < _LEAST_VALUES:
        return Interval(ratio, -math.inf, math.inf, n)
    products = np.stack([a, b, a * a, a * b, b * b], axis=1)
    error = _standard_errors(products.mean(axis=0), n)
    moments = _resampled(products, resamples, seed)
    ratios = moments[:, 0] / moments[:, 1]
    errors = _standard_errors(moments.T, n)
    floor = _LEAST_ERROR * float(error) + np.finfo(np.float64).tiny
    reach = float(np.percentile(np.abs(ratios - ratio) / np.maximum(errors, floor), 95))
    return Interval(ratio, ratio - reach * float(error), ratio + reach * float(error), n)


def _standard_errors(moments: np.ndarray, n: int) -> np.ndarray:
    """Of a ratio of means, by the delta method, from the means of a, b, aa, ab and bb."""
    a, b, aa, ab, bb = moments
    ratio = a / b
    variance = aa - 2 * ratio * ab + ratio * ratio * bb
    return np.sqrt(np.maximum(variance, 0) / (n - 1)) / np.abs(b)


def _resampled(values: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of resampled rows ``[resamples, columns]``."""
    generator, n = np.random.default_rng(seed), len(values)
    step = max(_DRAWS_AT_ONCE // n, 1)
    parts = []
    for start in range(0, resamples, step):
        draws = generator.integers(n, size=(min(step, resamples - start), n))
        parts.append(np.stack([column[draws].mean(axis=1) for column in values.T], axis=1))
    return np.concatenate(parts)


def _check(values: np.ndarray) -> None:
    if not values.size:
        raise ValueError("an interval needs at least one value")
