"""Filling under an unchanged ``model.generate`` or ``pipeline``, by a forward pre-hook.

The hook fills the cache for everything before the tail and leaves the tail to the stock forward,
so a prompt that is not longer than sinks and tail is bit-equal to stock.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn
from transformers import DynamicCache, PreTrainedModel

from ridgefill.core.errors import UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import Chosen, RowPlan
from ridgefill.engines.transformers.cache import check_cache
from ridgefill.engines.transformers.compat import accepts, cache_name, cache_of
from ridgefill.engines.transformers.filler import Filler, make_prompt

_REFUSED = {
    "labels": "a loss needs the logits of every row",
    "output_hidden_states": "filled rows have no hidden states after the split",
    "output_attentions": "filled rows have no attention after the split",
}


@contextmanager
def attach(
    model: PreTrainedModel,
    maps: FillMaps,
    tail: int | None = None,
    sinks: int | None = None,
    chosen: Chosen = None,
    strict: bool = True,
) -> Iterator[PreTrainedModel]:
    """While open, ``model.generate(...)`` and pipelines fill prompts longer than sinks + tail.

    Args:
        model, maps, strict: as for `Filler`.
        tail, sinks: exact rows at the end and start; default: the maps' own.
        chosen: more exact rows, by column of each prompt's ``input_ids``; see `RowPlan`.

    Under it, ``labels``, ``output_hidden_states``, ``output_attentions``, logits of every row and
    caches other than a plain `DynamicCache` raise UnsupportedError. ``prefill_chunk_size`` is not
    needed: fills are chunked, and it would make each chunk a prompt with a tail of its own.
    """
    filler = Filler(model, maps, strict=strict)
    default = filler.default_plan
    plan = RowPlan(
        tail=default.tail if tail is None else tail,
        sinks=default.sinks if sinks is None else sinks,
        chosen=chosen,
    )
    with attached(filler, plan):
        yield model


@contextmanager
def attached(filler: Filler, plan: RowPlan) -> Iterator[PreTrainedModel]:
    """The hook of one filler and plan, removed at exit. Refused while another one is there."""
    if any(isinstance(hook, _FillHook) for hook in filler.model._forward_pre_hooks.values()):
        raise UnsupportedError(
            f"{type(filler.model).__name__} already has fill maps attached: leave that block first"
        )
    hook = _FillHook(filler, plan)
    handle = filler.model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield filler.model
    finally:
        handle.remove()


class _FillHook:
    def __init__(self, filler: Filler, plan: RowPlan) -> None:
        self.filler, self.plan = filler, plan
        self.signature = inspect.signature(filler.model.forward)

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        call = _arguments(self.signature, args, kwargs)
        _check_outputs(call)
        ids, embeds = call.get("input_ids"), call.get("inputs_embeds")
        given = ids if ids is not None else embeds
        plan = self._plan(call)
        if given is None or given.shape[1] <= plan.tail:
            return None
        if call.get("use_cache") is False:
            raise UnsupportedError("there is no cache to fill with use_cache=False: leave it on")
        cache = cache_of(call)
        if cache is None:
            cache = DynamicCache(config=self.filler.decoder.config)
        past = check_cache(cache, len(self.filler.decoder.layers))
        mask, positions = call.get("attention_mask"), call.get("position_ids")
        _check_mask(mask, positions)
        done = self.filler.fill(cache, make_prompt(ids, embeds, mask, positions, past), plan)
        if done:
            _check_logits(module, call)
        return (), _tail_call(module, call, cache, done)

    def _plan(self, call: dict[str, Any]) -> RowPlan:
        """The plan for a call: tokens an assistant proposes lie after the prompt's tail."""
        keep = call.get("logits_to_keep", 1)
        proposed = keep - 1 if isinstance(keep, int) and keep > 1 else 0
        return replace(self.plan, tail=self.plan.tail + proposed) if proposed else self.plan


def _arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Positional and keyword arguments of a forward call as one dictionary."""
    names = list(signature.parameters)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _check_outputs(call: dict[str, Any]) -> None:
    for name, reason in _REFUSED.items():
        value = call.get(name)
        if value is not None and value is not False:
            raise UnsupportedError(
                f"{name} is not available under attach: {reason}; call it outside"
            )


def _check_mask(mask: Any, positions: Any) -> None:
    if mask is not None and (isinstance(mask, dict) or mask.dim() != 2):
        raise UnsupportedError("attention_mask must be [batch, seq] under attach, not a 4-D mask")
    if positions is not None and positions.dim() != 2:
        raise UnsupportedError("position_ids must be [batch, seq] under attach")


def _check_logits(module: nn.Module, call: dict[str, Any]) -> None:
    """Filled rows have no logits, so a caller must not expect any."""
    keep = call.get("logits_to_keep", 0)
    if accepts(module, "logits_to_keep") and (not isinstance(keep, int) or keep == 0):
        raise UnsupportedError(
            "logits of every row are not available under attach, filled rows have none: pass "
            "logits_to_keep=1, or call the model outside"
        )


def _tail_call(
    module: nn.Module, call: dict[str, Any], cache: DynamicCache, done: int
) -> dict[str, Any]:
    """The stock call on what is left after ``done`` columns were filled."""
    call = {name: value for name, value in call.items() if value is not cache}
    for name in ("input_ids", "inputs_embeds", "position_ids"):
        if call.get(name) is not None:
            call[name] = call[name][:, done:]
    call[cache_name(module)] = cache
    return call
