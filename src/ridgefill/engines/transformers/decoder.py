"""Where a model's decoder layers are, and running the stack with some of them replaced."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ridgefill.core.errors import UnsupportedError

ATTENTION = ("sdpa", "eager")
"""Attention implementations whose masks can express exact rows anywhere in the prompt."""

_MOVING_ROPE = ("dynamic", "longrope")


class Decoder:
    """The decoder stack of a causal language model.

    Raises UnsupportedError when the stack cannot be found or the model attends in a way that
    cannot be filled.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        get_decoder = getattr(model, "get_decoder", None)
        if get_decoder is None:
            raise UnsupportedError(
                f"{type(model).__name__} has no decoder: load it with AutoModelForCausalLM"
            )
        self.module: nn.Module = get_decoder()
        self.config = model.config.get_text_config(decoder=True)
        self.layers_name = _layers_name(self.module, self.config.num_hidden_layers)

    @property
    def layers(self) -> Sequence[nn.Module]:
        return list(getattr(self.module, self.layers_name))

    def check_can_fill(self) -> None:
        """Raise UnsupportedError for what makes a fill wrong or impossible on this model."""
        attention = self.config._attn_implementation
        if attention not in ATTENTION:
            raise UnsupportedError(
                f"attention implementation {attention!r} cannot run scattered exact rows: load "
                f"the model with attn_implementation set to one of {ATTENTION}"
            )
        rope = getattr(self.config, "rope_parameters", None) or {}
        if rope.get("rope_type") in _MOVING_ROPE:
            raise UnsupportedError(
                f"rope_type {rope['rope_type']!r} changes with the prompt's length, so rows of "
                "one prompt would disagree: use a fixed scaling such as 'yarn' or 'llama3'"
            )

    def with_layers(self, layers: Sequence[nn.Module]) -> nn.Module:
        """The stack with other layers, sharing everything else; the model is not touched."""
        shell = copy.copy(self.module)
        shell._modules = {**self.module._modules, self.layers_name: nn.ModuleList(layers)}
        # A dispatched model (device_map) carries a forward bound to the original module.
        for name in ("forward", "_old_forward", "_hf_hook"):
            shell.__dict__.pop(name, None)
        return shell


def _layers_name(module: nn.Module, count: int) -> str:
    names = [
        name
        for name, child in module.named_children()
        if isinstance(child, nn.ModuleList) and len(child) == count
    ]
    if len(names) != 1:
        raise UnsupportedError(
            f"{type(module).__name__} has no single list of {count} decoder layers: ridgefill "
            "cannot tell where its layers are"
        )
    return names[0]


class Wrapper(nn.Module):
    """Stands in for a decoder layer; unknown attributes come from the layer itself."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


class Tap(Wrapper):
    """Runs a layer and keeps its input ``[batch, rows, hidden]`` in ``states[index]``."""

    def __init__(self, layer: nn.Module, index: int, states: dict[int, Tensor]) -> None:
        super().__init__(layer)
        self.index, self.states = index, states

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.states[self.index] = hidden
        return self.layer(hidden, *args, **kwargs)


def device_of(module: nn.Module, fallback: torch.device) -> torch.device:
    """Where a module computes; ``fallback`` when its weights are offloaded."""
    parameter = next(module.parameters(), None)
    if parameter is None or parameter.device.type == "meta":
        return fallback
    return parameter.device
