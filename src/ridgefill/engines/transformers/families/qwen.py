"""Qwen2 (biased projections) and Qwen3 (key norm)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ridgefill.engines.transformers.families.base import Layer, ProjectedFamily


class Qwen2(ProjectedFamily):
    name = "qwen2"
    model_types = frozenset({"qwen2"})


class Qwen3(ProjectedFamily):
    name = "qwen3"
    model_types = frozenset({"qwen3"})

    def has_key_norm(self, layer: Layer) -> bool:
        return True

    def finish_keys(self, layer: Layer, keys: Tensor, kwargs: Mapping[str, Any]) -> Tensor:
        return super().finish_keys(layer, layer.self_attn.k_norm(keys), kwargs)
