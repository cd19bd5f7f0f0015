"""Unchanged ``generate`` and pipelines fill under attach."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, pipeline

from ridgefill.core.errors import UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import Filler, attach
from ridgefill.engines.transformers.compat import cache_name
from tests.engines.transformers.builders import (
    left_padded,
    random_ids,
    random_maps,
    scattered,
    tiny_tokenizer,
    words,
)
from tests.engines.transformers.families import FAMILIES, NAMED, build
from tests.engines.transformers.reference import BruteForce

TAIL, SINKS = 8, 2


def setup(family: str, seed: int) -> tuple[PreTrainedModel, FillMaps]:
    """A fp64 model that never stops early, and random maps with a tail of 8 and 2 sinks."""
    model = build(family, seed, torch.float64)
    model.generation_config.eos_token_id = None
    return model, random_maps(model, tail=TAIL, sinks=SINKS)


def generate(model: PreTrainedModel, ids: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """New tokens ``[batch, new]`` and the logits ``[batch, new, vocab]`` behind them."""
    options = {"max_new_tokens": 6, "do_sample": False, **kwargs}
    out = model.generate(ids, return_dict_in_generate=True, output_logits=True, **options)
    return out.sequences[:, ids.shape[1] :], torch.stack(out.logits, dim=1)


def close(ours: Tensor, theirs: Tensor) -> None:
    """Equal to the rounding of fp32, in which ``generate`` returns logits."""
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_generate_is_prefill_and_decoding(family: str, seed: int) -> None:
    model, maps = setup(family, seed)
    ids = random_ids(2, 60)
    chosen = scattered(torch.ones_like(ids), 0.2, TAIL)
    with attach(model, maps, chosen=chosen):
        tokens, logits = generate(model, ids)
    cache, row = Filler(model, maps).prefill(ids, plan=RowPlan(TAIL, SINKS, chosen))
    for step in range(tokens.shape[1]):
        close(logits[:, step], row[:, -1])
        assert torch.equal(tokens[:, step], row[:, -1].argmax(-1))
        with torch.no_grad():
            row = model(tokens[:, step, None], **{cache_name(model): cache}).logits


@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_padded_batch_equals_each_prompt_alone(family: str, seed: int) -> None:
    """Unequal lengths, one of them within the tail."""
    model, maps = setup(family, seed)
    ids, mask = left_padded(4, 50)
    with attach(model, maps):
        tokens, logits = generate(model, ids, attention_mask=mask)
        for row in range(len(ids)):
            alone = generate(model, ids[row : row + 1, mask[row].bool()])
            assert torch.equal(alone[0][0], tokens[row])
            close(alone[1][0], logits[row])


def test_attach_overrides_the_default_plan(seed: int) -> None:
    model, maps = setup("llama", seed)
    ids = random_ids(1, 60)
    with attach(model, maps, tail=20, sinks=5):
        _, logits = generate(model, ids, max_new_tokens=1)
    expected = Filler(model, maps).prefill(ids, plan=RowPlan(20, 5)).logits
    close(logits, expected)
    other = Filler(model, maps).prefill(ids).logits
    assert not torch.allclose(logits, other.float(), atol=1e-4)


def test_beams(seed: int) -> None:
    """Beam search under attach takes the beams it takes from a filled cache."""
    model, maps = setup("llama", seed)
    ids = random_ids(2, 50)
    options: dict[str, Any] = {"num_beams": 2, "max_new_tokens": 6, "do_sample": False}
    scored = {"return_dict_in_generate": True, "output_scores": True}
    with attach(model, maps):
        ours = model.generate(ids, **options, **scored)
    cache = Filler(model, maps).prefill(ids[:, :-1], plan=RowPlan(TAIL - 1, SINKS)).cache
    cache.batch_repeat_interleave(2)
    theirs = model.generate(ids, **{cache_name(model): cache}, **options, **scored)
    assert torch.equal(ours.sequences, theirs.sequences)
    torch.testing.assert_close(ours.sequences_scores, theirs.sequences_scores)


def test_pipeline(seed: int) -> None:
    """A text-generation pipeline on strings, one of them padded, gives generate's text."""
    model, maps = setup("llama", seed)
    tokenizer = tiny_tokenizer()
    ids = random_ids(2, 40)
    texts = [words(ids[0]), words(ids[1, 10:])]
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer, batch_size=2)
    with attach(model, maps):
        made = pipe(texts, max_new_tokens=5, do_sample=False, return_full_text=False)
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        tokens, _ = generate(
            model, encoded["input_ids"], max_new_tokens=5, attention_mask=encoded["attention_mask"]
        )
    expected = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    assert [part[0]["generated_text"].split() for part in made] == [e.split() for e in expected]
    assert not torch.equal(
        tokens,
        generate(
            model, encoded["input_ids"], max_new_tokens=5, attention_mask=encoded["attention_mask"]
        )[0],
    )


