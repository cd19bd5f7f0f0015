"""Small random fill maps of no model in particular."""

from typing import Any

import torch

from ridgefill.core.maps import BaseModel, FillMaps, MapsConfig

HIDDEN, KV_HEADS, LAYERS, SPLIT = 8, 2, 6, 2
MAPPED = range(SPLIT + 1, LAYERS)
BASE = BaseModel("org/base", "abc", "config", "weights")


def config(target: str = "input", **values: Any) -> MapsConfig:
    defaults: dict[str, Any] = {
        "sources": (SPLIT, 0),
        "tail": 77,
        "sinks": 3,
        "provenance": {
            "held_out_r2": {str(layer): 0.5 + layer / 100 for layer in MAPPED},
            "rows": {"train": 100, "held_out": 10},
        },
    }
    return MapsConfig(BASE, SPLIT, LAYERS, HIDDEN, target=target, **{**defaults, **values})


def random_maps(target: str = "input", key_scale: bool = False, **values: Any) -> FillMaps:
    described = config(target, **values)
    rows = len(MAPPED)
    return FillMaps(
        described,
        torch.randn(rows, described.features, HIDDEN),
        torch.randn(rows, HIDDEN),
        torch.rand(rows, KV_HEADS) if key_scale else None,
    )
