"""The oracle: true layer inputs in place of predictions must give the stock cache and logits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from ridgefill.core.errors import UnsupportedError
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.decoder import Decoder
from ridgefill.engines.transformers.filler import (
    Filler,
    Prefilled,
    Prompt,
    make_prompt,
    stock_forward,
)
from ridgefill.engines.transformers.predict import OraclePredictor

_LENGTH, _PLAN = 24, RowPlan(tail=5, sinks=2, chosen=[9, 14])
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@torch.no_grad()
def stock_prefill(
    model: PreTrainedModel, prompt: Prompt, layers: Sequence[int] = ()
) -> tuple[Prefilled, dict[int, Tensor]]:
    """A stock prefill, and the inputs ``[batch, seq, hidden]`` of ``layers``."""
    decoder, inputs = Decoder(model), {}

    def keep(index: int):  # type: ignore[no-untyped-def]
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
            inputs[index] = (args[0] if args else kwargs["hidden_states"]).clone()

        return hook

    handles = [
        decoder.layers[index].register_forward_pre_hook(keep(index), with_kwargs=True)
        for index in layers
    ]
    try:
        stock = stock_forward(model, DynamicCache(config=decoder.config), prompt)
    finally:
        for handle in handles:
            handle.remove()
    return stock, inputs


def self_check(filler: Filler) -> None:
    """Compare an oracle fill with a stock prefill of a short random prompt.

    Raises UnsupportedError when keys, values or logits differ by more than rounding, relative to
    their largest magnitude: then the model is not the pre-norm decoder the family takes it for.
    """
    decoder, model = filler.decoder, filler.model
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(decoder.config.vocab_size, (1, _LENGTH), generator=generator)
    prompt = make_prompt(ids.to(model.device), None, None, None, 0)
    split = filler.maps.config.split
    stock, inputs = stock_prefill(model, prompt, range(split, len(decoder.layers)))
    fitted, filler.predictor = (
        filler.predictor,
        OraclePredictor(inputs, filler.family, filler.predictor.sources),
    )
    try:
        filled = filler.prefill(prompt.ids, plan=_PLAN)  # type: ignore[arg-type]
    except (TypeError, AttributeError, LookupError, RuntimeError, ValueError) as error:
        raise _refusal(model, f"the check failed with {type(error).__name__}: {error}") from error
    finally:
        filler.predictor = fitted
    difference = max_error(filled, stock)
    limit = _TOLERANCE.get(model.dtype, 1e-1)
    if not difference <= limit:
        raise _refusal(model, f"its cache or logits differ by {difference:.1e} (limit {limit})")


def _refusal(model: PreTrainedModel, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"model type {model.config.model_type!r} cannot be filled: filling it with its true layer "
        f"inputs does not give its own cache; {why}. It needs a family module of its own"
    )


def max_error(ours: Prefilled, theirs: Prefilled) -> float:
    """Largest difference over keys, values and logits, each relative to its largest magnitude."""
    pairs = [(ours.logits, theirs.logits)]
    for mine, stock in zip(ours.cache.layers, theirs.cache.layers, strict=True):
        pairs += [(mine.keys, stock.keys), (mine.values, stock.values)]
    return max(_relative(a.float(), b.float()) for a, b in pairs)


def _relative(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp_min(1.0))