@pytest.mark.parametrize("empty", ["none", "bare", "config"])
@pytest.mark.parametrize("family", [family.id for family in NAMED])
def test_turns_on_one_cache(family: str, empty: str, seed: int) -> None:
    """A second turn longer than the tail is filled again, without sinks; a third is exact."""
    model, maps = setup(family, seed)
    caches = {"none": None, "bare": DynamicCache(), "config": DynamicCache(config=model.config)}
    text, cache = random_ids(1, 0), caches[empty]
    exact = torch.zeros(0, dtype=torch.bool)
    with attach(model, maps):
        for turn, length in enumerate((40, 30, TAIL - 1)):
            text = torch.cat([text, random_ids(1, length)], dim=1)
            new = text.shape[1] - (0 if turn == 0 else cache.get_seq_length())
            mask = torch.arange(new) >= new - TAIL
            mask[: SINKS if turn == 0 else 0] = True
            exact = torch.cat([exact, mask])
            out = model.generate(
                text,
                attention_mask=torch.ones_like(text),  # decoded tokens may be the padding id
                **{cache_name(model): cache},
                max_new_tokens=3,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
            reference = BruteForce(model, maps, exact)
            for step, logits in enumerate(out.logits):
                expected = reference.logits(out.sequences[0, : text.shape[1] + step])
                close(logits[0], expected)
            cache, text = out.past_key_values, out.sequences
            decoded = cache.get_seq_length() - len(exact)
            exact = torch.cat([exact, torch.ones(decoded, dtype=torch.bool)])


@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
@pytest.mark.parametrize("length", [3, TAIL, TAIL + SINKS])
def test_prompt_with_nothing_to_fill_is_bit_equal(family: str, length: int, seed: int) -> None:
    """Not longer than sinks and tail: every token and logit is the stock model's, to the bit."""
    model = build(family, seed)
    maps = random_maps(model, tail=TAIL, sinks=SINKS)
    ids = random_ids(2, length)
    stock = generate(model, ids)
    with attach(model, maps):
        ours = generate(model, ids)
    assert torch.equal(ours[0], stock[0])
    assert torch.equal(ours[1], stock[1])


def test_embeddings_instead_of_ids(seed: int) -> None:
    model, maps = setup("llama", seed)
    ids, mask = left_padded(2, 50)
    embeds = model.get_input_embeddings()(ids).detach()
    with attach(model, maps):
        _, expected = generate(model, ids, attention_mask=mask)
        out = model.generate(
            inputs_embeds=embeds,
            attention_mask=mask,
            max_new_tokens=6,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    close(torch.stack(out.logits, dim=1), expected)


def test_stock_after_attach(seed: int) -> None:
    """Nothing stays behind: not on a normal end, and not when the block raises."""
    model, maps = setup("llama", seed)
    ids = random_ids(1, 60)
    stock = generate(model, ids)[1]
    with attach(model, maps) as same:
        assert same is model
        filled = generate(model, ids)[1]
    assert not torch.allclose(filled, stock, atol=1e-6)
    with pytest.raises(RuntimeError, match="inside"), attach(model, maps):
        raise RuntimeError("inside")
    with pytest.raises(UnsupportedError), attach(model, maps):
        model(ids, labels=ids)
    assert not model._forward_pre_hooks
    assert torch.equal(generate(model, ids)[1], stock)


def test_two_plans_at_once_are_refused(seed: int) -> None:
    """A second attach to the same model would fill twice; the first stays in force."""
    model, maps = setup("llama", seed)
    ids = random_ids(1, 60)
    with attach(model, maps):
        expected = generate(model, ids)[1]
        with pytest.raises(UnsupportedError, match="already"), attach(model, maps, tail=3):
            pass
        assert torch.equal(generate(model, ids)[1], expected)
    assert not model._forward_pre_hooks
