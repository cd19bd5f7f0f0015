"""Models under a device map, offloaded or quantised fit and fill as plain ones do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ridgefill.core.errors import ModelMismatchError, UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import Filler, attach
from ridgefill.engines.transformers.predict import FoldedPredictor, NormedPredictor
from tests.engines.transformers.builders import left_padded, random_ids, random_maps
from tests.engines.transformers.families import LAYERS, SPLIT, build
from tests.engines.transformers.reference import BruteForce
from tests.engines.transformers.test_fit import fit_tiny, random_text

FAMILIES = ("llama", "qwen2", "phi")


def placed(model: PreTrainedModel, folder: Path, device_map: Any) -> PreTrainedModel:
    """The same weights loaded under a device map, layers on ``disk`` in files below ``folder``."""
    model.save_pretrained(folder / "model")
    return AutoModelForCausalLM.from_pretrained(
        folder / "model", device_map=device_map, offload_folder=folder / "offload"
    )


def on_disk(family: str) -> dict[str, str]:
    """Every second layer on disk, lower ones and late ones."""
    names = {name.rpartition(".")[0] for name, _ in build(family, 0).named_parameters()}
    layers = [name for name in names if ".layers." in name]
    rest = names.difference(layers)
    prefix = "model.layers."
    places = {f"{prefix}{i}": "disk" if i % 2 else "cpu" for i in range(LAYERS)}
    return places | dict.fromkeys(rest, "cpu") | {"model.rotary_emb": "cpu"}


def assert_same_maps(ours: FillMaps, theirs: FillMaps) -> None:
    for name, tensor in theirs.tensors().items():
        if tensor is None:
            assert ours.tensors()[name] is None
        else:
            torch.testing.assert_close(ours.tensors()[name], tensor, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}], ids=["auto", "explicit"])
@pytest.mark.parametrize("family", FAMILIES)
def test_device_map(family: str, device_map: Any, seed: int, tmp_path: Path) -> None:
    """Maps are the same, belong to both models, and fill both alike."""
    plain, texts = build(family, seed), random_text()
    other = placed(plain, tmp_path, device_map)
    maps = fit_tiny(plain, texts)
    assert_same_maps(fit_tiny(other, texts), maps)
    ids, mask = left_padded(3, 50)
    plan = RowPlan(tail=6, sinks=2)
    expected = Filler(plain, maps).prefill(ids, mask, plan)
    filled = Filler(other, maps).prefill(ids, mask, plan)
    torch.testing.assert_close(filled.logits, expected.logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_on_disk(family: str, seed: int, tmp_path: Path) -> None:
    """Offloaded layers, whose weights come and go, fit and fill as if in memory.

    Not to the bit: weights read from a file lie otherwise in memory, and products round otherwise.
    """
    plain, texts = build(family, seed), random_text()
    other = placed(plain, tmp_path, on_disk(family))
    late = other.get_decoder().layers[SPLIT + 1]
    assert all(parameter.is_meta for parameter in late.parameters())
    ids = random_ids(1, 50)
    plan = RowPlan(tail=6, sinks=2)
    for target in ("input",) if family == "phi" else ("input", "normed"):
        maps = fit_tiny(plain, texts, target=target)
        theirs = fit_tiny(other, texts, target=target)
        assert_same_maps(theirs, maps)
        fold = False if target == "normed" else None
        expected = Filler(plain, maps, fold=fold).prefill(ids, plan=plan)
        filled = Filler(other, theirs).prefill(ids, plan=plan)
        torch.testing.assert_close(filled.logits, expected.logits, rtol=0, atol=1e-6)
        with attach(other, theirs, tail=6, sinks=2):
            tokens = other.generate(ids, max_new_tokens=1, do_sample=False)
        assert tokens[0, -1] == expected.logits.argmax()


def test_weights_on_disk_are_no_proof(seed: int, tmp_path: Path) -> None:
    """A fingerprint cannot read offloaded weights, so maps of a plain model need strict=False."""
    plain = build("llama", seed)
    other = placed(plain, tmp_path, on_disk("llama"))
    maps = random_maps(plain)
    with pytest.raises(ModelMismatchError, match="offloaded"):
        Filler(other, maps)
    ids = random_ids(1, 50)
    expected = Filler(plain, maps).prefill(ids).logits
    filled = Filler(other, maps, strict=False).prefill(ids).logits
    torch.testing.assert_close(filled, expected, rtol=0, atol=1e-6)


class Int8Linear(nn.Module):
    """What quantisation libraries put in place of ``nn.Linear``: int8 weights, a scale per row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.weight = nn.Parameter((linear.weight / scale).round().to(torch.int8), False)
        self.scale = nn.Buffer(scale)
        self.bias = linear.bias

    def forward(self, states: Tensor) -> Tensor:
        weight = self.weight.to(states.dtype) * self.scale.to(states.dtype)
        return nn.functional.linear(states, weight, self.bias)


def quantised(family: str, seed: int, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A model whose layers' linear modules hold int8 weights."""
    model = build(family, seed, dtype)
    for layer in model.get_decoder().layers:
        for name, module in list(layer.named_modules()):
            if isinstance(module, nn.Linear):
                layer.set_submodule(name, Int8Linear(module))
    return model


def dequantised(family: str, seed: int) -> PreTrainedModel:
    """A plain model with the weights that the quantised one computes with."""
    model = build(family, seed)
    for plain, other in zip(
        model.get_decoder().layers, quantised(family, seed).get_decoder().layers, strict=True
    ):
        for name, module in other.named_modules():
            if isinstance(module, Int8Linear):
                plain.get_submodule(name).weight.data = module.weight.float() * module.scale
    return model


@pytest.mark.parametrize("target", ["input", "normed"])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_fit_on_a_quantised_base(family: str, target: str, seed: int) -> None:
    """Maps (key scales included) are those of a plain model with the same effective weights."""
    texts = random_text()
    maps = fit_tiny(quantised(family, seed), texts, target=target)
    expected = fit_tiny(dequantised(family, seed), texts, target=target)
    for name, tensor in expected.tensors().items():
        if tensor is not None:
            torch.testing.assert_close(maps.tensors()[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_fill_of_a_quantised_base(family: str, seed: int) -> None:
    """Normed maps run through quantised projections unfolded; folding is refused by name."""
    model = quantised(family, seed, torch.float64)
    maps = random_maps(model, target="normed", key_scale=True)
    filler = Filler(model, maps)
    assert isinstance(filler.predictor, NormedPredictor)
    ids, plan = random_ids(1, 50), RowPlan(tail=6, sinks=2)
    exact = plan.exact_mask(torch.ones(1, 50, dtype=torch.bool))[0]
    torch.testing.assert_close(
        filler.prefill(ids, plan=plan).logits[0, -1],
        BruteForce(model, maps, exact).logits(ids[0]),
        rtol=0,
        atol=1e-6,
    )
    with pytest.raises(UnsupportedError, match="quantised"):
        Filler(model, maps, fold=True)
    plain = build(family, seed, torch.float64)
    assert isinstance(Filler(plain, maps, strict=False).predictor, FoldedPredictor)


def test_maps_of_the_plain_base(seed: int) -> None:
    """A quantised copy has other weights: refused, unless strict=False says it is equivalent."""
    maps = random_maps(build("llama", seed))
    model = quantised("llama", seed)
    with pytest.raises(ModelMismatchError, match="quantised"):
        Filler(model, maps)
    Filler(model, maps, strict=False).prefill(random_ids(1, 50))
