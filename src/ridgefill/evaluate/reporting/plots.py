"""The plots of an evaluation, as PNG files: only those that its results hold data for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ridgefill.evaluate.answers import NEEDLES
from ridgefill.evaluate.loss import GROUPS
from ridgefill.evaluate.reporting.heatmaps import heat_maps
from ridgefill.evaluate.reporting.rows import (
    Row,
    by_length,
    fill_plans,
    pooled,
    rows_of,
    task_names,
    values,
)
from ridgefill.plotting import figure, plain, png

# Told apart under every common colour blindness (Okabe and Ito, 2008), and by their shape in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = "osD^vPX"
_GREY = "#555555"
_SPREAD = 0.72  # of the room between two ticks


@dataclass(frozen=True)
class Look:
    """How points are drawn."""

    colour: str
    marker: str


_EXACT = Look(_GREY, "o")


def draw(results: Mapping[str, Any]) -> dict[str, bytes]:
    """PNG files by name.

    ``retrieval.png``: the filled region's score per plan and length beside the exact prefill's on
    the same references; ``loss.png``: the relative increase of the loss per group of tokens;
    ``tasks.png``: the difference in score per task, when there are several; and a heat map
    ``splice-MEASURE.png`` for each measure that was spliced layer by layer.
    """
    found = {
        "retrieval.png": _retrieval(results),
        "loss.png": _loss(results),
        "tasks.png": _tasks(results),
        **heat_maps(results),
    }
    return {name: png(drawn) for name, drawn in found.items() if drawn is not None}


def _retrieval(results: Mapping[str, Any]) -> Any:
    plans = fill_plans(results)
    filled = by_length(rows_of(results, "answers", region="filled"))
    tasks = task_names(results, filled)
    tasks = [NEEDLES] if NEEDLES in tasks else tasks
    if not plans or not tasks:
        return None
    columns = min(len(tasks), 3)
    lines = -(-len(tasks) // columns)
    drawn = figure(max(6.4, 3.4 * columns), 3.6 * lines)
    grid = drawn.subplots(lines, columns, squeeze=False, sharey=True).flat
    for axes, task in zip(grid, tasks, strict=False):
        _scores(axes, [row for row in filled if row["task"] == task], plans)
        title = "needle tasks, pooled" if task == NEEDLES else task
        axes.set_title(plain(title), fontsize=10, loc="left")
    for axes in list(grid)[len(tasks) :]:
        axes.set_visible(False)
    _legend(drawn, plans, exact=True)
    return drawn


def _scores(axes: Any, rows: Sequence[Row], plans: Sequence[str]) -> None:
    lengths = values(rows, "length")
    for number, plan in enumerate(plans):
        for row in (row for row in rows if row["plan"] == plan):
            at = lengths.index(row["length"]) + _offset(number, len(plans))
            beside = at - 0.22 * _SPREAD / len(plans)
            _point(axes, beside, row["exact"], _EXACT, hollow=True)
            _point(axes, at, row["score"], _look(number))
    _groups(axes, [f"{length:,}" for length in lengths], "prompt length, tokens")
    axes.set_ylim(-4, 104)
    axes.set_ylabel("score in the filled region, %")


def _loss(results: Mapping[str, Any]) -> Any:
    plans = fill_plans(results)
    rows = pooled(rows_of(results, "loss"), "plan", "group")
    groups = [group for group in GROUPS if group in values(rows, "group")]
    if not plans or not groups:
        return None
    drawn = figure(6.4, 4.0)
    axes = drawn.add_subplot()
    for number, plan in enumerate(plans):
        for row in (row for row in rows if row["plan"] == plan and row["group"] in groups):
            at = groups.index(row["group"]) + _offset(number, len(plans))
            _point(axes, at, row["relative"], _look(number))
    axes.axhline(0, color=_GREY, linewidth=0.8)
    limit = _distant_limit(results)
    if limit is not None and "distant" in groups:
        at = groups.index("distant")
        axes.hlines(100 * limit, at - 0.5, at + 0.5, colors="black", linestyles="dashed")
        axes.annotate(
            f"limit {100 * limit:g} %",
            (at + 0.5, 100 * limit),
            xytext=(-2, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
    _squeeze(axes, [row["relative"] for row in rows])
    _groups(axes, [f"{group} tokens" if group != "mean" else "all tokens" for group in groups])
    axes.set_ylabel("increase of the loss over exact, %")
    _legend(drawn, plans)
    return drawn


def _squeeze(axes: Any, intervals: Sequence[Mapping[str, Any]]) -> None:
    """A logarithmic scale beyond 1 % where one plan would press the others flat."""
    from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

    means = sorted(abs(interval["mean"]) for interval in intervals)
    if means[-1] > 20 * max(means[len(means) // 3], 0.005):
        axes.set_yscale("symlog", linthresh=1, linscale=0.6)
        locator = SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5))
        axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def _distant_limit(results: Mapping[str, Any]) -> float | None:
    limits = (results.get("config") or {}).get("limits") or {}
    return limits.get("max_distant_loss")


def _tasks(results: Mapping[str, Any]) -> Any:
    plans = fill_plans(results)
    rows = pooled(rows_of(results, "answers", region="all"), "plan", "task")
    tasks = [task for task in task_names(results, rows) if task != NEEDLES]
    if not plans or len(tasks) < 2:
        return None
    drawn = figure(6.4, 1.2 + len(tasks) * max(0.34, 0.13 * len(plans)))
    axes = drawn.add_subplot()
    axes.axvline(0, color=_GREY, linewidth=0.8)
    for number, plan in enumerate(plans):
        for row in (row for row in rows if row["plan"] == plan and row["task"] in tasks):
            at = tasks.index(row["task"]) + _offset(number, len(plans))
            _point(axes, at, row["delta"], _look(number), sideways=True)
    axes.set_yticks(range(len(tasks)), [plain(task) for task in tasks])
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("score less that of the exact prefill, points of 100")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    _open(axes)
    _legend(drawn, plans)
    return drawn


def _point(
    axes: Any,
    at: float,
    interval: Mapping[str, Any],
    look: Look,
    hollow: bool = False,
    sideways: bool = False,
) -> None:
    """A mean in percent with its whiskers, which are left out where there is no interval."""
    mean, low, high = interval["mean"], interval["low"], interval["high"]
    reach = [[0.0 if x is None else 100 * abs(mean - x)] for x in (low, high)]
    place, whiskers = ((100 * mean, at), "xerr") if sideways else ((at, 100 * mean), "yerr")
    axes.errorbar(
        *place,
        **{whiskers: reach},
        fmt=look.marker,
        color=look.colour,
        markersize=6,
        markerfacecolor="white" if hollow else look.colour,
        elinewidth=1 if hollow else 1.5,
        capsize=3,
        zorder=2 if hollow else 3,
    )


def _look(number: int) -> Look:
    """A plan's colour and marker, the same in every plot."""
    return Look(_COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)])


def _offset(number: int, plans: int) -> float:
    return _SPREAD * ((number + 0.5) / plans - 0.5)


def _groups(axes: Any, labels: Sequence[str], title: str = "") -> None:
    """Ticks for groups of points along x, a faint line between two groups."""
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(title)
    for number in range(1, len(labels)):
        axes.axvline(number - 0.5, color="#dddddd", linewidth=0.8, zorder=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    _open(axes)


def _open(axes: Any) -> None:
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(drawn: Any, plans: Sequence[str], exact: bool = False) -> None:
    from matplotlib.lines import Line2D

    looks = [(plain(plan), _look(number), False) for number, plan in enumerate(plans)]
    if exact:
        looks.append(("exact, same references", _EXACT, True))
    handles = [
        Line2D(
            [],
            [],
            label=label,
            color=look.colour,
            marker=look.marker,
            markerfacecolor="white" if hollow else look.colour,
            linestyle="none",
        )
        for label, look, hollow in looks
    ]
    columns = max(1, min(len(looks), 80 // (4 + max(len(label) for label, _, _ in looks))))
    drawn.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
