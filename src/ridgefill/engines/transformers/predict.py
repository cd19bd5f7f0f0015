"""Where the cache entries of filled rows come from: fitted maps, or an oracle."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ridgefill.core.errors import UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.engines.transformers.decoder import device_of
from ridgefill.engines.transformers.families import Family, ProjectedFamily
from ridgefill.engines.transformers.families.base import KeysValues, Layer


class Predictor(Protocol):
    """Predicts the cache entries of a late layer after the split."""

    sources: tuple[int, ...]
    folded: bool

    def keys_values(
        self,
        index: int,
        layer: Layer,
        sources: Tensor,
        columns: Tensor,
        kwargs: Mapping[str, Any],
    ) -> KeysValues:
        """Entries of layer ``index`` for the rows of ``sources`` ``[batch, rows, features]``.

        ``columns`` int64 ``[rows]`` are their columns in the prompt; ``kwargs`` what the decoder
        passes to the layer for them.
        """
        ...


class InputPredictor:
    """Maps with target ``input``, and identity maps: the layer's own norm and projections run."""

    folded = False

    def __init__(self, maps: FillMaps, family: Family) -> None:
        self.maps, self.family = maps, family
        self.sources = maps.config.sources

    def keys_values(
        self,
        index: int,
        layer: Layer,
        sources: Tensor,
        columns: Tensor,
        kwargs: Mapping[str, Any],
    ) -> KeysValues:
        return self.family.from_input(layer, self.maps.apply(index, sources), kwargs)


class NormedPredictor:
    """Maps with target ``normed``, run through the layer's own projections."""

    folded = False

    def __init__(self, maps: FillMaps, family: ProjectedFamily) -> None:
        self.maps, self.family = maps, family
        self.sources = maps.config.sources

    def keys_values(
        self,
        index: int,
        layer: Layer,
        sources: Tensor,
        columns: Tensor,
        kwargs: Mapping[str, Any],
    ) -> KeysValues:
        normed = self.maps.apply(index, sources)
        keys, values = (project(normed) for project in self.family.projections(layer))
        keys = self.maps.scale_keys(index, keys)
        return self.family.from_projected(layer, keys, values, kwargs)


class FoldedPredictor:
    """Maps with target ``normed`` folded through the projections: one small product per layer."""

    folded = True

    def __init__(self, maps: FillMaps, family: ProjectedFamily, layers: Sequence[Layer]) -> None:
        self.family = family
        self.sources = maps.config.sources
        self.products = {
            index: _fold_layer(maps, family, index, layers[index])
            for index in maps.config.mapped_layers
        }

    def keys_values(
        self,
        index: int,
        layer: Layer,
        sources: Tensor,
        columns: Tensor,
        kwargs: Mapping[str, Any],
    ) -> KeysValues:
        weight, bias, key_width = self.products[index]
        flat = sources.reshape(-1, sources.shape[-1]).to(weight.dtype)
        both = torch.addmm(bias, flat, weight).to(sources.dtype)
        both = both.view(*sources.shape[:-1], -1)
        keys, values = both[..., :key_width], both[..., key_width:]
        return self.family.from_projected(layer, keys, values, kwargs)


def _fold_layer(
    maps: FillMaps, family: ProjectedFamily, index: int, layer: Layer
) -> tuple[Tensor, Tensor, int]:
    """Key and value maps side by side, scaled: weight ``[features, out]``, bias, key width."""
    parts = [maps.fold(index, linear.weight, linear.bias) for linear in family.projections(layer)]
    (key_weight, key_bias), (value_weight, value_bias) = parts
    key_weight, key_bias = maps.scale_keys(index, key_weight), maps.scale_keys(index, key_bias)
    device = device_of(layer, key_weight.device)
    weight = torch.cat((key_weight, value_weight), dim=1).to(device)
    return weight, torch.cat((key_bias, value_bias)).to(device), key_weight.shape[1]


class OraclePredictor:
    """Feeds the true layer inputs, so that a fill must give the stock cache. For checks only.

    Args:
        inputs: per late layer, its input on the whole prompt ``[batch, seq, hidden]``.
        family: the model's family.
    """

    folded = False

    def __init__(self, inputs: Mapping[int, Tensor], family: Family, sources: Sequence[int]):
        self.inputs, self.family, self.sources = inputs, family, tuple(sources)

    def keys_values(
        self,
        index: int,
        layer: Layer,
        sources: Tensor,
        columns: Tensor,
        kwargs: Mapping[str, Any],
    ) -> KeysValues:
        hidden = self.inputs[index].index_select(1, columns.to(self.inputs[index].device))
        return self.family.from_input(layer, hidden, kwargs)


def predictor_of(
    maps: FillMaps, family: Family, layers: Sequence[Layer], fold: bool | None
) -> Predictor:
    """The predictor for ``maps``; ``fold=None`` folds where the weights allow it."""
    device_maps = maps.to(device=device_of(layers[maps.config.split], torch.device("cpu")))
    if maps.config.target == "input":
        if fold:
            raise UnsupportedError("maps with target 'input' cannot be folded: pass fold=None")
        return InputPredictor(device_maps, family)
    if not isinstance(family, ProjectedFamily):
        raise UnsupportedError(
            f"the {family.name} family fills from target 'input' only: fit with target='input'"
        )
    foldable = all(
        _is_plain_linear(linear)
        for index in maps.config.mapped_layers
        for linear in family.projections(layers[index])
    )
    if fold and not foldable:
        raise UnsupportedError(
            "quantised or offloaded projections cannot be folded: pass fold=None"
        )
    if fold is False or not foldable:
        return NormedPredictor(device_maps, family)
    return FoldedPredictor(device_maps, family, layers)


def _is_plain_linear(module: nn.Module) -> bool:
    if type(module) is not nn.Linear:
        return False
    return module.weight.is_floating_point() and module.weight.device.type != "meta"
