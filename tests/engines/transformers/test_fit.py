"""Maps fitted on text equal a direct computation on the model's hidden states."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ridgefill.core.errors import NonFiniteError, NotEnoughTextError, RidgeFillError
from ridgefill.core.maps import FillMaps
from ridgefill.engines.transformers import Filler, fit
from ridgefill.engines.transformers.calibrate import Collector
from ridgefill.engines.transformers.windows import Windows, pack
from tests.engines.transformers.builders import random_ids, tiny_tokenizer, words
from tests.engines.transformers.families import FAMILIES, HIDDEN, LAYERS, NAMED, SPLIT, build
from tests.least_squares import r_squared, ridge_by_least_squares

WINDOW, SINKS, LENGTH = 40, 3, 400
PENALTIES = (1e-2, 1e-1, 1.0)


def random_text(documents: int = 5, length: int = LENGTH) -> list[str]:
    return [words(random_ids(1, length)[0]) for _ in range(documents)]


def fit_tiny(model: PreTrainedModel, texts: list[str], **options: Any) -> FillMaps:
    defaults = {
        "split": SPLIT,
        "target": "input",
        "window": WINDOW,
        "batch_tokens": 3 * WINDOW,
        "held_out": 0.25,
        "sinks": SINKS,
        "penalties": PENALTIES,
        "seed": 5,
        "progress": False,
    }
    return fit(model, tiny_tokenizer(), texts, **{**defaults, **options})


@dataclass
class Rows:
    """What a fit should have seen: sources ``x`` and, per layer, its true inputs."""

    x: Tensor
    inputs: dict[int, Tensor]


def rows_of(model: PreTrainedModel, windows: Windows, held_out: bool, sources: Any) -> Rows:
    """By the model's own hidden states, one window at a time."""
    parts = []
    for index in (windows.held_out == held_out).nonzero()[0]:
        with torch.no_grad():
            out = model(windows.tensor((int(index),)), output_hidden_states=True)
        parts.append([state[0, SINKS:] for state in out.hidden_states[:LAYERS]])
    states = [torch.cat(layer) for layer in zip(*parts, strict=True)]
    x = torch.cat([states[source] for source in sources], dim=-1)
    return Rows(x, {index: states[index] for index in range(SPLIT + 1, LAYERS)})


def packed(texts: list[str]) -> Windows:
    return pack(texts, tiny_tokenizer(), length=WINDOW, held_out=0.25, seed=5)


ALL_SOURCES = [(family.id, (SPLIT, 1, 0)) for family in FAMILIES] + [
    ("llama", (SPLIT,)),
    ("llama", (0, SPLIT)),
    ("phi", (1, SPLIT)),
]


@pytest.mark.parametrize(("family", "sources"), ALL_SOURCES)
def test_input_maps(family: str, sources: tuple[int, ...], seed: int) -> None:
    """Weights, biases, penalties and R2 of every layer; sinks and held-out rows left out."""
    model, texts = build(family, seed), random_text()
    maps = fit_tiny(model, texts, sources=sources)
    windows = packed(texts)
    train, held = (rows_of(model, windows, part, sources) for part in (False, True))
    assert maps.config.provenance["rows"] == {"train": len(train.x), "held_out": len(held.x)}
    for row, layer in enumerate(range(SPLIT + 1, LAYERS)):
        goal, held_goal = train.inputs[layer], held.inputs[layer]
        check_layer(maps, row, layer, train.x, goal, held.x, held_goal)


def check_layer(
    maps: FillMaps, row: int, layer: int, x: Tensor, y: Tensor, held_x: Tensor, held_y: Tensor
) -> None:
    solved = {penalty: ridge_by_least_squares(x, y, penalty) for penalty in PENALTIES}
    scores = {p: r_squared(held_x, held_y, *solution) for p, solution in solved.items()}
    penalty = maps.config.provenance["penalties"][str(layer)]
    assert scores[penalty] >= max(scores.values()) - 1e-6
    assert maps.r2[layer] == pytest.approx(scores[penalty], abs=1e-5)
    weight, bias = solved[penalty]
    for ours, theirs in ((maps.weight[row], weight), (maps.bias[row], bias)):
        # Products are taken in fp32, and the least penalty magnifies their rounding a hundredfold.
        limit = 1e-3 * float(theirs.abs().max())
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=limit)


@pytest.mark.parametrize("family", [family.id for family in NAMED])
def test_normed_maps(family: str, seed: int) -> None:
    """They predict what the input norm returns, and scale keys where no key norm follows."""
    model, texts = build(family, seed), random_text()
    maps = fit_tiny(model, texts, target="normed")
    windows, sources = packed(texts), maps.config.sources
    train, held = (rows_of(model, windows, part, sources) for part in (False, True))
    for row, layer in enumerate(range(SPLIT + 1, LAYERS)):
        module = model.get_decoder().layers[layer]
        with torch.no_grad():
            normed, held_normed = (
                module.input_layernorm(part.inputs[layer]) for part in (train, held)
            )
            predicted = train.x @ maps.weight[row] + maps.bias[row]
            true = module.self_attn.k_proj(normed)
            keys = module.self_attn.k_proj(predicted)
        check_layer(maps, row, layer, train.x, normed, held.x, held_normed)
        if family == "qwen3":
            assert maps.key_scale is None
            continue
        energy, regressed = (
            part.double().square().mean(0).view(2, -1).sum(1) for part in (true, keys)
        )
        expected = (energy / regressed).sqrt()
        torch.testing.assert_close(maps.key_scale[row].double(), expected, rtol=1e-4, atol=1e-5)


