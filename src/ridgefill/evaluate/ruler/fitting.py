"""Drafts of prompts, and the largest one that fits a token budget."""

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.prompting import Encoded, Prompter


@dataclass(frozen=True)
class Mark:
    """Characters ``start`` to ``stop - 1`` of a draft's text tell ``references[reference]``."""

    reference: int
    start: int
    stop: int


@dataclass(frozen=True)
class Draft:
    """A prompt as text: the user's part, the first words of the answer, and the right answers."""

    text: str
    prefix: str
    references: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def generator(*parts: object) -> random.Random:
    """A random generator that depends on ``parts`` alone, the same in every process."""
    return random.Random(hashlib.sha256(repr(parts).encode()).digest())


def fit(
    prompter: Prompter, draft: Callable[[int], Draft], least: int, most: int, room: int, name: str
) -> tuple[Draft, Encoded]:
    """The draft with the most units of haystack that has at most ``room`` prompt tokens.

    Args:
        prompter: tokenises.
        draft: a draft with so many units; more units are more tokens, nearly always.
        least, most: units that can be asked for.
        room: tokens of the prompt.
        name: of the sample, for the error.

    Raises NotEnoughTextError when even ``least`` units do not fit.
    """

    def encode(units: int) -> tuple[Draft, Encoded]:
        made = draft(units)
        return made, prompter.encode(made.text, made.prefix)

    best = encode(least)
    tokens = best[1].input_ids.shape[1]
    if tokens > room:
        raise NotEnoughTextError(
            f"{name}: the shortest prompt has {tokens} tokens but the budget leaves {room}: use a "
            "larger length"
        )
    low, high = least, most + 1
    guess = _extrapolate(encode, best, least, most, room)
    while high - low > 1:
        middle = guess if low < guess < high else (low + high) // 2
        made = encode(middle)
        tokens = made[1].input_ids.shape[1]
        if tokens > room:
            high = middle
        else:
            low, best = middle, made
        guess = low + max((room - tokens) * (middle - least) // max(tokens, 1), 1)
    return best


def _extrapolate(
    encode: Callable[[int], tuple[Draft, Encoded]],
    smallest: tuple[Draft, Encoded],
    least: int,
    most: int,
    room: int,
) -> int:
    """A first guess at the units, from the tokens of a few more than the least."""
    probe = min(least + 32, most)
    if probe == least:
        return least
    base = smallest[1].input_ids.shape[1]
    per_unit = (encode(probe)[1].input_ids.shape[1] - base) / (probe - least)
    return least + int((room - base) / max(per_unit, 1e-3))
