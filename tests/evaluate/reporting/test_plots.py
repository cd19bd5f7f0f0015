"""The plots of an evaluation: which there are, and that odd data draws."""

import warnings
from typing import Any

import numpy as np
import pytest

from ridgefill.evaluate.reporting import heatmaps, plots
from ridgefill.evaluate.verdict import Limits
from tests.evaluate.reporting.synthetic import DEAD, IDENTITY, SAFE, Fill, results

ALL = {"retrieval.png", "loss.png", "tasks.png", "splice-retrieval.png"}
FEW: dict[str, Any] = {"samples": 2, "documents": 4, "splices": 4, "lengths": (2048,)}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return results((IDENTITY, DEAD, SAFE), **{**FEW, "lengths": (2048, 4096)})


def test_every_plot_is_a_png(found: dict[str, Any]) -> None:
    drawn = plots.draw(found)
    assert set(drawn) == ALL
    assert all(data.startswith(b"\x89PNG\r\n\x1a\n") for data in drawn.values())


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"samples": 0}, {"retrieval.png", "tasks.png"}),
        ({"tasks": ("niah_single_1",)}, {"tasks.png"}),
        ({"tasks": ("cwe", "fwe")}, {"retrieval.png"}),
        ({"documents": 0}, {"loss.png"}),
        ({"splices": 0}, {"splice-retrieval.png"}),
        ({"by_layer": ()}, {"splice-retrieval.png"}),
        ({"fills": (SAFE,)}, set()),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_only_what_there_is_data_for(changes: dict[str, Any], missing: set[str]) -> None:
    assert set(plots.draw(results(**{**FEW, **changes}))) == ALL - missing


def test_nothing_measured_draws_nothing(found: dict[str, Any]) -> None:
    bare = {key: found[key] for key in ("config", "plans")}
    assert plots.draw(bare) == plots.draw({}) == {}


def test_limits_that_are_null_have_no_whisker() -> None:
    """One document tells nothing of the spread."""
    one = results(**{**FEW, "documents": 1, "splices": 1})
    assert one["loss"][0]["relative"]["low"] is None
    assert set(plots.draw(one)) == ALL


@pytest.mark.parametrize("name", ["$x_1$", "_hidden", "a" * 200, '<b>&"x', "half $ open"])
def test_any_plan_name_draws(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(plots.draw(results((Fill(name),), **FEW))) == ALL


def test_many_plans_draw() -> None:
    fills = [Fill(f"plan {number}", gap=0.1) for number in range(7)]
    found = results(fills, tasks=("niah_single_1", "vt"), **{**FEW, "splices": 1})
    assert set(plots.draw(found)) == ALL


def figures(found: dict[str, Any]) -> dict[str, Any]:
    return heatmaps.heat_maps(found)


def images(figure: Any) -> dict[str, np.ndarray]:
    """The cells of every panel, by its title."""
    panels = [axes for axes in figure.axes if axes.images and axes.get_title(loc="left")]
    return {axes.get_title(loc="left"): axes.images[0].get_array() for axes in panels}


def test_a_heat_map_shows_shares_or_nats(found: dict[str, Any]) -> None:
    """Where the gap is not certain the shares are null, and the panel says nats."""
    panels = images(figures(found)["splice-retrieval.png"])
    dead, safe = f"{DEAD.name}: share of the gap closed", f"{SAFE.name}: nats undone"
    assert list(panels)[1] == dead
    assert list(panels)[2].startswith(safe)
    assert [panel.shape for panel in panels.values()] == [(3, 15), (3, 15), (3, 10)]
    row = next(
        row
        for row in found["splice"]
        if (row["plan"], row["measure"], row["component"], row["first"], row["last"])
        == (DEAD.name, "retrieval", "keys", 17, 17)
    )
    assert panels[dead][1, 2] == pytest.approx(100 * row["closed"]["mean"])


def test_whole_range_values_stand_beside_the_rows(found: dict[str, Any]) -> None:
    figure = figures(found)["splice-retrieval.png"]
    rows = [
        row
        for row in found["splice"]
        if (row["plan"], row["measure"]) == (DEAD.name, "retrieval")
        and (row["first"], row["last"]) == (15, 29)
        and row["component"] in ("all", "keys", "values")
    ]
    panel = next(a for a in figure.axes if a.get_title(loc="left").startswith(DEAD.name))
    texts = [text.get_text() for text in panel.texts]
    assert texts == ["all late layers"] + [f"{100 * r['closed']['mean']:.1f} %" for r in rows]


def test_a_layer_that_was_not_spliced_is_left_blank(found: dict[str, Any]) -> None:
    kept = [row for row in found["splice"] if (row["component"], row["first"]) != ("values", 20)]
    panels = images(figures({**found, "splice": kept})["splice-retrieval.png"])
    cells = next(iter(panels.values()))
    assert np.argwhere(np.ma.getmaskarray(cells)).tolist() == [[2, 5]]


def test_one_heat_map_for_every_measure() -> None:
    found = results(**FEW, by_layer=("loss", "retrieval"))
    assert set(figures(found)) == {"splice-loss.png", "splice-retrieval.png"}


def test_one_late_layer() -> None:
    last = Fill("last", 29, gap=0.3)
    assert set(plots.draw(results((last,), **FEW))) == ALL | {"splice-loss.png"}


def test_the_limit_is_drawn_at_distant_tokens() -> None:
    found = results(**FEW, limits=Limits(max_distant_loss=0.03))
    figure = plots._loss(found)
    (line,) = figure.axes[0].collections[-1].get_segments()
    assert line.tolist() == [[0.5, 3.0], [1.5, 3.0]]
