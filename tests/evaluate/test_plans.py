"""Plans from files and options."""

import json
from pathlib import Path
from typing import Any

import pytest

from ridgefill.core.errors import RidgeFillError
from ridgefill.engines.transformers import identity_maps
from ridgefill.evaluate.plans import (
    PlanSpec,
    build_methods,
    filled_mask,
    plans_of_maps,
    read_plans,
)
from tests.engines.transformers.builders import random_maps
from tests.engines.transformers.families import SPLIT, build


def write(folder: Path, plans: Any) -> Path:
    path = folder / "plans.json"
    path.write_text(plans if isinstance(plans, str) else json.dumps(plans))
    return path


def test_plans_of_a_file(seed: int, tmp_path: Path) -> None:
    model = build("llama", seed)
    random_maps(model, tail=9, sinks=1).save_pretrained(tmp_path / "maps")
    listed = [
        {"name": "ridge", "maps": "maps"},
        {"name": "longer", "maps": "maps", "tail": 20, "every": 4},
        {"name": "baseline", "split": SPLIT, "sinks": 0},
        {"name": "stock", "fill": "exact"},
    ]
    specs = read_plans(write(tmp_path, listed))
    assert [spec.name for spec in specs] == ["stock", "ridge", "longer", "baseline"]
    exact, ridge, longer, baseline = build_methods(
        specs, lambda split: identity_maps(model, split), sinks=3
    )
    assert exact.maps is None
    assert exact.plan is None
    assert ridge.plan is not None
    assert (ridge.plan.tail, ridge.plan.sinks) == (9, 3)
    assert longer.plan is not None
    assert (longer.plan.tail, longer.plan.every) == (20, 4)
    assert baseline.maps is not None
    assert baseline.maps.is_identity
    assert baseline.plan is not None
    assert baseline.plan.sinks == 0
    assert filled_mask(longer, 40).nonzero()[:, 0].tolist() == [
        row for row in range(3, 20) if (row + 1) % 4
    ]
    assert not filled_mask(exact, 40).any()


def test_exact_comes_first_and_is_added() -> None:
    specs = plans_of_maps(["a/x", "b/y", "c/y"], {"a/x": 4, "b/y": 4, "c/y": 6})
    assert [spec.name for spec in specs] == [
        "exact",
        "identity s=4",
        "identity s=6",
        "x",
        "b/y",
        "c/y",
    ]


@pytest.mark.parametrize(
    ("plans", "says"),
    [
        ("{", "no JSON file of plans"),
        ({"name": "x"}, "must hold a list"),
        ([], "must hold a list"),
        ([{"maps": "x"}], "give an object with a 'name'"),
        ([{"name": "x", "maps": "x", "tails": 3}], "plan 'x' has an unknown field 'tails'"),
        ([{"name": "x", "maps": "x", "tail": "3"}], "tail must be a whole number, got '3'"),
        ([{"name": "x", "fill": "ridge"}], "plan 'x': fill 'ridge' needs 'maps'"),
        ([{"name": "x", "fill": "exact", "maps": "m"}], "fill 'exact' takes no 'maps'"),
        ([{"name": "x", "fill": "linear"}], "got 'linear'"),
        ([{"name": "x"}], "every plan is exact"),
        ([{"name": "x", "split": 2}, {"name": "x", "split": 3}], "two plans are named 'x'"),
        ([{"name": "a"}, {"name": "b"}, {"name": "c", "split": 2}], "'a' and 'b' are both exact"),
        ([{"name": "exact", "split": 2}], "a fill is named 'exact'"),
    ],
)
def test_refusals(plans: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(RidgeFillError, match=says):
        read_plans(write(tmp_path, plans))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RidgeFillError, match=r"plans\.json is no JSON file"):
        read_plans(tmp_path / "plans.json")


def test_another_split_than_the_maps_is_refused(seed: int, tmp_path: Path) -> None:
    model = build("llama", seed)
    random_maps(model).save_pretrained(tmp_path / "maps")
    spec = PlanSpec("x", "ridge", maps=str(tmp_path / "maps"), split=SPLIT + 1)
    with pytest.raises(RidgeFillError, match=f"names split {SPLIT + 1}, but .* at {SPLIT}"):
        build_methods([spec], lambda split: identity_maps(model, split))
