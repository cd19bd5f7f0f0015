"""Documents to measure losses on: windows of the user's texts, drawn without holding the texts."""

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ridgefill.core.errors import NotEnoughTextError

_NONE = torch.empty(1, 0, dtype=torch.int64)


class Document(NamedTuple):
    """A text and what it is reported under, such as its kind or where it comes from."""

    source: str
    text: str


@dataclass(frozen=True)
class Window:
    """``length + 1`` tokens of a document: a prompt, and the token after it.

    input_ids int64 ``[1, length + 1]``; ``document`` and ``number`` count from 0.
    """

    source: str
    document: int
    number: int
    length: int
    input_ids: Tensor

    @property
    def id(self) -> str:
        return f"loss/{self.length}/{self.document}-{self.number}"


@dataclass(order=True)
class _Candidate:
    """A window by its place in the draw; the heap's root is the one to give up first."""

    minus_key: int
    window: Window = field(compare=False)


def draw_windows(
    tokenizer: Any, documents: Iterable[Document], lengths: Sequence[int], count: int, seed: int = 0
) -> dict[int, list[Window]]:
    """``count`` windows per length, drawn evenly from those that documents can be cut into.

    Long documents are cut into windows without overlap, each behind the tokenizer's own first
    token. The documents are read once and one at a time; memory grows with ``count`` alone. A
    larger ``count`` gives the same windows and more; which are drawn depends on the seed and on a
    window's place alone.

    Raises NotEnoughTextError, naming the longest document, when a length has no window at all.
    """
    first = first_tokens(tokenizer)
    heaps: dict[int, list[_Candidate]] = {length: [] for length in lengths}
    longest = 0
    for number, document in enumerate(documents):
        ids = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        longest = max(longest, len(ids) + len(first))
        for length, heap in heaps.items():
            _offer(heap, first, ids, Window(document.source, number, 0, length, _NONE), count, seed)
    for length, heap in heaps.items():
        if not heap:
            raise NotEnoughTextError(
                f"no document has the {length + 1} tokens that a prompt of {length} needs (the "
                f"longest has {longest}): give longer documents or smaller lengths"
            )
    return {length: _in_draw_order(heap) for length, heap in heaps.items()}


def _in_draw_order(heap: list[_Candidate]) -> list[Window]:
    return [candidate.window for candidate in sorted(heap, key=lambda c: -c.minus_key)]


def _offer(
    heap: list[_Candidate],
    first: list[int],
    ids: list[int],
    blank: Window,
    count: int,
    seed: int,
) -> None:
    """Put the windows of one document on the heap; ``blank`` has all of them but their tokens."""
    body = blank.length + 1 - len(first)
    for number in range(len(ids) // body):
        minus_key = -_key(seed, blank.length, blank.document, number)
        if len(heap) == count and minus_key < heap[0].minus_key:
            continue
        tokens = torch.tensor([[*first, *ids[number * body : (number + 1) * body]]])
        heapq.heappush(heap, _Candidate(minus_key, replace(blank, number=number, input_ids=tokens)))
        if len(heap) > count:
            heapq.heappop(heap)


def _key(*parts: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")


def first_tokens(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a text; empty without any."""
    ids = tokenizer("a")["input_ids"]
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    at = next((i for i in range(len(ids)) if ids[i : i + len(bare)] == bare), 0)
    return list(ids[:at])
