"""Splice tests: which part of a filled cache carries the error.

The cache of the rows before the tail is taken from a filled prefill, one part of it is swapped for
the exact prefill's, and the tail runs on the result. How much of the gap between filled and exact
that closes is the part's share of the damage. Parts are measured one at a time, so that shares
need not add up to one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ridgefill.core.engine import Method, SpliceEngine
from ridgefill.core.errors import RidgeFillError

ALL = "all"
"""Every state of a layer, exact."""

Swap = Callable[[Tensor, Tensor], Tensor]


def _take(filled: Tensor, exact: Tensor) -> Tensor:
    return exact


def _take_scale(filled: Tensor, exact: Tensor) -> Tensor:
    """The filled rows' directions at the exact rows' lengths."""
    return filled * _safe_ratio(_length(exact), _length(filled))


def _take_direction(filled: Tensor, exact: Tensor) -> Tensor:
    """The exact rows' directions at the filled rows' lengths."""
    return exact * _safe_ratio(_length(filled), _length(exact))


def _length(states: Tensor) -> Tensor:
    return torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32)


def _safe_ratio(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b > 0, a / b, torch.ones_like(b))


SWAPS: Mapping[str, tuple[str, Swap]] = {
    "keys": ("keys", _take),
    "key-scale": ("keys", _take_scale),
    "key-direction": ("keys", _take_direction),
    "values": ("values", _take),
    "conv-state": ("conv_state", _take),
    "recurrent-state": ("recurrent_state", _take),
}
"""Per component, the state it is a part of and how the exact part is put into the filled state.

Scale and direction are per row and head; a rotary embedding changes neither a key's length nor
whether two keys point the same way.
"""


@dataclass(frozen=True)
class Splice:
    """Exact ``component`` (of `SWAPS`, or `ALL`) in layers ``first`` to ``last``, both included."""

    component: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.component not in (*SWAPS, ALL):
            raise RidgeFillError(
                f"unknown component {self.component!r} to splice: use {', '.join((*SWAPS, ALL))}"
            )
        if not 0 <= self.first <= self.last:
            raise RidgeFillError(
                f"layers {self.first} to {self.last} are no range: start from 0, the lower first"
            )


class Splicer:
    """The exact and the filled cache of one prompt before its tail, to be mixed.

    Rows before the tail that run exact under the plan are swapped too: those after filled rows
    have seen them.

    Args:
        engine: an engine whose caches can be read.
        method: how the filled cache is made.
        input_ids: the prompt, int64 ``[1, seq]``.
        tail: the last rows, which run on the mixed cache.
    """

    def __init__(self, engine: SpliceEngine, method: Method, input_ids: Tensor, tail: int) -> None:
        self.engine, self.rows = engine, input_ids[:, -tail:]
        self.exact = engine.before_tail(input_ids, Method("exact"), tail)
        self.filled = engine.before_tail(input_ids, method, tail)

    def components(self, layers: Sequence[int]) -> tuple[str, ...]:
        """The components that any of ``layers`` has."""
        held = {name for layer in layers for name in self._names(layer)}
        return tuple(name for name, (state, _) in SWAPS.items() if state in held)

    def logits(self, splice: Splice | None, keep: int | None = None) -> tuple[Any, Tensor]:
        """The tail run on the mixed cache: that cache, and its last logits ``[1, keep, vocab]``.

        By default those of the whole tail. None splices nothing: the filled prefill itself.
        """
        cache = deepcopy(self.filled)
        if splice is not None:
            for layer in range(splice.first, splice.last + 1):
                self._swap(cache, layer, splice.component)
        return cache, self.engine.forward(self.rows, cache, keep)

    def exact_logits(self, keep: int | None = None) -> tuple[Any, Tensor]:
        """The tail run on the exact cache, as in `logits`."""
        cache = deepcopy(self.exact)
        return cache, self.engine.forward(self.rows, cache, keep)

    def _names(self, layer: int) -> list[str]:
        """Names of a layer's states, several of one kind taken as one."""
        return [name.split(".")[0] for name in self.engine.layer_states(self.filled, layer)]

    def _swap(self, cache: Any, layer: int, component: str) -> None:
        ours = self.engine.layer_states(cache, layer)
        exact = self.engine.layer_states(self.exact, layer)
        for name, state in ours.items():
            swap = self._swap_of(component, name.split(".")[0])
            if swap is not None:
                state.copy_(swap(state, exact[name].to(state.device)))

    @staticmethod
    def _swap_of(component: str, state: str) -> Swap | None:
        if component == ALL:
            return _take
        owner, swap = SWAPS[component]
        return swap if owner == state else None


def splices(
    components: Sequence[str], split: int, layers: int, by_layer: bool
) -> Iterator[Splice | None]:
    """Nothing, then everything and each component in all late layers, then layer by layer.

    Layer by layer only whole states are swapped: scale and direction say what is wrong with keys,
    not where.
    """
    yield None
    for component in (ALL, *components):
        yield Splice(component, split, layers - 1)
    if by_layer and split < layers - 1:
        whole = [name for name in components if SWAPS[name][1] is _take]
        for component in (ALL, *whole):
            for layer in range(split, layers):
                yield Splice(component, layer, layer)
