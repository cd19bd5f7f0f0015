"""The family contract: how a filled row of a layer becomes cache entries.

A family names the ``model_types`` it serves and turns what a map predicts into the layer's keys
and values, by calling the layer's own modules. `Family` is the whole contract; families whose
layers have separate key and value projections derive from `ProjectedFamily` and usually state no
more than their model types. Exact rows need nothing from a family: they run the layer itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

Layer = Any
"""A decoder layer of some architecture: an ``nn.Module`` whose submodules its family knows."""

KeysValues = tuple[Tensor, Tensor]
"""Keys and values as the cache holds them, each ``[batch, kv_heads, rows, head_dim]``."""


class Family(ABC):
    """Fills the cache of one kind of decoder layer.

    ``kwargs`` are the keyword arguments the decoder stack passes to the layer, cut to the rows:
    ``position_embeddings``, ``position_ids`` and so on. ``targets`` are those of the maps it can
    fill from, the preferred one last.
    """

    name: ClassVar[str]
    model_types: ClassVar[frozenset[str]] = frozenset()
    targets: ClassVar[tuple[str, ...]] = ("input",)
    needs_self_check: ClassVar[bool] = False

    @abstractmethod
    def from_input(self, layer: Layer, hidden: Tensor, kwargs: Mapping[str, Any]) -> KeysValues:
        """Keys and values from the layer's input ``hidden`` ``[batch, rows, hidden]``."""


class ProjectedFamily(Family):
    """Pre-norm layers with ``input_layernorm`` and ``self_attn.k_proj`` / ``v_proj``.

    Filled rows run the norm, the two projections, the key norm where there is one, and RoPE; never
    q, attention, the output projection or the MLP.
    """

    targets = ("input", "normed")

    def norm(self, layer: Layer, hidden: Tensor) -> Tensor:
        """The layer's input norm."""
        return layer.input_layernorm(hidden)

    def projections(self, layer: Layer) -> tuple[Any, Any]:
        """The modules that turn normed rows into keys and values."""
        return layer.self_attn.k_proj, layer.self_attn.v_proj

    def has_key_norm(self, layer: Layer) -> bool:
        """Whether keys are normalised after projection, so that their scale does not matter."""
        return False

    def finish_keys(self, layer: Layer, keys: Tensor, kwargs: Mapping[str, Any]) -> Tensor:
        """Key norm and rotary embedding of ``keys`` ``[batch, rows, kv_heads, head_dim]``.

        Returns ``[batch, kv_heads, rows, head_dim]``.
        """
        return rotate(keys.transpose(1, 2), kwargs["position_embeddings"])

    def from_input(self, layer: Layer, hidden: Tensor, kwargs: Mapping[str, Any]) -> KeysValues:
        key_proj, value_proj = self.projections(layer)
        normed = self.norm(layer, hidden)
        return self.from_projected(layer, key_proj(normed), value_proj(normed), kwargs)

    def from_projected(
        self, layer: Layer, keys: Tensor, values: Tensor, kwargs: Mapping[str, Any]
    ) -> KeysValues:
        """Keys and values from projected rows, each ``[batch, rows, kv_heads * head_dim]``."""
        batch, rows = keys.shape[:2]
        heads = (batch, rows, -1, layer.self_attn.head_dim)
        finished = self.finish_keys(layer, keys.view(heads), kwargs)
        return finished, values.view(heads).transpose(1, 2)


def rotate(states: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding (RoFormer, half-split layout) of ``[batch, heads, rows, head_dim]``.

    cos and sin are ``[batch, rows, head_dim]`` as the decoder's own rotary module returns them.
    """
    cos, sin = (part.unsqueeze(1) for part in position_embeddings)
    first, second = states.chunk(2, dim=-1)
    half = states.new_empty(states.shape)
    half[..., : first.shape[-1]] = -second
    half[..., first.shape[-1] :] = first
    return states * cos + half * sin
