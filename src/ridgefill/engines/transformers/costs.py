"""What a transformers model's layers cost, read from its modules; see `ridgefill.core.cost`."""

from collections.abc import Iterable

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from ridgefill.core.cost import LayerCost, ModelCost
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.decoder import Decoder
from ridgefill.engines.transformers.families import Family, ProjectedFamily, family_of


def model_cost(model: PreTrainedModel) -> ModelCost:
    """Multiply-adds of a dense decoder with one row of logits."""
    decoder = Decoder(model)
    config, family = decoder.config, family_of(decoder.config)
    caches = DynamicCache(config=config).layers
    layers = tuple(
        _layer_cost(layer, config, family, getattr(cache, "sliding_window", None))
        for layer, cache in zip(decoder.layers, caches, strict=True)
    )
    return ModelCost(layers, logits=config.hidden_size * config.vocab_size)


def _layer_cost(layer: nn.Module, config, family: Family, window: int | None) -> LayerCost:  # type: ignore[no-untyped-def]
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if isinstance(family, ProjectedFamily):
        write = _linear(family.projections(layer))
    else:
        write = 2 * config.hidden_size * kv_heads * head
    return LayerCost(
        row=_linear(layer.modules()),
        write=write,
        pair=2 * config.num_attention_heads * head,
        window=window,
    )


def _linear(modules: Iterable[nn.Module]) -> int:
    """Multiply-adds per row of the linear modules among ``modules``."""
    return sum(
        module.in_features * module.out_features  # type: ignore[operator, misc]
        for module in modules
        if hasattr(module, "in_features") and hasattr(module, "out_features")
    )


def fill_costs(cost: ModelCost, maps: FillMaps, folded: bool) -> list[int]:
    """Per layer after the split, multiply-adds of filling one row under ``maps``."""
    config = maps.config
    writes = [cost.layers[index].write for index in config.mapped_layers]
    if maps.is_identity:
        return writes
    if folded:
        return [write * len(config.sources) for write in writes]
    return [config.features * config.hidden_size + write for write in writes]


def ideal_speedup(
    cost: ModelCost, maps: FillMaps, folded: bool, plan: RowPlan, length: int
) -> float:
    """The ideal prefill speed-up of one unpadded prompt of ``length`` tokens."""
    exact = plan.exact_mask(torch.ones(1, length, dtype=torch.bool))[0]
    if bool(exact.all()):
        return 1.0
    fill = fill_costs(cost, maps, folded)
    return cost.ideal(exact, maps.config.split, fill, min(plan.tail, length))
