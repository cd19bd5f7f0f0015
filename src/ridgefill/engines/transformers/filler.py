"""Filled prefill of a transformers model."""

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel

from ridgefill.core.errors import RidgeFillError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import ChunkRows, RowPlan
from ridgefill.engines.transformers.cache import FillCache, check_cache
from ridgefill.engines.transformers.compat import accepts, cache_name
from ridgefill.engines.transformers.decoder import Decoder, Tap
from ridgefill.engines.transformers.families import family_of
from ridgefill.engines.transformers.fingerprint import fingerprint
from ridgefill.engines.transformers.late import FillRun, LateLayer
from ridgefill.engines.transformers.predict import predictor_of

CHUNK_SIZE = 8192
"""Default rows per chunk: bounds activations; one chunk runs as fast as the stock prefill."""


class Prefilled(NamedTuple):
    """A decodable cache of the whole prompt, and the last rows' logits ``[batch, keep, vocab]``."""

    cache: DynamicCache
    logits: Tensor


class Prompt(NamedTuple):
    """New columns of a prompt: ``ids`` ``[batch, seq]`` int64 or ``embeds`` ``[batch, seq,
    hidden]``; ``mask`` bool ``[batch, past + seq]``; ``positions`` int64 ``[batch, seq]``."""

    ids: Tensor | None
    embeds: Tensor | None
    mask: Tensor
    positions: Tensor

    @property
    def length(self) -> int:
        return self.positions.shape[1]

    def after(self, done: int) -> "Prompt":
        """The prompt without its first ``done`` new columns, which are in the cache."""
        ids, embeds = (None if part is None else part[:, done:] for part in (self.ids, self.embeds))
        return Prompt(ids, embeds, self.mask, self.positions[:, done:])


class Filler:
    """Fills prompts of one model with one set of maps. Build it once, use it for many prompts.

    Args:
        model: a causal language model, in eval mode, with sdpa or eager attention.
        maps: fill maps fitted on it.
        chunk_size: most prompt rows processed at a time; activations are bounded by it.
        fold: fold ``normed`` maps through the projections; None does where weights allow.
        strict: whether revision and weights must be those the maps were fitted on.

    Raises ModelMismatchError when the maps belong to another model and UnsupportedError when the
    model cannot be filled.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        maps: FillMaps,
        *,
        chunk_size: int = CHUNK_SIZE,
        fold: bool | None = None,
        strict: bool = True,
    ) -> None:
        if chunk_size < 1:
            raise RidgeFillError(f"chunk_size must be 1 or more, got {chunk_size}")
        maps.check_model(fingerprint(model), strict)
        self.model, self.maps, self.chunk_size = model, maps, chunk_size
        self.decoder = Decoder(model)
        self.decoder.check_can_fill()
        self.family = family_of(self.decoder.config)
        self.predictor = predictor_of(maps, self.family, self.decoder.layers, fold)
        if self.family.needs_self_check:
            from ridgefill.engines.transformers.oracle import self_check

            self_check(self)

    @property
    def default_plan(self) -> RowPlan:
        """The maps' own row plan."""
        return RowPlan(tail=self.maps.config.tail, sinks=self.maps.config.sinks)

    @torch.no_grad()
    def prefill(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        plan: RowPlan | None = None,
        cache: Cache | None = None,
        keep: int = 1,
    ) -> Prefilled:
        """Prefill new tokens, filling the rows the plan does not keep exact.

        Args:
            input_ids: int64 ``[batch, seq]``, left-padded when sequences differ in length.
            attention_mask: ``[batch, past + seq]``, 1 for tokens and 0 for padding.
            plan: exact rows; default: the maps' own tail and sinks.
            cache: a `DynamicCache` from an earlier turn, continued in place; default: a new one.
            keep: return the logits of the last ``keep`` rows; at most the plan's tail.

        A prompt with nothing to fill runs as one stock forward. Decode with
        ``model.generate(full_ids, attention_mask=..., past_key_values=cache)`` or call the model.
        """
        plan = plan or self.default_plan
        if not 1 <= keep <= plan.tail:
            raise RidgeFillError(
                f"keep must be from 1 to the tail of {plan.tail}, got {keep}: filled rows have no "
                "logits"
            )
        if cache is None:
            cache = DynamicCache(config=self.decoder.config)
        past = check_cache(cache, len(self.decoder.layers))
        prompt = make_prompt(input_ids, None, attention_mask, None, past)
        done = self.fill(cache, prompt, plan)
        return stock_forward(self.model, cache, prompt.after(done), keep)

    def attach(self, plan: RowPlan | None = None) -> AbstractContextManager[PreTrainedModel]:
        """While open, every long prompt given to the model is filled. See `attach`."""
        from ridgefill.engines.transformers.attach import attached

        return attached(self, plan or self.default_plan)

    @torch.no_grad()
    def fill(self, cache: DynamicCache, prompt: Prompt, plan: RowPlan) -> int:
        """Fill everything before the tail and return how many columns that was.

        Exact rows before the tail run in full. The caller runs the tail as a stock forward on the
        cache. Returns 0, leaving the cache alone, when there is nothing to fill.
        """
        past = prompt.mask.shape[1] - prompt.length
        real = prompt.mask[:, past:]
        exact = plan.exact_mask(real, past)
        region = max(prompt.length - plan.tail, 0)
        if not bool((real & ~exact)[:, :region].any()):
            return 0
        work = FillCache(cache, past, past + region)
        run = FillRun(self.family, self.predictor, work, self.maps.config.split, past)
        shell = self.decoder.with_layers(self._layers(run))
        for start in range(0, region, self.chunk_size):
            stop = min(start + self.chunk_size, region)
            run.rows = ChunkRows.of(exact[:, start:stop], start, past, scratch=past + region)
            _forward(shell, prompt, start, stop, past, work)
        work.finish()
        return region

    def _layers(self, run: FillRun) -> list[nn.Module]:
        """The decoder's layers with the sources tapped and the late layers replaced."""
        layers: list[nn.Module] = []
        last = len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            if index >= run.split:
                layers.append(LateLayer(layer, index, index == last, run))
            elif index in run.predictor.sources:
                layers.append(Tap(layer, index, run.states))
            else:
                layers.append(layer)
        return layers


