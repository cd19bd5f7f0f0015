"""The families that every parametrised test runs on: one row each, tiny and random."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from transformers import PretrainedConfig, PreTrainedModel

VOCAB, HIDDEN, LAYERS, SPLIT = 101, 64, 5, 2

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}


@dataclass(frozen=True)
class Family:
    """A row of the matrix. ``named`` families have a fast path, the others use the generic one."""

    id: str
    config: Callable[[], PretrainedConfig]
    named: bool = False


FAMILIES = (
    Family("llama", lambda: hf.LlamaConfig(**_GROUPED, head_dim=16), named=True),
    Family(
        "mistral",
        lambda: hf.MistralConfig(**_GROUPED, head_dim=16, sliding_window=20),
        named=True,
    ),
    Family(
        "smollm3",
        lambda: hf.SmolLM3Config(**_GROUPED, no_rope_layer_interval=2),
        named=True,
    ),
    Family(
        "qwen2",
        lambda: hf.Qwen2Config(
            **_GROUPED, use_sliding_window=True, sliding_window=16, max_window_layers=3
        ),
        named=True,
    ),
    Family("qwen3", lambda: hf.Qwen3Config(**_GROUPED, head_dim=16), named=True),
    Family("phi", lambda: hf.PhiConfig(**_SIZES)),
    Family("olmo", lambda: hf.OlmoConfig(**_GROUPED)),
    Family("phi3", lambda: hf.Phi3Config(**_GROUPED)),
    Family("gpt_neox", lambda: hf.GPTNeoXConfig(**_SIZES)),
    Family("cohere", lambda: hf.CohereConfig(**_GROUPED)),
    Family("stablelm", lambda: hf.StableLmConfig(**_GROUPED)),
    Family("olmo2", lambda: hf.Olmo2Config(**_GROUPED)),
)
NAMED = tuple(family for family in FAMILIES if family.named)
BY_ID = {family.id: family for family in FAMILIES}


def build(
    family: str | Family,
    seed: int,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
) -> PreTrainedModel:
    """A model with random weights. Every parameter is moved, so that no norm is 1, no bias 0."""
    row = BY_ID[family] if isinstance(family, str) else family
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = hf.AutoModelForCausalLM.from_config(row.config(), attn_implementation=attention)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.to(dtype).eval()
