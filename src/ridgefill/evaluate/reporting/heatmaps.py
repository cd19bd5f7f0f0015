"""Heat maps of splices: which component in which layer carries the error."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ridgefill.evaluate.reporting.formats import MORE_NATS, PERCENT
from ridgefill.evaluate.reporting.rows import (
    Row,
    by_layer,
    fill_plans,
    rows_of,
    values,
    whole_range,
)
from ridgefill.plotting import figure, plain

_PANEL_ROOM, _ROW_ROOM = 0.6, 0.24  # inches


def heat_maps(results: Mapping[str, Any]) -> dict[str, Any]:
    """A figure by file name for every measure, one panel for every plan spliced layer by layer."""
    found = {}
    for measure in values(rows_of(results, "splice"), "measure"):
        panels = {
            plan: rows
            for plan in fill_plans(results)
            if by_layer(rows := rows_of(results, "splice", measure=measure, plan=plan))
        }
        if panels:
            found[f"splice-{measure}.png"] = _heat_map(panels)
    return found


def has_shares(rows: Sequence[Row]) -> bool:
    """Whether a plan's splices have shares of the gap; else only nats undone say something."""
    return all(row["closed"] is not None for row in rows)


def _heat_map(panels: Mapping[str, Sequence[Row]]) -> Any:
    heights = [len(values(by_layer(rows), "component")) for rows in panels.values()]
    layers = [row["first"] for rows in panels.values() for row in by_layer(rows)]
    first, last = min(layers), max(layers)
    rooms = [_PANEL_ROOM + _ROW_ROOM * height for height in heights]
    drawn = figure(7.6, sum(rooms) + 0.2)
    grid = drawn.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (plan, rows) in zip(grid, panels.items(), strict=True):
        _panel(drawn, axes, plan, rows, (first, last))
    grid[-1].set_xlabel("layer")
    return drawn


def _panel(drawn: Any, axes: Any, plan: str, rows: Sequence[Row], layers: tuple[int, int]) -> None:
    shares = has_shares(rows)
    key, style, unit = ("closed", PERCENT, "% closed") if shares else ("undone", MORE_NATS, "nats")
    own = [row["first"] for row in by_layer(rows)]
    mapped = values(by_layer(rows), "component")
    whole = [row for row in whole_range(rows) if row["component"] in mapped]
    components = [row["component"] for row in whole]
    cells = np.full((len(components), max(own) - min(own) + 1), np.nan)
    for row in by_layer(rows):
        place = components.index(row["component"]), row["first"] - min(own)
        cells[place] = style.scale * row[key]["mean"]
    _image(drawn, axes, cells, min(own), unit)
    axes.set_xlim(layers[0] - 0.5, layers[1] + 0.5)
    step = max(1, (layers[1] - layers[0] + 1) // 16)
    axes.set_xticks(range(min(own), max(own) + 1, step))
    axes.set_yticks(range(len(components)), components)
    title = "share of the gap closed" if shares else "nats undone (gap uncertain)"
    axes.set_title(f"{plain(plan, 24)}: {title}", fontsize=10, loc="left")
    axes.text(1.015, 1.02, "all late layers", transform=axes.transAxes, fontsize=8, va="bottom")
    for number, row in enumerate(whole):
        axes.annotate(
            style.number(row[key]["mean"]) + (" %" if shares else ""),
            (1.015, number),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
        )


def _image(drawn: Any, axes: Any, cells: np.ndarray, first: int, unit: str) -> None:
    """Cells about zero: blue is better than filled, red is worse, grey is not known."""
    from matplotlib import colormaps

    reach = float(np.nanmax(np.abs(cells))) or 1.0
    image = axes.imshow(
        cells,
        aspect="auto",
        cmap=colormaps["RdBu"].with_extremes(bad="#e6e6e6"),
        vmin=-reach,
        vmax=reach,
        interpolation="none",
        extent=(first - 0.5, first + cells.shape[1] - 0.5, len(cells) - 0.5, -0.5),
    )
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    bar = drawn.colorbar(image, ax=axes, pad=0.12, fraction=0.04, ticks=[-reach, 0, reach])
    bar.ax.set_yticklabels([f"{value:.2g}".replace("-", "−") for value in (-reach, 0, reach)])
    bar.set_label(unit, fontsize=8)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_visible(False)
