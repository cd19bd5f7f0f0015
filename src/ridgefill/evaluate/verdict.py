"""An answer to "is this safe?": limits, intervals, and how many more samples would decide."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.bootstrap import Interval

SAFE, HARMFUL, UNSURE = "safe", "harmful", "unsure"
_MOST_TIMES = 256


@dataclass(frozen=True)
class Limits:
    """What a plan may cost.

    Args:
        max_distant_loss: largest relative increase of the loss on distant tokens: 0.01 is 1 %.
        min_needle: of the answers in the filled region that the exact prefill gives, the
            smallest share that the filled prefill has to give too.

    Raises RidgeFillError for limits out of range.
    """

    max_distant_loss: float = 0.01
    min_needle: float = 0.99

    def __post_init__(self) -> None:
        if not self.max_distant_loss >= 0:
            raise RidgeFillError(f"max_distant_loss must be 0 or more, got {self.max_distant_loss}")
        if not 0 <= self.min_needle <= 1:
            raise RidgeFillError(f"min_needle must be from 0 to 1, got {self.min_needle}")


@dataclass(frozen=True)
class Check:
    """One limit against one interval.

    ``more`` is about how many more samples like those at hand would decide; None when it is
    decided, and when even many times as many would not.
    """

    name: str
    limit: float
    interval: Interval
    answer: str
    more: int | None = None

    def as_json(self) -> dict[str, Any]:
        """A JSON object."""
        values = {"name": self.name, "limit": self.limit, "interval": self.interval.as_json()}
        return {**values, "answer": self.answer, "more": self.more}


def check_most(
    name: str, limit: float, interval: Interval, times: Callable[[int], Interval]
) -> Check:
    """Whether a value lies at or below ``limit``.

    ``times(k)`` is the interval of the samples at hand taken k times over.
    """
    return _check(name, limit, interval, times, lambda i: _answer(i.high <= limit, i.low > limit))


def check_least(
    name: str, limit: float, interval: Interval, times: Callable[[int], Interval]
) -> Check:
    """Whether a value lies at or above ``limit``; see `check_most`."""
    return _check(name, limit, interval, times, lambda i: _answer(i.low >= limit, i.high < limit))


def overall(checks: list[Check]) -> str:
    """Harmful when one limit is broken, safe when all hold, else unsure."""
    answers = {check.answer for check in checks}
    if HARMFUL in answers:
        return HARMFUL
    return SAFE if answers == {SAFE} else UNSURE


def _answer(safe: bool, harmful: bool) -> str:
    return SAFE if safe else HARMFUL if harmful else UNSURE


def _check(
    name: str,
    limit: float,
    interval: Interval,
    times: Callable[[int], Interval],
    answer: Callable[[Interval], str],
) -> Check:
    found = answer(interval)
    more = None
    if found == UNSURE:
        enough = _smallest(lambda k: answer(times(k)) != UNSURE)
        more = None if enough is None else (enough - 1) * interval.n
    return Check(name, limit, interval, found, more)


def _smallest(decides: Callable[[int], bool]) -> int | None:
    """The smallest k above 1 that decides, by doubling and bisection."""
    high = 2
    while not decides(high):
        high *= 2
        if high > _MOST_TIMES:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
