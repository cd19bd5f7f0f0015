"""A late layer during the fill of one chunk: fill the filled rows, run the exact ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ridgefill.core.errors import UnsupportedError
from ridgefill.core.rows import ChunkRows
from ridgefill.engines.transformers.cache import FillCache, FillLayer, causal_rows_mask
from ridgefill.engines.transformers.compat import LAYER_CACHE_NAMES
from ridgefill.engines.transformers.decoder import Wrapper, device_of
from ridgefill.engines.transformers.families import Family
from ridgefill.engines.transformers.predict import Predictor

_ROW_AXIS = {"position_embeddings": 1, "position_ids": 1, "attention_mask": 2}


@dataclass
class FillRun:
    """What the late layers share while one prompt is filled. ``past`` counts cached tokens."""

    family: Family
    predictor: Predictor
    cache: FillCache
    split: int
    past: int
    rows: ChunkRows = field(init=False)
    states: dict[int, Tensor] = field(default_factory=dict)
    sources: Tensor = field(init=False)

    def gather_sources(self) -> None:
        """Concatenate the sources of the filled rows, ``[batch, rows, features]``."""
        parts = [self.states[index] for index in self.predictor.sources]
        device = self.states[self.split].device
        self.sources = torch.cat([self.rows.take_filled(p.to(device)) for p in parts], dim=-1)
        self.states.clear()

    def filled_columns(self) -> Tensor:
        """Columns of the filled rows in the prompt."""
        rows = self.rows
        relative = torch.arange(rows.stop - rows.start) if rows.filled is None else rows.filled
        return relative + rows.start - self.past


class LateLayer(Wrapper):
    """Takes the place of late layer ``index`` while the filled region of a prompt is processed.

    The split layer receives every row of the chunk; what it returns, and every later layer
    receives, is the exact rows alone.
    """

    def __init__(self, layer: nn.Module, index: int, is_last: bool, run: FillRun) -> None:
        super().__init__(layer)
        self.index, self.is_last, self.run = index, is_last, run

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args:
            raise UnsupportedError(
                "the decoder passes positional arguments to its layers, which ridgefill cannot cut "
                "to rows"
            )
        rows, slot = self.run.rows, self.run.cache.fill_layers[self.index]
        if self.index == self.run.split:
            self._fill_split(slot, hidden, kwargs)
            hidden = rows.take_exact(hidden)
        elif rows.has_filled:
            self._fill(slot, kwargs)
        if rows.has_exact:
            hidden = self._run_exact(slot, hidden, kwargs)
        slot.seen = rows.stop
        return hidden

    def _fill_split(self, slot: FillLayer, hidden: Tensor, kwargs: Mapping[str, Any]) -> None:
        """The split layer's input is exact, so its filled rows need no map."""
        run = self.run
        if not run.rows.has_filled:
            return
        run.states[self.index] = hidden
        run.gather_sources()
        call = _cut(kwargs, run.rows.take_filled)
        states = run.rows.take_filled(hidden)
        slot.fill(run.rows, *run.family.from_input(self.layer, states, call))

    def _fill(self, slot: FillLayer, kwargs: Mapping[str, Any]) -> None:
        run = self.run
        device = device_of(self.layer, run.sources.device)
        run.sources = run.sources.to(device)
        call = _cut(kwargs, lambda states, dim: run.rows.take_filled(states.to(device), dim))
        predicted = run.predictor.keys_values(
            self.index, self.layer, run.sources, run.filled_columns(), call
        )
        slot.fill(run.rows, *predicted)

    def _run_exact(self, slot: FillLayer, hidden: Tensor, kwargs: Mapping[str, Any]) -> Tensor:
        """Run the exact rows in full; the last layer's output is needed by none of them."""
        rows = self.run.rows
        call = _cut(kwargs, rows.take_exact)
        slot.rows = rows
        try:
            if self.is_last:
                slot.update(*self.run.family.from_input(self.layer, hidden, call))
                return hidden
            mask = kwargs.get("attention_mask")
            call["attention_mask"] = (
                causal_rows_mask(rows, slot, hidden.device)
                if mask is None
                else rows.take_exact(mask, _ROW_AXIS["attention_mask"])
            )
            return self.layer(hidden, **call)
        finally:
            slot.rows = None


def _cut(kwargs: Mapping[str, Any], take: Callable[[Tensor, int], Tensor]) -> dict[str, Any]:
    """The layer's keyword arguments for some rows; the attention mask is left out.

    Raises UnsupportedError for a tensor whose axes are unknown.
    """
    cut: dict[str, Any] = {}
    for name, value in kwargs.items():
        axis = _ROW_AXIS.get(name)
        if name == "attention_mask":
            cut[name] = None
        elif axis is not None and isinstance(value, tuple):
            cut[name] = tuple(take(part, axis) for part in value)
        elif axis is not None and isinstance(value, Tensor):
            cut[name] = take(value, axis)
        elif isinstance(value, Tensor) and name not in LAYER_CACHE_NAMES:
            raise UnsupportedError(
                f"the decoder passes {name!r} to its layers, which ridgefill cannot cut to rows"
            )
        else:
            cut[name] = value
    return cut
