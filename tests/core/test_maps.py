"""Fill maps: applying, folding, moving, and whose they are."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from ridgefill.core.errors import ModelMismatchError, RidgeFillError
from ridgefill.core.maps import BaseModel, FillMaps, MapsConfig, default_sources
from tests.core.builders import BASE, HIDDEN, KV_HEADS, MAPPED, config, random_maps


@pytest.mark.parametrize("target", ["input", "normed"])
def test_apply(target: str, seed: int) -> None:
    """Every layer's own weight and bias, for any leading shape."""
    maps = random_maps(target)
    for row, layer in enumerate(MAPPED):
        sources = torch.randn(2, 3, maps.config.features)
        for rows in (sources, sources[0], sources[0, 0], sources[:, :0]):
            expected = torch.einsum("...p,ph->...h", rows, maps.weight[row]) + maps.bias[row]
            torch.testing.assert_close(maps.apply(layer, rows), expected)


def test_apply_in_its_own_dtype(seed: int) -> None:
    """fp32 maps on bf16 states compute in fp32 and answer in bf16."""
    maps = random_maps("input")
    sources = torch.randn(5, maps.config.features).bfloat16()
    predicted = maps.apply(MAPPED[1], sources)
    assert predicted.dtype == torch.bfloat16
    expected = sources.float() @ maps.weight[1] + maps.bias[1]
    torch.testing.assert_close(predicted.float(), expected, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_folding_is_applying_then_projecting(bias: bool, seed: int) -> None:
    maps = random_maps("normed")
    for layer in MAPPED:
        project = nn.Linear(HIDDEN, 6, bias=bias)
        sources = torch.randn(10, maps.config.features)
        weight, offset = maps.fold(layer, project.weight, project.bias)
        expected = project(maps.apply(layer, sources))
        torch.testing.assert_close(sources @ weight + offset, expected, rtol=1e-5, atol=1e-5)
        assert weight.dtype == maps.weight.dtype
        assert not weight.requires_grad


def test_maps_that_do_not_fold(seed: int) -> None:
    for maps in (random_maps("input"), FillMaps(replace(config(), sources=(2,), kind="identity"))):
        with pytest.raises(RidgeFillError, match="normed"):
            maps.fold(MAPPED[0], torch.randn(3, HIDDEN), None)


def test_key_scales(seed: int) -> None:
    """One factor per head and layer; without factors keys pass unchanged."""
    maps = random_maps("normed", key_scale=True)
    keys = torch.randn(5, KV_HEADS * 3)
    for row, layer in enumerate(MAPPED):
        for head in range(KV_HEADS):
            span = slice(3 * head, 3 * head + 3)
            expected = keys[:, span] * maps.key_scale[row, head]
            torch.testing.assert_close(maps.scale_keys(layer, keys)[:, span], expected)
    assert random_maps("normed").scale_keys(MAPPED[0], keys) is keys


def test_identity() -> None:
    maps = FillMaps(config(sources=(2,), kind="identity", provenance={}))
    sources = torch.randn(4, HIDDEN)
    assert maps.is_identity
    assert maps.r2 == {}
    assert maps.apply(MAPPED[-1], sources) is sources


def test_copies(seed: int) -> None:
    """``to`` and ``with_plan`` leave the original alone."""
    maps = random_maps("normed", key_scale=True)
    half = maps.to(dtype=torch.bfloat16)
    for name, tensor in maps.tensors().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(half.tensors()[name], tensor.bfloat16())
    assert half.config == maps.config
    other = maps.with_plan(tail=9, sinks=1)
    assert (other.config.tail, other.config.sinks) == (9, 1)
    assert replace(other.config, tail=maps.config.tail, sinks=maps.config.sinks) == maps.config
    assert torch.equal(other.weight, maps.weight)


@pytest.mark.parametrize(
    ("split", "expected"), [(1, (1, 0)), (2, (2, 1, 0)), (3, (3, 2, 1, 0)), (15, (15, 10, 5, 0))]
)
def test_default_sources(split: int, expected: tuple[int, ...]) -> None:
    assert default_sources(split) == expected


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"split": 0}, "split 0 is out of range"),
        ({"split": 5}, "from 1 to 4"),
        ({"split": -1}, "out of range"),
        ({"sources": (1, 0)}, "include split"),
        ({"sources": (2, 2)}, "distinct"),
        ({"sources": ()}, "include split"),
        ({"sources": (2, 3)}, "between 0 and the split"),
        ({"sources": (2, -1)}, "between 0 and the split"),
        ({"target": "keys"}, "target"),
        ({"kind": "mlp"}, "kind"),
        ({"tail": 0}, "tail"),
        ({"tail": -3}, "tail"),
        ({"sinks": -3}, "sinks"),
    ],
)
def test_bad_configs(change: dict[str, Any], match: str) -> None:
    with pytest.raises(RidgeFillError, match=match):
        replace(config(), **change)


def test_bad_shapes(seed: int) -> None:
    good = random_maps("normed", key_scale=True)
    rows = len(MAPPED)
    features = good.config.features
    bad: list[dict[str, Any]] = [
        {"weight": None},
        {"bias": None},
        {"weight": torch.zeros(rows + 1, features, HIDDEN)},
        {"weight": torch.zeros(rows, HIDDEN, features)},
        {"bias": torch.zeros(rows, HIDDEN + 1)},
        {"key_scale": torch.zeros(rows)},
        {"key_scale": torch.zeros(rows - 1, KV_HEADS)},
    ]
    for change in bad:
        name = next(iter(change))
        with pytest.raises(RidgeFillError, match=name):
            FillMaps(good.config, **{**good.tensors(), **change})
    with pytest.raises(RidgeFillError, match="key_scale"):
        FillMaps(replace(good.config, target="input"), **good.tensors())
    with pytest.raises(RidgeFillError, match="identity"):
        FillMaps(replace(config(), kind="identity", sources=(2, 0)))
    with pytest.raises(RidgeFillError, match="identity"):
        FillMaps(replace(config(), kind="identity", sources=(2,)), weight=good.weight)


@pytest.mark.parametrize(
    ("change", "strict_only", "match"),
    [
        ({"config_hash": "x", "name": "other"}, False, "'org/base'.*'other'.*architecture"),
        ({"revision": "x"}, True, "revision 'abc'.*'x'"),
        ({"weights": "x"}, True, "other weights.*strict=False"),
    ],
)
def test_whose_maps(change: dict[str, str], strict_only: bool, match: str) -> None:
    """Architecture always, revision and weights when strict; both names and the remedy are said."""
    maps = random_maps("input")
    maps.check_model(BASE)
    model = replace(BASE, **change)
    with pytest.raises(ModelMismatchError, match=match):
        maps.check_model(model)
    if strict_only:
        maps.check_model(model, strict=False)
    else:
        with pytest.raises(ModelMismatchError, match=match):
            maps.check_model(model, strict=False)


@pytest.mark.parametrize(("ours", "theirs"), [("abc", None), (None, "abc"), (None, None)])
def test_unknown_revisions(ours: str | None, theirs: str | None) -> None:
    """A name does not matter, nor a revision that one side does not know: the weights decide."""
    base = BaseModel("local", ours, BASE.config_hash, BASE.weights)
    maps = FillMaps(
        MapsConfig(base, 2, 6, HIDDEN, (2,), kind="identity"),
    )
    maps.check_model(replace(BASE, revision=theirs))
