"""What attach cannot do is refused by name, before anything is computed wrongly."""

from typing import Any

import pytest
import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache, PreTrainedModel, StaticCache

from ridgefill.core.errors import RidgeFillError, UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.engines.transformers import Filler, attach, fit, identity_maps
from ridgefill.engines.transformers.compat import cache_name
from tests.engines.transformers.builders import left_padded, random_ids, random_maps, tiny_tokenizer
from tests.engines.transformers.families import SPLIT, build

LENGTH = 40


@pytest.fixture
def model(seed: int) -> PreTrainedModel:
    return build("llama", seed)


@pytest.fixture
def maps(model: PreTrainedModel) -> FillMaps:
    return random_maps(model)


def refused(model: PreTrainedModel, maps: FillMaps, match: str, **call: Any) -> None:
    """``model(**call)`` under attach raises UnsupportedError that says ``match``."""
    call.setdefault("input_ids", random_ids(1, LENGTH))
    call.setdefault("logits_to_keep", 1)
    with attach(model, maps), pytest.raises(UnsupportedError, match=match), torch.no_grad():
        model(**call)


@pytest.mark.parametrize("length", [4, LENGTH])
@pytest.mark.parametrize("name", ["labels", "output_hidden_states", "output_attentions"])
def test_outputs(model: PreTrainedModel, maps: FillMaps, name: str, length: int) -> None:
    """Refused on short prompts too, so that a call does not work by luck of its length."""
    ids = random_ids(1, length)
    refused(model, maps, name, input_ids=ids, **{name: ids if name == "labels" else True})


@pytest.mark.parametrize("name", ["output_hidden_states", "output_attentions"])
def test_outputs_of_generate(seed: int, name: str) -> None:
    model = build("llama", seed, attention="eager")
    with attach(model, random_maps(model)), pytest.raises(UnsupportedError, match=name):
        model.generate(
            random_ids(1, LENGTH),
            max_new_tokens=2,
            return_dict_in_generate=True,
            **{name: True},
        )


def test_false_outputs_are_fine(model: PreTrainedModel, maps: FillMaps) -> None:
    with attach(model, maps), torch.no_grad():
        model(
            random_ids(1, LENGTH),
            labels=None,
            output_hidden_states=False,
            output_attentions=False,
            logits_to_keep=1,
        )


def test_static_cache(model: PreTrainedModel, maps: FillMaps) -> None:
    with attach(model, maps), pytest.raises(UnsupportedError, match="StaticCache"):
        model.generate(random_ids(1, LENGTH), max_new_tokens=2, cache_implementation="static")
    cache = StaticCache(config=model.config, max_cache_len=64)
    refused(model, maps, "StaticCache", **{cache_name(model): cache})


def test_quantized_cache(model: PreTrainedModel, maps: FillMaps) -> None:
    """By the name of the class, without one of the backends it needs."""

    class QuantizedCache(Cache):
        pass

    cache = QuantizedCache(layers=DynamicCache(config=model.config).layers)
    refused(model, maps, "QuantizedCache", **{cache_name(model): cache})


