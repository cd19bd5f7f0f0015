"""The oracle: fed its true layer inputs, a fill gives the stock cache and logits."""

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from ridgefill.engines.transformers import Filler, identity_maps
from ridgefill.engines.transformers.compat import cache_name
from ridgefill.engines.transformers.filler import Prefilled, make_prompt
from ridgefill.engines.transformers.oracle import stock_prefill
from ridgefill.engines.transformers.predict import OraclePredictor
from tests.engines.transformers.builders import (
    PLANS,
    errors,
    left_padded,
    plans,
    rms_errors,
)
from tests.engines.transformers.families import FAMILIES, LAYERS, SPLIT, build

CHUNKS = (1, 7, 64, 10_000)
MODELS = [(family.id, "sdpa") for family in FAMILIES] + [
    ("llama", "eager"),
    ("mistral", "eager"),
    ("qwen2", "eager"),
    ("stablelm", "eager"),
]


@dataclass(frozen=True)
class Oracle:
    """A filler that predicts with the true inputs of one prompt, and that prompt's stock run."""

    filler: Filler
    ids: Tensor
    mask: Tensor
    stock: Prefilled
    seed: int
    exact: Prefilled | None = None


@cache
def oracle(family: str, attention: str, batch: int, dtype: torch.dtype, seed: int) -> Oracle:
    model = build(family, seed, dtype, attention)
    ids, mask = left_padded(batch, int(torch.randint(70, 101, ())))
    prompt = make_prompt(ids, None, mask, None, 0)
    stock, inputs = stock_prefill(model, prompt, range(SPLIT, LAYERS))
    filler = Filler(model, identity_maps(model, SPLIT))
    filler.predictor = OraclePredictor(inputs, filler.family, (SPLIT, 1, 0))
    exact = None
    if dtype is not torch.float32:
        wide = build(family, seed, dtype, attention).float()
        exact = stock_prefill(wide, prompt)[0]
    return Oracle(filler, ids, mask, stock, seed, exact)


def run(case: Oracle, plan: str, chunk: int) -> Prefilled:
    case.filler.chunk_size = chunk
    torch.manual_seed(case.seed)  # the same scattered rows in every chunking
    return case.filler.prefill(case.ids, case.mask, plans(case.mask)[plan])


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("family", "attention"), MODELS)
def test_fp32(family: str, attention: str, batch: int, plan: str, seed: int) -> None:
    """Keys, values and logits of every real row are stock's to 1e-5, whatever the chunks."""
    case = oracle(family, attention, batch, torch.float32, seed)
    for chunk in CHUNKS:
        found = errors(run(case, plan, chunk), case.stock, case.mask)
        assert max(found.values()) <= 1e-5, (chunk, found)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_bf16(family: str, batch: int, plan: str, seed: int) -> None:
    """In bf16 a fill is as near to the fp32 model as stock bf16 is.

    Other shapes round otherwise, so equality with stock bf16 is not to be had; the yardstick is
    stock's own rounding error against the same weights in fp32, root mean square because the
    largest of a hundred errors varies by more than twofold between two equally good runs. The
    logits are those of one row per sequence, so their mean varies more. One misplaced row of a
    hundred is off by the size of the states and raises the mean some 25 times.
    """
    case = oracle(family, "sdpa", batch, torch.bfloat16, seed)
    assert case.exact is not None
    rounding = rms_errors(case.stock, case.exact, case.mask)
    for chunk in CHUNKS:
        found = rms_errors(run(case, plan, chunk), case.exact, case.mask)
        over = {name: found[name] / rounding[name] for name in found}
        assert max(over["keys"], over["values"]) <= 1.25, (chunk, over)
        assert over["logits"] <= 2, (chunk, over)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_stock_prefill_is_the_model(family: str, batch: int, seed: int) -> None:
    """The oracle's reference is a plain call of the model, its inputs the model's hidden states."""
    case = oracle(family, "sdpa", batch, torch.float32, seed)
    model = case.filler.model
    positions = (case.mask.cumsum(1) - 1).clamp_min(0)
    with torch.no_grad():
        plain = model(
            case.ids,
            attention_mask=case.mask,
            position_ids=positions,
            output_hidden_states=True,
            **{cache_name(model): DynamicCache(config=model.config)},
        )
    theirs = Prefilled(plain[cache_name(model)], plain.logits[:, -1:])
    assert max(errors(case.stock, theirs, case.mask).values()) <= 1e-6
    real = case.mask.bool()
    assert isinstance(case.filler.predictor, OraclePredictor)
    for index, hidden in case.filler.predictor.inputs.items():
        torch.testing.assert_close(hidden[real], plain.hidden_states[index][real])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_prompt_within_the_tail_is_bit_equal(family: str, batch: int, seed: int) -> None:
    """A prompt not longer than the tail is one stock forward, to the bit."""
    case = oracle(family, "sdpa", batch, torch.float32, seed)
    length = case.ids.shape[1]
    for tail in (length, length + 50):
        filler = Filler(case.filler.model, identity_maps(case.filler.model, SPLIT, tail=tail))
        ours = filler.prefill(case.ids, case.mask)
        assert torch.equal(ours.logits, case.stock.logits)
        for mine, stock in zip(ours.cache.layers, case.stock.cache.layers, strict=True):
            assert torch.equal(mine.keys, stock.keys)
            assert torch.equal(mine.values, stock.values)
