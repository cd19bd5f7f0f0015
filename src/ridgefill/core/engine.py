"""All that evaluation and benchmarks know of an engine."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan


class Method(NamedTuple):
    """One way to prefill: ``maps`` under a ``plan``, or the exact prefill when both are None."""

    name: str
    maps: FillMaps | None = None
    plan: RowPlan | None = None


class Engine(Protocol):
    """Prefills prompts by a method and decodes from the result."""

    def prefill(self, input_ids: Tensor, method: Method, keep: int = 1) -> tuple[Any, Tensor]:
        """Prefill int64 ``[1, seq]``; a decodable cache, and logits ``[1, keep, vocab]``."""
        ...

    def forward(self, input_ids: Tensor, cache: Any, keep: int | None = None) -> Tensor:
        """Run more tokens ``[1, seq]`` on a cache, exactly.

        Returns the logits ``[1, keep, vocab]`` of the last rows, by default of all of them.
        """
        ...

    def ideal(self, method: Method, length: int) -> float:
        """The ideal speed-up of the method on a prompt of ``length`` tokens."""
        ...


class SpliceEngine(Engine, Protocol):
    """An engine whose caches can be read and changed before the tail runs."""

    def before_tail(self, input_ids: Tensor, method: Method, tail: int) -> Any:
        """The cache of every row of int64 ``[1, seq]`` before the last ``tail``.

        Running `forward` on those last rows then completes the method's prefill.
        """
        ...

    def layer_states(self, cache: Any, layer: int) -> dict[str, Tensor]:
        """A layer's tensors in ``cache`` by name, to be read or changed in place.

        ``keys`` and ``values`` ``[1, kv_heads, seq, head_dim]``, or ``conv_state`` and
        ``recurrent_state`` of a linear-attention layer.
        """
        ...