def test_defaults_and_provenance(seed: int) -> None:
    model, texts = build("llama", seed), random_text()
    maps = fit_tiny(model, texts, split=None, target=None, tail=31)
    assert maps.config.split == LAYERS // 2
    assert maps.config.target == "normed"
    assert fit_tiny(build("phi", seed), texts, target=None).config.target == "input"
    assert maps.config.sources == (2, 1, 0)
    assert (maps.config.tail, maps.config.sinks) == (31, SINKS)
    assert maps.config.provenance["documents"] == len(texts)
    assert maps.config.provenance["text_sha256"] == packed(texts).sha256
    Filler(model, maps)  # belongs to the model


def test_text_and_seed_decide(seed: int) -> None:
    """The same call gives the same maps to the bit; other text or another seed does not."""
    model, texts = build("llama", seed), random_text()
    maps = fit_tiny(model, texts)
    assert torch.equal(fit_tiny(model, iter(texts)).weight, maps.weight)
    assert not torch.equal(fit_tiny(model, texts, seed=6).weight, maps.weight)
    assert not torch.equal(fit_tiny(model, texts[::-1]).weight, maps.weight)
    two = 2 * (LENGTH + 1)  # documents end in one more token
    fewer = fit_tiny(model, texts, max_tokens=two)
    assert torch.equal(fewer.weight, fit_tiny(model, ["", *texts[:2]]).weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models(dtype: torch.dtype, seed: int) -> None:
    """Maps are fp32 and near those of the same weights in fp32."""
    texts = random_text()
    half = build("llama", seed, dtype)
    maps = fit_tiny(half, texts)
    assert maps.weight.dtype == maps.bias.dtype == torch.float32
    wide = fit_tiny(build("llama", seed, dtype).float(), texts)
    assert maps.config.base_model.weights == wide.config.base_model.weights
    for layer, score in wide.r2.items():
        assert maps.r2[layer] == pytest.approx(score, abs=0.02)


def test_ten_copies_of_one_sentence(seed: int) -> None:
    """A Gram matrix of rank far below its size still gives finite maps that predict the text."""
    model = build("llama", seed)
    sentence = words(random_ids(1, WINDOW - 2)[0])
    maps = fit_tiny(model, [sentence] * 10, held_out=0.3)
    assert torch.isfinite(maps.weight).all()
    assert torch.isfinite(maps.bias).all()
    windows = pack([sentence] * 10, tiny_tokenizer(), length=WINDOW, held_out=0.3, seed=5)
    assert len({tuple(row) for row in windows.ids.tolist()}) == 1
    rows = rows_of(model, windows, True, maps.config.sources)
    assert len(rows.x) < 3 * HIDDEN * len(windows)
    for layer, score in maps.r2.items():
        row = layer - SPLIT - 1
        expected = r_squared(rows.x, rows.inputs[layer], maps.weight[row].double(), maps.bias[row])
        assert score == pytest.approx(expected, abs=1e-3)
        assert score > 0.5


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("layer", [0, SPLIT, LAYERS - 2])
def test_overflow(layer: int, value: float, seed: int) -> None:
    """NaN or infinity in the residual stream, before or after the split."""
    model = build("llama", seed)
    with torch.no_grad():
        model.get_decoder().layers[layer].mlp.down_proj.weight[3, 4] = value
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        fit_tiny(model, random_text())


@pytest.mark.parametrize("texts", [[], [""], ["w3 w4 w5"], ["w3 " * WINDOW]])
def test_text_too_short(texts: list[str], seed: int) -> None:
    with pytest.raises(NotEnoughTextError, match="more text"):
        fit_tiny(build("llama", seed), texts)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"split": 0}, "split 0"),
        ({"split": -1}, "split -1"),
        ({"split": LAYERS - 1}, "out of range"),
        ({"split": 99}, "out of range"),
        ({"sources": (0, 1)}, "include split"),
        ({"sources": (SPLIT, SPLIT)}, "distinct"),
        ({"sources": (SPLIT, LAYERS - 1)}, "between 0 and"),
        ({"sources": (SPLIT, -1)}, "between 0 and"),
        ({"target": "keys"}, "target"),
        ({"window": 8}, "window"),
        ({"held_out": 0.0}, "held_out"),
        ({"held_out": 1.0}, "held_out"),
        ({"sinks": -1}, "sinks"),
        ({"tail": -1}, "tail"),
        ({"tail": 0}, "tail"),
        ({"sinks": WINDOW}, "sinks"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"penalties": ()}, "penalties"),
        ({"penalties": (1.0, 0.0)}, "penalties"),
        ({"batch_tokens": 0}, "batch_tokens"),
    ],
)
def test_bad_options(
    options: dict[str, Any], match: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before the model has run once."""
    monkeypatch.setattr(Collector, "add", lambda *_: pytest.fail("the model was run"))
    with pytest.raises(RidgeFillError, match=match):
        fit_tiny(build("llama", seed), random_text(), **options)


def test_generic_families_have_no_normed_target(seed: int) -> None:
    with pytest.raises(RidgeFillError, match=r"generic.*'input'"):
        fit_tiny(build("phi", seed), random_text(), target="normed")