def test_offloaded_cache(
    model: PreTrainedModel, maps: FillMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where torch was built for an accelerator that is not there and has no streams."""
    monkeypatch.setattr(torch, "Stream", object)
    cache = DynamicCache(config=model.config)
    cache.offloading = True
    refused(model, maps, "offloaded", **{cache_name(model): cache})
    with attach(model, maps), pytest.raises(UnsupportedError, match="offloaded"):
        model.generate(random_ids(1, LENGTH), max_new_tokens=2, cache_implementation="offloaded")


def test_subclass_and_other_caches(model: PreTrainedModel, maps: FillMaps) -> None:
    class PagedCache(DynamicCache):
        pass

    refused(model, maps, "PagedCache", **{cache_name(model): PagedCache(config=model.config)})
    both = EncoderDecoderCache(DynamicCache(), DynamicCache())
    refused(model, maps, "EncoderDecoderCache", **{cache_name(model): both})


def test_cache_of_unequal_layers(model: PreTrainedModel, maps: FillMaps) -> None:
    cache = DynamicCache(config=model.config)
    cache.update(torch.zeros(1, 2, 3, 16), torch.zeros(1, 2, 3, 16), 0)
    refused(model, maps, "different lengths", **{cache_name(model): cache})


def test_no_cache(model: PreTrainedModel, maps: FillMaps) -> None:
    refused(model, maps, "use_cache", use_cache=False)
    with attach(model, maps), pytest.raises(UnsupportedError, match="use_cache"):
        model.generate(random_ids(1, LENGTH), max_new_tokens=2, use_cache=False)


def test_masks_and_positions(model: PreTrainedModel, maps: FillMaps) -> None:
    four = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
    refused(model, maps, "4-D", attention_mask=four)
    refused(model, maps, "4-D", attention_mask={"full_attention": four})
    positions = torch.arange(LENGTH).expand(3, 1, LENGTH)
    refused(model, maps, "position_ids", position_ids=positions)


def test_right_padding(model: PreTrainedModel, maps: FillMaps) -> None:
    ids = random_ids(2, LENGTH)
    mask = torch.ones_like(ids)
    mask[1, -5:] = 0
    holes = torch.ones_like(ids)
    holes[0, 10:12] = 0
    for bad in (mask, holes):
        with attach(model, maps), pytest.raises(RidgeFillError, match="padding_side='left'"):
            model(ids, attention_mask=bad, logits_to_keep=1)


@pytest.mark.parametrize("call", [{}, {"logits_to_keep": 0}, {"logits_to_keep": torch.tensor([5])}])
def test_logits_of_every_row(model: PreTrainedModel, maps: FillMaps, call: dict[str, Any]) -> None:
    """Filled rows have none; a long prompt must say that it wants the last ones only."""
    with attach(model, maps), pytest.raises(UnsupportedError, match="logits"), torch.no_grad():
        model(random_ids(1, LENGTH), **call)


@pytest.mark.parametrize("call", ["fit", "Filler", "attach"])
@pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention"])
def test_attention_implementation(model: PreTrainedModel, name: str, call: str) -> None:
    maps = identity_maps(model, SPLIT)
    model.config._attn_implementation_internal = name
    check_refused(model, maps, call, name)


@pytest.mark.parametrize("call", ["fit", "Filler", "attach"])
@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_moving_rope(model: PreTrainedModel, name: str, call: str) -> None:
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_type": name}
    check_refused(model, identity_maps(model, SPLIT), call, name)


def check_refused(model: PreTrainedModel, maps: FillMaps, call: str, match: str) -> None:
    calls = {
        "fit": lambda: fit(model, tiny_tokenizer(), ["w3 w4 " * 500], window=64, progress=False),
        "Filler": lambda: Filler(model, maps),
        "attach": lambda: attach(model, maps).__enter__(),
    }
    with pytest.raises(UnsupportedError, match=match):
        calls[call]()
    assert not model._forward_pre_hooks


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        ({"tail": -1}, "tail"),
        ({"tail": 0}, "tail"),
        ({"sinks": -3}, "sinks"),
        ({"chosen": [4, 4]}, "ascending"),
        ({"chosen": [5, 4]}, "ascending"),
    ],
)
def test_bad_plans(
    model: PreTrainedModel, maps: FillMaps, plan: dict[str, Any], match: str
) -> None:
    with pytest.raises(RidgeFillError, match=match), attach(model, maps, **plan):
        pass
    assert not model._forward_pre_hooks


def test_chosen_rows_outside_a_prompt(model: PreTrainedModel, maps: FillMaps) -> None:
    """Refused by the call, and the cache that was passed in stays empty."""
    cache = DynamicCache(config=model.config)
    ids, mask = left_padded(3, LENGTH)
    for chosen, match in (([LENGTH], "outside"), ([[30], [0], []], "padding"), ([[1]] * 2, "2")):
        with (
            attach(model, maps, chosen=chosen),
            pytest.raises(RidgeFillError, match=match),
            torch.no_grad(),
        ):
            model(ids, attention_mask=mask, logits_to_keep=1, **{cache_name(model): cache})
        assert cache.get_seq_length() == 0


def test_prefill_arguments(model: PreTrainedModel, maps: FillMaps) -> None:
    filler = Filler(model, maps)
    ids = random_ids(1, LENGTH)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"input_ids": ids[0]}, "input_ids"),
        ({"input_ids": ids[:, :0]}, "input_ids"),
        ({"input_ids": ids, "attention_mask": torch.ones(1, LENGTH + 1)}, "attention_mask"),
        ({"input_ids": ids, "keep": 0}, "keep"),
        ({"input_ids": ids, "keep": 9}, "keep"),
    ]
    for call, match in bad:
        with pytest.raises(RidgeFillError, match=match):
            filler.prefill(**call)
    with pytest.raises(RidgeFillError, match="chunk_size"):
        Filler(model, maps, chunk_size=0)
    with pytest.raises(UnsupportedError, match="folded"):
        Filler(model, maps, fold=True)
