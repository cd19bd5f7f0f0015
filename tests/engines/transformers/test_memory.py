"""Memory does not grow with the text of a fit, nor beyond the cache with a filled prompt."""

import pytest
import torch
from transformers import PreTrainedModel

from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import Filler
from ridgefill.engines.transformers.fingerprint import fingerprint
from tests.engines.transformers.builders import random_ids, random_maps
from tests.engines.transformers.families import HIDDEN, LAYERS, build
from tests.engines.transformers.test_fit import fit_tiny, random_text
from tests.live_bytes import LiveBytes


def test_measure() -> None:
    """The measure itself: two living tensors count, a freed one and views do not."""
    with LiveBytes() as memory:
        kept = torch.zeros(1000, dtype=torch.uint8)
        freed = torch.ones(500, dtype=torch.uint8)
        del freed
        assert memory.live == 1000
        view = kept.view(10, 100)[3:]
        other = view + 1
        assert memory.live == 1000 + other.nbytes
    assert memory.peak == 1000 + max(500, other.nbytes)


@pytest.mark.parametrize("target", ["input", "normed"])
def test_fit_over_more_text(target: str, seed: int) -> None:
    """Four times the text, the same peak to the byte."""
    model, peaks = build("llama", seed), []
    fingerprint(model)  # remembered, so that it is not part of the first peak
    for documents in (5, 20):
        texts = random_text(documents)
        with LiveBytes().ignore(model) as memory:
            fit_tiny(model, texts, target=target)
        peaks.append(memory.peak)
    assert peaks[0] == peaks[1] > 0


CHUNK, TAIL, SHORT, LONG = 64, 32, 1024, 4096


def growth(model: PreTrainedModel, chunk: int) -> float:
    """Bytes per prompt token by which the peak of a prefill, less its cache, grows."""
    filler = Filler(model, random_maps(model), chunk_size=chunk)
    beyond = []
    for length in (SHORT, LONG):
        ids = random_ids(1, length)
        with LiveBytes().ignore(model) as memory:
            cache = filler.prefill(ids, plan=RowPlan(TAIL, sinks=4)).cache
        beyond.append(memory.peak - sum(part.keys.nbytes * 2 for part in cache.layers))
    return (beyond[1] - beyond[0]) / (LONG - SHORT)


@pytest.mark.parametrize("family", ["llama", "smollm3", "qwen3", "phi", "gpt_neox"])
def test_chunked_prefill(family: str, seed: int) -> None:
    """With chunks of a fixed size the peak grows by the cache and no activations.

    What is left per token is a layer's own attention, one layer at a time and as in a stock
    prefill: the copy that `DynamicLayer` makes when the tail is appended, keys and values repeated
    for the query heads, and one byte per row of a mask. In one chunk it is several times that.
    """
    model = build(family, seed)
    heads = model.config.num_attention_heads
    kv_heads = getattr(model.config, "num_key_value_heads", heads)
    one_layer = 2 * kv_heads * (HIDDEN // heads) * 4
    limit = one_layer * (1 + heads // kv_heads) + CHUNK + TAIL
    assert growth(model, CHUNK) <= limit
    assert growth(model, LONG) > 1.5 * limit


def test_chunked_prefill_with_windows(seed: int) -> None:
    """Sliding layers are held at full length while a prompt is filled: no more than that."""
    model = build("mistral", seed)
    one_layer = 2 * model.config.num_key_value_heads * model.config.head_dim * 4
    assert growth(model, CHUNK) <= LAYERS * one_layer + CHUNK + TAIL
