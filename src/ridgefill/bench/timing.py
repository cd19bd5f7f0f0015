"""One stopwatch for everything that is timed: CPU seconds, wall seconds, and their medians."""

import time
from dataclasses import dataclass, field
from statistics import median
from types import TracebackType

import torch


def synchronize() -> None:
    """Wait for the accelerator, so that a wall time covers the work it was given."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


@dataclass
class Stopwatch:
    """Collects laps. CPU seconds are those of all threads of this process.

    ``cpu`` and ``wall`` hold one entry per lap, in seconds.
    """

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def __enter__(self) -> "Stopwatch":
        synchronize()
        self._start = (time.process_time(), time.perf_counter())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        synchronize()
        stop = (time.process_time(), time.perf_counter())
        self.cpu.append(stop[0] - self._start[0])
        self.wall.append(stop[1] - self._start[1])


def ratio_of_medians(reference: list[float], values: list[float]) -> float:
    """Median of ``reference`` over median of ``values``; 0 when the clock saw nothing."""
    below = median(values)
    return median(reference) / below if below > 0 else 0.0


def median_ratio(reference: list[float], values: list[float]) -> float:
    """Median over rounds of reference / value; 0 when the clock saw nothing."""
    ratios = [a / b for a, b in zip(reference, values, strict=True) if b > 0]
    return median(ratios) if ratios else 0.0


def rotated(names: list[str], round_number: int) -> list[str]:
    """The order of a round: each method is first equally often, so that drift hits all alike."""
    shift = round_number % len(names)
    return names[shift:] + names[:shift]
