"""A filled model computed by brute force: no cache, no chunks, the whole sequence every time.

Written from the method's description, with its own norms, rotary embedding and attention. Of the
model it uses the weights and the rotary module's cosines and sines.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ridgefill.core.maps import FillMaps


class BruteForce:
    """Logits of one unpadded sequence whose rows ``exact`` bool ``[prompt]`` run every layer.

    Rows past the prompt are decoded tokens, which are exact too.
    """

    def __init__(self, model: PreTrainedModel, maps: FillMaps, exact: Tensor) -> None:
        self.model, self.decoder = model, model.get_decoder()
        self.maps, self.exact = maps, exact

    @torch.no_grad()
    def logits(self, ids: Tensor) -> Tensor:
        """``[vocab]`` after the last of ``ids`` ``[seq]``."""
        config = self.maps.config
        hidden = self.decoder.embed_tokens(ids[None])[0]
        rotary = self.decoder.rotary_emb(hidden[None], torch.arange(len(ids))[None])
        rotary = tuple(part[0] for part in rotary)
        exact = torch.cat([self.exact, torch.ones(len(ids) - len(self.exact), dtype=torch.bool)])
        states = {}
        for index, layer in enumerate(self.decoder.layers):
            states[index] = hidden
            entry = rms_norm(layer.input_layernorm, hidden)
            keys, values = project(layer, entry)
            if index > config.split:
                sources = torch.cat([states[source] for source in config.sources], dim=-1)
                predicted = self.predict(index, layer, sources)
                keys, values = (
                    torch.where(exact[:, None], true, filled)
                    for true, filled in zip((keys, values), predicted, strict=True)
                )
            hidden = self.run(index, layer, hidden, entry, keys, values, rotary)
            if index >= config.split:
                hidden = hidden.masked_fill(~exact[:, None], float("nan"))  # nobody may read it
        return self.model.lm_head(rms_norm(self.decoder.norm, hidden[-1]))

    def predict(self, index: int, layer: nn.Module, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Projected keys and values of every row, from the map."""
        maps, row = self.maps, index - self.maps.config.split - 1
        if maps.is_identity:
            predicted = sources
        else:
            predicted = sources @ maps.weight[row] + maps.bias[row]
        if maps.config.target == "input":
            predicted = rms_norm(layer.input_layernorm, predicted)
        keys, values = project(layer, predicted)
        if maps.key_scale is not None:
            heads = keys.unflatten(-1, (maps.key_scale.shape[1], -1))
            keys = (heads * maps.key_scale[row][None, :, None]).flatten(1)
        return keys, values

    def run(
        self,
        index: int,
        layer: nn.Module,
        hidden: Tensor,
        entry: Tensor,
        keys: Tensor,
        values: Tensor,
        rotary: tuple[Tensor, Tensor],
    ) -> Tensor:
        """The layer's output for every row; queries from ``entry``, keys and values as given."""
        attention = layer.self_attn
        width = attention.head_dim
        query = attention.q_proj(entry).unflatten(-1, (-1, width)).transpose(0, 1)
        keys = keys.unflatten(-1, (-1, width)).transpose(0, 1)
        values = values.unflatten(-1, (-1, width)).transpose(0, 1)
        if hasattr(attention, "q_norm"):
            query, keys = rms_norm(attention.q_norm, query), rms_norm(attention.k_norm, keys)
        if getattr(attention, "use_rope", True):
            query, keys = rotate(query, *rotary), rotate(keys, *rotary)
        groups = len(query) // len(keys)
        keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
        scores = query @ keys.transpose(1, 2) / width**0.5
        scores = scores.masked_fill(~self.visible(index, len(hidden)), float("-inf"))
        mixed = (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)
        hidden = hidden + attention.o_proj(mixed)
        return hidden + layer.mlp(rms_norm(layer.post_attention_layernorm, hidden))

    def visible(self, index: int, length: int) -> Tensor:
        """Bool ``[queries, keys]``: causal, within the layer's window."""
        config = self.model.config
        kinds = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None)
        if kinds is not None and kinds[index] != "sliding_attention":
            window = None
        distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        seen = distance >= 0
        return seen if window is None else seen & (distance < window)


def project(layer: nn.Module, entry: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values ``[rows, kv_heads * head_dim]`` of normed rows."""
    return layer.self_attn.k_proj(entry), layer.self_attn.v_proj(entry)


def rms_norm(norm: nn.Module, states: Tensor) -> Tensor:
    """As the model's norms, which compute in fp32 whatever the model's dtype."""
    wide = states.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.variance_epsilon)
    return norm.weight * (wide * scale).to(states.dtype)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of ``[heads, rows, width]``, pair ``(i, i + width / 2)`` by an angle."""
    half = states.shape[-1] // 2
    a, b = states[..., :half], states[..., half:]
    cos, sin = cos[:, :half], sin[:, :half]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
