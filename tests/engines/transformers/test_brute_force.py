"""Decoding after a fill equals a reference that rebuilds every late layer without a cache."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import Filler, identity_maps
from ridgefill.engines.transformers.compat import cache_name
from ridgefill.engines.transformers.filler import Prefilled
from tests.engines.transformers.builders import random_ids, random_maps, scattered
from tests.engines.transformers.families import NAMED, SPLIT, build
from tests.engines.transformers.reference import BruteForce

NEW_TOKENS = 32
LENGTH = 61

MAPS: dict[str, Callable[[PreTrainedModel], FillMaps]] = {
    "identity": lambda model: identity_maps(model, SPLIT),
    "input": random_maps,
    "input-one-source": lambda model: random_maps(model, sources=(SPLIT,)),
    "normed": lambda model: random_maps(model, target="normed"),
    "normed-scaled": lambda model: random_maps(
        model, target="normed", sources=(0, SPLIT), key_scale=True
    ),
}


def decode(model: PreTrainedModel, prefilled: Prefilled, steps: int) -> tuple[Tensor, Tensor]:
    """Greedy tokens ``[steps]`` and the logits ``[steps, vocab]`` they were taken from."""
    tokens, rows = [], [prefilled.logits[0, -1]]
    cache = prefilled.cache
    with torch.no_grad():
        for _ in range(steps):
            tokens.append(rows[-1].argmax())
            out = model(tokens[-1].view(1, 1), use_cache=True, **{cache_name(model): cache})
            rows.append(out.logits[0, -1])
    return torch.stack(tokens), torch.stack(rows[:-1])


def check(filler: Filler, maps: FillMaps, plan: RowPlan, ids: Tensor) -> None:
    exact = plan.exact_mask(torch.ones(1, ids.shape[1], dtype=torch.bool))[0]
    assert not exact.all()
    tokens, logits = decode(filler.model, filler.prefill(ids, plan=plan), NEW_TOKENS)
    reference, sequence = BruteForce(filler.model, maps, exact), ids[0]
    for token, row in zip(tokens, logits, strict=True):
        expected = reference.logits(sequence)
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-6)
        assert token == expected.argmax()
        sequence = torch.cat([sequence, token[None]])


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("family", [family.id for family in NAMED])
def test_decoding(family: str, kind: str, seed: int) -> None:
    """32 greedy tokens and their logits (fp64, 1e-6) after sinks, scattered rows and a tail."""
    model = build(family, seed, torch.float64)
    maps = MAPS[kind](model)
    ids = random_ids(1, LENGTH)
    chosen = scattered(torch.ones_like(ids), 0.2, tail=7)
    check(Filler(model, maps, chunk_size=11), maps, RowPlan(7, 2, chosen), ids)


@pytest.mark.parametrize("kind", ["normed", "normed-scaled"])
@pytest.mark.parametrize("family", [family.id for family in NAMED])
def test_decoding_without_folding(family: str, kind: str, seed: int) -> None:
    """The same, with the map and the layer's projections run one after the other."""
    model = build(family, seed, torch.float64)
    maps = MAPS[kind](model)
    filler = Filler(model, maps, chunk_size=25, fold=False)
    assert not filler.predictor.folded
    check(filler, maps, RowPlan(tail=5, sinks=3), random_ids(1, LENGTH))


@pytest.mark.parametrize("plan", [RowPlan(1, 0), RowPlan(1, 1), RowPlan(LENGTH - 1, 0)])
@pytest.mark.parametrize("family", [family.id for family in NAMED])
def test_decoding_at_the_edges(family: str, plan: RowPlan, seed: int) -> None:
    """Nothing exact but the last token; one sink; and a single filled row."""
    model = build(family, seed, torch.float64)
    maps = random_maps(model)
    check(Filler(model, maps), maps, plan, random_ids(1, LENGTH))


def test_reference_is_the_model_when_all_rows_are_exact(seed: int) -> None:
    """The reference itself: with every row exact it gives the stock model's logits."""
    for family in NAMED:
        model = build(family, seed, torch.float64)
        ids = random_ids(1, LENGTH)
        reference = BruteForce(model, random_maps(model), torch.ones(LENGTH, dtype=torch.bool))
        with torch.no_grad():
            stock = model(ids).logits[0, -1]
        torch.testing.assert_close(reference.logits(ids[0]), stock, rtol=0, atol=1e-6)
