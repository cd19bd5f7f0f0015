"""Prompts, random maps and plans for the tests."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ridgefill.core.maps import FillMaps, MapsConfig
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.decoder import Decoder
from ridgefill.engines.transformers.filler import Prefilled
from ridgefill.engines.transformers.fingerprint import fingerprint
from tests.engines.transformers.families import SPLIT, VOCAB

EOS = 2


def random_ids(batch: int, length: int) -> Tensor:
    """Token ids ``[batch, length]`` without the special ones."""
    return torch.randint(EOS + 1, VOCAB, (batch, length))


def left_padded(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Ids and mask ``[batch, length]``; all but the first sequence are padded on the left.

    The last one is nearly all padding: shorter than most tails.
    """
    ids = random_ids(batch, length)
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        pad = length - 4 if row == batch - 1 else int(torch.randint(5, length // 2, ()))
        mask[row, :pad] = 0
        ids[row, :pad] = 0
    return ids, mask


def random_maps(
    model: PreTrainedModel,
    *,
    split: int = SPLIT,
    sources: tuple[int, ...] = (SPLIT, 1, 0),
    target: str = "input",
    key_scale: bool = False,
    tail: int = 8,
    sinks: int = 2,
) -> FillMaps:
    """Maps with random weights in the model's dtype, small enough to predict normal magnitudes."""
    config = Decoder(model).config
    layers, hidden = config.num_hidden_layers, config.hidden_size
    values = MapsConfig(
        base_model=fingerprint(model),
        split=split,
        num_layers=layers,
        hidden_size=hidden,
        sources=sources,
        target=target,
        tail=tail,
        sinks=sinks,
    )
    count, features = len(values.mapped_layers), values.features
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    maps = FillMaps(
        values,
        torch.randn(count, features, hidden) / features**0.5,
        torch.randn(count, hidden) * 0.1,
        torch.rand(count, heads) + 0.5 if key_scale else None,
    )
    return maps.to(dtype=model.dtype)


def scattered(mask: Tensor, share: float, tail: int) -> list[list[int]]:
    """Random real columns before the tail, one ascending list per sequence."""
    picked = (torch.rand(mask.shape) < share) & mask.bool()
    picked[:, -tail:] = False
    return [row.nonzero()[:, 0].tolist() for row in picked]


def plans(mask: Tensor) -> dict[str, RowPlan]:
    """The shapes a plan can take on prompts ``mask`` ``[batch, seq]``, by name."""
    real = mask.bool()
    all_but_one = real.clone()
    all_but_one[0, mask.shape[1] // 2] = False
    return {
        "sinks": RowPlan(tail=8, sinks=3),
        "tail": RowPlan(tail=8, sinks=0),
        "scattered": RowPlan(tail=3, sinks=2, chosen=scattered(mask, 0.3, 3)),
        "all": RowPlan(tail=3, sinks=0, chosen=real),
        "all-but-one": RowPlan(tail=3, sinks=0, chosen=all_but_one),
        "none": RowPlan(tail=1, sinks=0),
    }


PLANS = ("sinks", "tail", "scattered", "all", "all-but-one", "none")


def errors(ours: Prefilled, theirs: Prefilled, mask: Tensor) -> dict[str, float]:
    """Largest absolute difference of logits, keys and values at real positions."""
    return {name: float(d.abs().max()) for name, d in _differences(ours, theirs, mask).items()}


def rms_errors(ours: Prefilled, theirs: Prefilled, mask: Tensor) -> dict[str, float]:
    """Root mean square of the differences of logits, keys and values at real positions."""
    differences = _differences(ours, theirs, mask)
    return {name: float(d.square().mean().sqrt()) for name, d in differences.items()}


def _differences(ours: Prefilled, theirs: Prefilled, mask: Tensor) -> dict[str, Tensor]:
    found = {"logits": [(ours.logits.double() - theirs.logits.double()).flatten()]}
    for mine, stock in zip(ours.cache.layers, theirs.cache.layers, strict=True):
        for name in ("keys", "values"):
            ours_states, stock_states = getattr(mine, name), getattr(stock, name)
            assert ours_states.shape == stock_states.shape
            real = mask.bool()[:, -stock_states.shape[2] :]
            difference = (ours_states.double() - stock_states.double()).transpose(1, 2)[real]
            found.setdefault(name, []).append(difference.flatten())
    return {name: torch.cat(parts) for name, parts in found.items()}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Words ``w3 .. w100`` as the ids 3 to 100; a beginning token before every text."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(EOS + 1, VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        padding_side="left",
    )


def words(ids: Tensor) -> str:
    """The text of ids ``[seq]``."""
    return " ".join(f"w{i}" for i in ids.tolist())
