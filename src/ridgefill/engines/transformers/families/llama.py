"""Llama, Mistral and SmolLM3."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ridgefill.engines.transformers.families.base import Layer, ProjectedFamily


class Llama(ProjectedFamily):
    name = "llama"
    model_types = frozenset({"llama", "mistral"})


class SmolLM3(ProjectedFamily):
    """As Llama, but some layers have no positional encoding."""

    name = "smollm3"
    model_types = frozenset({"smollm3"})

    def finish_keys(self, layer: Layer, keys: Tensor, kwargs: Mapping[str, Any]) -> Tensor:
        if layer.self_attn.use_rope:
            return super().finish_keys(layer, keys, kwargs)
        return keys.transpose(1, 2)
