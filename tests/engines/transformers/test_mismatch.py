"""Maps fill only the model they were fitted on, and models that cannot be filled say so."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from ridgefill.core.errors import ModelMismatchError, RidgeFillError, UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.engines.transformers import Filler, attach, identity_maps, prefill
from ridgefill.engines.transformers.calibrate import Collector, FitOptions
from ridgefill.engines.transformers.fingerprint import fingerprint
from tests.engines.transformers.builders import random_ids, random_maps
from tests.engines.transformers.families import FAMILIES, LAYERS, SPLIT, Family, build

Entry = Callable[[PreTrainedModel, FillMaps], Any]


def enter_attach(model: PreTrainedModel, maps: FillMaps) -> None:
    with contextlib.suppress(StopIteration), attach(model, maps):
        pass


ENTRIES: dict[str, Entry] = {
    "Filler": Filler,
    "attach": enter_attach,
    "prefill": lambda model, maps: prefill(model, maps, random_ids(1, 40)),
}
entries = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


def refused(model: PreTrainedModel, maps: FillMaps, entry: Entry, match: str) -> None:
    with pytest.raises(ModelMismatchError, match=match):
        entry(model, maps)
    assert not model._forward_pre_hooks


@entries
def test_another_architecture(entry: Entry, seed: int) -> None:
    """Both models are named."""
    maps = random_maps(build("llama", seed))
    refused(build("qwen3", seed), maps, entry, "'llama'.*'qwen3'.*architecture")


@entries
def test_other_weights(entry: Entry, seed: int) -> None:
    refused(build("llama", seed + 1), random_maps(build("llama", seed)), entry, "other weights")


@entries
def test_another_revision(entry: Entry, seed: int) -> None:
    model = build("llama", seed)
    model.config._commit_hash = "aaaa"
    maps = random_maps(model)
    entry(model, maps)
    other = build("llama", seed)
    other.config._commit_hash = "bbbb"
    refused(other, maps, entry, "'aaaa'.*'bbbb'")
    unknown = build("llama", seed)
    entry(unknown, maps)  # a local copy: its weights tell


@entries
@pytest.mark.parametrize(
    "name",
    [
        "embed_tokens.weight",
        "layers.0.input_layernorm.weight",
        f"layers.{LAYERS - 1}.mlp.down_proj.weight",
        f"layers.{SPLIT + 1}.self_attn.k_proj.weight",
    ],
)
def test_one_edited_element(entry: Entry, name: str, seed: int) -> None:
    """Seen even after the model's fingerprint was taken and remembered; undone, it is fine."""
    model = build("llama", seed)
    maps = random_maps(model)
    entry(model, maps)
    weight = model.get_decoder().get_parameter(name).view(-1)
    place = int(torch.randint(len(weight), ()))
    kept = weight[place].clone()
    with torch.no_grad():
        weight[place] += 0.05
    refused(model, maps, entry, "other weights")
    with torch.no_grad():
        weight[place] = kept
    entry(model, maps)


def test_swapped_elements(seed: int) -> None:
    """The same values in another order are other weights."""
    model = build("llama", seed)
    maps = random_maps(model)
    weight = model.get_decoder().layers[3].self_attn.v_proj.weight
    with torch.no_grad():
        weight[:2] = weight[:2].flip(0).clone()
    refused(model, maps, Filler, "other weights")


@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_one_checkpoint_in_two_dtypes(family: str, seed: int) -> None:
    """A bf16 checkpoint loaded in bf16, fp32 and fp64 is one model; so is its rounded source."""
    half = build(family, seed, torch.bfloat16)
    weights = fingerprint(half).weights
    assert fingerprint(build(family, seed, torch.bfloat16).float()).weights == weights
    assert fingerprint(build(family, seed, torch.bfloat16).double()).weights == weights
    assert fingerprint(build(family, seed)).weights == weights
    assert fingerprint(build(family, seed + 1)).weights != weights


def test_bf16_maps_fill_an_fp32_copy(seed: int) -> None:
    maps = identity_maps(build("llama", seed, torch.bfloat16), SPLIT)
    Filler(build("llama", seed, torch.bfloat16).float(), maps).prefill(random_ids(1, 300))


def test_strict_false(seed: int) -> None:
    """Other weights and revisions are let through, another architecture never is."""
    model = build("llama", seed)
    model.config._commit_hash = "aaaa"
    maps = random_maps(model)
    other = build("llama", seed + 1)
    other.config._commit_hash = "bbbb"
    logits = Filler(other, maps, strict=False).prefill(random_ids(1, 40)).logits
    assert torch.isfinite(logits).all()
    prefill(other, maps, random_ids(1, 40), strict=False)
    with attach(other, maps, strict=False):
        assert other._forward_pre_hooks
    with pytest.raises(ModelMismatchError, match="architecture"):
        Filler(build("mistral", seed), maps, strict=False)


class MixingLayer(LlamaDecoderLayer):
    """Subtracts the mean over rows first, so its keys are no function of its own row's input."""

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(hidden_states - hidden_states.mean(1, True), *args, **kwargs)


class DriftingLayer(LlamaDecoderLayer):
    """Adds something that depends on the place in the call."""

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        place = torch.arange(hidden_states.shape[1])[None, :, None]
        return super().forward(hidden_states + 0.05 * place, *args, **kwargs)


@pytest.mark.parametrize("layer", [MixingLayer, DriftingLayer])
@pytest.mark.parametrize("place", [SPLIT, SPLIT + 1, LAYERS - 1])
def test_self_check_of_generic_models(
    place: int, layer: type[LlamaDecoderLayer], seed: int
) -> None:
    """A layer that reads more than its own row fails the oracle check, by the model's name."""
    model = build("llama", seed)
    model.config.model_type = "odd_llama"
    maps = identity_maps(model, SPLIT)
    Filler(model, maps)  # as a generic model it is fine
    model.get_decoder().layers[place].__class__ = layer
    with pytest.raises(UnsupportedError, match=r"'odd_llama'.*family module"):
        Filler(model, maps)
    with pytest.raises(UnsupportedError, match=r"'odd_llama'.*family module"):
        Collector(model, FitOptions(split=SPLIT))  # before a fit reads any text
    assert not any(module._forward_pre_hooks for module in model.modules())


REFUSED = {
    "gpt2": lambda: hf.GPT2Config(n_embd=64, n_layer=LAYERS, n_head=4, vocab_size=101),
    "mamba": lambda: hf.MambaConfig(hidden_size=64, num_hidden_layers=LAYERS, vocab_size=101),
    "bloom": lambda: hf.BloomConfig(hidden_size=64, n_layer=LAYERS, n_head=4, vocab_size=101),
    "bert": lambda: hf.BertConfig(
        hidden_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, is_decoder=True
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_kinds_of_model(kind: str, seed: int) -> None:
    """Refused by name, with no trace left on the model."""
    model = build(Family(kind, REFUSED[kind]), seed, attention="eager")
    with pytest.raises(UnsupportedError, match="(?i)" + kind):
        Filler(model, identity_maps(model, SPLIT))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_model_without_language_head(seed: int) -> None:
    model = build("llama", seed)
    with pytest.raises(RidgeFillError, match="AutoModelForCausalLM"):
        identity_maps(torch.nn.Linear(3, 3), SPLIT)  # type: ignore[arg-type]
    with pytest.raises(RidgeFillError, match="out of range"):
        identity_maps(model, LAYERS - 1)
