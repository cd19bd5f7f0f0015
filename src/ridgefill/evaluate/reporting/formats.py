"""How a report writes numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

MISSING = "–"
Interval = Mapping[str, Any]
"""``mean``, ``low``, ``high`` and ``n``, as `ridgefill.evaluate.bootstrap.Interval.as_json`."""


@dataclass(frozen=True)
class Style:
    """Values times ``scale`` with ``digits`` decimals and a ``unit``, a sign before gains."""

    scale: float = 1.0
    digits: int = 3
    signed: bool = False
    unit: str = ""

    def number(self, value: float | None) -> str:
        """A value without its unit; `MISSING` for none."""
        if value is None:
            return MISSING
        rounded = round(value * self.scale, self.digits) + 0.0  # no negative zero
        sign = "+" if self.signed and rounded else ""
        return f"{rounded:{sign}.{self.digits}f}".replace("-", "−")

    def value(self, value: float | None) -> str:
        """A value with its unit; `MISSING` for none."""
        return self.number(value) + (self.unit if value is not None else "")

    def limits(self, interval: Interval) -> str:
        """An interval as ``[low, high]``, never broken over two lines."""
        return f"[{self.number(interval['low'])},\u00a0{self.number(interval['high'])}]"

    def interval(self, interval: Interval) -> str:
        """A mean and its interval."""
        return f"{self.value(interval['mean'])} {self.limits(interval)}"


PERCENT = Style(100, 1, unit="\u00a0%")
MORE_PERCENT = Style(100, 1, signed=True, unit="\u00a0%")
NATS = Style(1, 3, unit="\u00a0nats")
MORE_NATS = Style(1, 3, signed=True, unit="\u00a0nats")


def count(number: int, unit: str) -> str:
    """A number of things: ``1 document``, ``12 documents``."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def listed(words: list[str]) -> str:
    """Words as a list in a sentence."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def as_change(interval: Interval, style: Style = PERCENT) -> str:
    """A relative change in words: ``rises by``, ``falls by``, or ``changes by`` when unclear."""
    low, high = interval["low"], interval["high"]
    if low is not None and low > 0:
        return f"rises by {style.interval(interval)}"
    if high is not None and high < 0:
        turned = {"mean": -interval["mean"], "low": -high, "high": None if low is None else -low}
        return f"falls by {style.interval(turned)}"
    return f"changes by {replace(style, signed=True).interval(interval)}"
