"""A transformers model behind the protocol that evaluation and benchmarks use."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from ridgefill.core.engine import Method
from ridgefill.core.errors import RidgeFillError
from ridgefill.core.maps import FillMaps
from ridgefill.engines.transformers.costs import ideal_speedup, model_cost
from ridgefill.engines.transformers.filler import CHUNK_SIZE, Filler, make_prompt, stock_forward


class TransformersEngine:
    """One model and the fillers of every set of maps used with it.

    Args:
        model: a causal language model in eval mode.
        chunk_size: see `Filler`.
        strict: see `Filler`.
    """

    def __init__(
        self, model: PreTrainedModel, chunk_size: int = CHUNK_SIZE, strict: bool = True
    ) -> None:
        self.model, self.chunk_size, self.strict = model, chunk_size, strict
        self.cost = model_cost(model)
        self._fillers: dict[int, Filler] = {}

    def filler(self, maps: FillMaps) -> Filler:
        """The filler of these maps, built on first use."""
        if id(maps) not in self._fillers:
            self._fillers[id(maps)] = Filler(
                self.model, maps, chunk_size=self.chunk_size, strict=self.strict
            )
        return self._fillers[id(maps)]

    @torch.no_grad()
    def prefill(self, input_ids: Tensor, method: Method, keep: int = 1) -> tuple[Any, Tensor]:
        input_ids = input_ids.to(self.model.device)
        if method.maps is None:
            prompt = make_prompt(input_ids, None, None, None, 0)
            return stock_forward(self.model, self._new_cache(), prompt, keep)
        return self.filler(method.maps).prefill(input_ids, plan=method.plan, keep=keep)

    @torch.no_grad()
    def before_tail(self, input_ids: Tensor, method: Method, tail: int) -> Any:
        input_ids, cache = input_ids.to(self.model.device), self._new_cache()
        if method.maps is None:
            prompt = make_prompt(input_ids[:, : -tail or None], None, None, None, 0)
            return stock_forward(self.model, cache, prompt).cache
        filler = self.filler(method.maps)
        plan = replace(method.plan or filler.default_plan, tail=tail)
        if not filler.fill(cache, make_prompt(input_ids, None, None, None, 0), plan):
            raise RidgeFillError(
                f"{method.name!r} fills nothing of {input_ids.shape[1]} tokens with a tail of "
                f"{tail}: use longer prompts or a shorter tail"
            )
        return cache

    def layer_states(self, cache: Any, layer: int) -> dict[str, Tensor]:
        held = cache.layers[layer]
        states = {name: getattr(held, name, None) for name in ("keys", "values")}
        for name, per_index in (
            ("conv_state", "conv_states"),
            ("recurrent_state", "recurrent_states"),
        ):
            for index, state in getattr(held, per_index, {}).items():
                states[f"{name}.{index}" if index else name] = state
        return {name: state for name, state in states.items() if state is not None}

    def _new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.model.config.get_text_config(decoder=True))

    @torch.no_grad()
    def forward(self, input_ids: Tensor, cache: Any, keep: int | None = None) -> Tensor:
        input_ids = input_ids.to(self.model.device)
        prompt = make_prompt(input_ids, None, None, None, cache.get_seq_length())
        return stock_forward(self.model, cache, prompt, keep or input_ids.shape[1]).logits

    def ideal(self, method: Method, length: int) -> float:
        if method.maps is None:
            return 1.0
        filler = self.filler(method.maps)
        plan = method.plan or filler.default_plan
        return ideal_speedup(self.cost, method.maps, filler.predictor.folded, plan, length)
