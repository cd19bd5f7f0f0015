"""Drafts of prompts, and the largest one that fits a token budget."""

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.prompting import Encoded, Prompter

_PROBE = 32
_GUESSES = 6


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


Drafter = Callable[[random.Random, int], Draft]


@dataclass(frozen=True)
class Plan:
    """How to make one sample.

    Args:
        draft: a draft with so many units of haystack (words, sentences, documents).
        least, most: the units to choose from; there are never fewer than ``least``.
        scarce: why there are no more than ``most`` units, where a prompt that is short for want
            of them is an error; empty where it is as published.
    """

    draft: Drafter
    least: int
    most: int
    scarce: str = ""


Planner = Callable[[int, int], Sequence[Plan]]
"""The plans of a task's sample by length and index, the best first."""


@dataclass(frozen=True)
class Fitted:
    """A draft that fits: its plan, its units, and its tokens."""

    plan: Plan
    units: int
    draft: Draft
    encoded: Encoded

    @property
    def tokens(self) -> int:
        return int(self.encoded.input_ids.shape[1])


def generator(*parts: object) -> random.Random:
    """A random generator that depends on ``parts`` alone, the same in every process."""
    return random.Random(hashlib.sha256(repr(parts).encode()).digest())


def fit(
    prompter: Prompter,
    plans: Sequence[Plan],
    draw: Callable[[], random.Random],
    room: int,
    name: str,
) -> Fitted:
    """The draft with the most units of haystack that has at most ``room`` prompt tokens.

    Args:
        prompter: tokenises.
        plans: the first whose shortest draft fits is taken.
        draw: the random generator that every draft starts from.
        room: tokens of the prompt.
        name: of the sample, for the error.

    What it returns was counted; one unit more does not fit, or there is none. Raises
    NotEnoughTextError when no plan's shortest draft fits.
    """
    fewest = 0
    for plan in plans:

        def measure(units: int, plan: Plan = plan) -> Fitted:
            made = plan.draft(draw(), units)
            return Fitted(plan, units, made, prompter.encode(made.text, made.prefix))

        shortest = measure(plan.least)
        if shortest.tokens <= room:
            return _largest(measure, shortest, room)
        fewest = shortest.tokens
    raise NotEnoughTextError(
        f"{name}: the shortest prompt has {fewest} tokens but the budget leaves {room}: use a "
        "larger length"
    )


def _largest(measure: Callable[[int], Fitted], shortest: Fitted, room: int) -> Fitted:
    """By tokens per unit, which nearly always ends in a few steps; then by halving, which must.

    More units are more tokens, nearly always.
    """
    best, high, tries = shortest, shortest.plan.most + 1, 0
    guess = shortest.units + _PROBE
    while high - best.units > 1:
        tries += 1
        if tries > _GUESSES:
            guess = (best.units + high) // 2
        made = measure(min(max(guess, best.units + 1), high - 1))
        if made.tokens > room:
            high = made.units
        else:
            best = made
        rate = max((made.tokens - shortest.tokens) / (made.units - shortest.units), 0.01)
        guess = made.units + math.floor((room - made.tokens) / rate)
    return best
