"""The plots of TTFT benchmarks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ridgefill.core.artefact import write_file
from ridgefill.plotting import figure, png

_CLOCKS = {"cpu": "CPU", "wall": "wall"}


def plot_ratios(rows: Sequence[dict[str, Any]], path: Path, title: str, clock: str = "cpu") -> None:
    """Draw speed-up against prompt length as a PNG, a dashed line for each method's ideal.

    Args:
        rows: what `ridgefill.bench.ttft.measure` returned.
        path: the PNG file, written atomically.
        clock: ``cpu`` or ``wall``.
    """
    drawn = figure()
    axes = drawn.add_subplot()
    names = list(dict.fromkeys(row["method"] for row in rows if "kind" in row))
    for number, name in enumerate(names):
        points = sorted((row for row in rows if row["method"] == name), key=lambda r: r["length"])
        lengths = [row["length"] for row in points]
        colour = f"C{number}"
        measured = [row[f"ratio_{clock}"] for row in points]
        axes.plot(lengths, measured, "o-", color=colour, label=f"{name}, measured")
        ideal = [row["ideal"] for row in points]
        axes.plot(lengths, ideal, "x--", color=colour, label=f"{name}, ideal")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    ticks = sorted({row["length"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("prompt length (tokens)")
    axes.set_ylabel(f"TTFT speed-up over exact, {_CLOCKS[clock]} time")
    axes.set_title(title, fontsize=10)
    if names:
        axes.legend(fontsize=8)
    write_file(path, png(drawn))


def plot_bars(rows: Sequence[dict[str, Any]], path: Path, title: str, clock: str = "cpu") -> None:
    """Draw one TTFT bar per method as a PNG, and a mark where its ideal would put it.

    The arguments are those of `plot_ratios`; ``rows`` are of one length.
    """
    drawn = figure()
    axes = drawn.add_subplot()
    times = [row[f"ttft_{clock}_s"] for row in rows]
    names = [row["method"] for row in rows]
    exact = next(row[f"ttft_{clock}_s"] for row in rows if "kind" not in row)
    bars = axes.bar(names, times, color=[f"C{number}" for number in range(len(rows))])
    axes.bar_label(bars, [f"{exact / t:.2f}x" if t else "" for t in times])
    ideals = [exact / row["ideal"] for row in rows]
    left = [bar.get_x() for bar in bars]
    right = [bar.get_x() + bar.get_width() for bar in bars]
    axes.hlines(ideals, left, right, colors="black", linestyles="dashed", label="ideal")
    axes.margins(y=0.1)
    axes.set_ylabel(f"TTFT, seconds of {_CLOCKS[clock]} time")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    write_file(path, png(drawn))