def stock_forward(
    model: PreTrainedModel, cache: DynamicCache, prompt: Prompt, keep: int = 1
) -> Prefilled:
    """The model's own forward on ``prompt`` and ``cache``, with logits of the last rows."""
    call = {
        "input_ids": prompt.ids,
        "position_ids": prompt.positions,
        "attention_mask": None if bool(prompt.mask.all()) else prompt.mask.long(),
        cache_name(model): cache,
        "use_cache": True,
    }
    if accepts(model, "logits_to_keep"):
        call["logits_to_keep"] = keep
    return Prefilled(cache, model(**call).logits[:, -keep:])


def _forward(
    shell: nn.Module, prompt: Prompt, start: int, stop: int, past: int, cache: FillCache
) -> None:
    mask = prompt.mask[:, : past + stop]
    call = {
        "attention_mask": None if bool(mask.all()) else mask.long(),
        "position_ids": prompt.positions[:, start:stop],
        cache_name(shell): cache,
        "use_cache": True,
    }
    if prompt.ids is not None:
        call["input_ids"] = prompt.ids[:, start:stop]
    else:
        call["inputs_embeds"] = prompt.embeds[:, start:stop]  # type: ignore[index]
    shell(**call)


def make_prompt(
    ids: Tensor | None,
    embeds: Tensor | None,
    mask: Tensor | None,
    positions: Tensor | None,
    past: int,
) -> Prompt:
    """Check a prompt and complete its mask and positions as ``generate`` does.

    Raises RidgeFillError for shapes that do not fit and for right padding.
    """
    given = ids if ids is not None else embeds
    if given is None or given.dim() != (2 if ids is not None else 3) or not given.shape[1]:
        shape = None if given is None else tuple(given.shape)
        raise RidgeFillError(f"input_ids must be [batch, seq] with at least one token, got {shape}")
    batch, length = given.shape[:2]
    if mask is None:
        mask = torch.ones(batch, past + length, dtype=torch.bool, device=given.device)
    if mask.shape != (batch, past + length):
        raise RidgeFillError(
            f"attention_mask has shape {tuple(mask.shape)}, expected {(batch, past + length)}: it "
            "must cover the cached tokens and the new ones, one entry each"
        )
    mask = mask.to(given.device).bool()
    if bool((mask[:, 1:] < mask[:, :-1]).any()) or not bool(mask[:, -1].all()):
        raise RidgeFillError(
            "the batch is padded on the right, or attention_mask has holes (generate makes them "
            "where a prompt holds the padding id): set padding_side='left' and pass the mask"
        )
    if positions is None:
        positions = (mask.long().cumsum(1) - 1).clamp_min(0)[:, past:]
    return Prompt(ids, embeds, mask, positions.expand(batch, length))


def prefill(
    model: PreTrainedModel,
    maps: FillMaps,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    plan: RowPlan | None = None,
    cache: Cache | None = None,
    *,
    strict: bool = True,
) -> Prefilled:
    """Prefill a prompt with filled late-layer caches. See `Filler` and `Filler.prefill`.

    For more than one prompt keep a `Filler`: it checks the model and folds the maps only once.
    """
    return Filler(model, maps, strict=strict).prefill(input_ids, attention_mask, plan, cache)
