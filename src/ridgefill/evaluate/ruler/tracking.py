"""Variable tracking: which variables hold a value, through a chain of assignments in noise."""

import random
import string
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler.fitting import Draft, Mark, Plan, Planner, fit, generator
from ridgefill.evaluate.ruler.niah import NOISE

NEW_TOKENS = 30
HOPS = 4
EXAMPLE_TOKENS = 500
"""Tokens that the worked example may have: as published, but a third of budgets below 1500.

The smallest example may have more than that third.
"""

_BEFORE = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
_AFTER = "\nQuestion: Find all variables that are assigned the value {value} in the text above."
_PREFIX = (
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables"
    " are assgined the value {value}, they are:"
)
"""As published, with its spelling; but without a space at the end, which is a token of its own."""


def planner(prompter: Prompter, seed: int) -> Planner:
    """Questions behind a worked example. The units are sentences of noise."""

    def plans(length: int, index: int) -> list[Plan]:
        parts = (seed, "vt example", length, index)
        shown = _example(prompter, lambda: generator(*parts), length)
        return [Plan(partial(draft, shown=shown), HOPS + 1, length)]

    return plans


def _example(prompter: Prompter, draw: Callable[[], random.Random], length: int) -> str:
    """A worked example with its answer, as long as it may be."""
    least = HOPS + 1
    smallest = prompter.count(example(draw(), least).text)
    room = max(min(EXAMPLE_TOKENS, length // 3), smallest)
    return fit(prompter, [Plan(example, least, room)], draw, room, "vt example").draft.text


def example(draw: random.Random, count: int) -> Draft:
    """A question in ``count`` sentences and its answer; its variables are of three letters."""
    made = question(draw, count, letters=3)
    return Draft(f"{made.text}{made.prefix} {' '.join(made.references)}\n\n", "", ())


def draft(draw: random.Random, count: int, shown: str) -> Draft:
    """A question in ``count`` sentences behind the worked example ``shown``."""
    made = question(draw, count, letters=5, shown=shown)
    marks = [Mark(m.reference, m.start + len(shown), m.stop + len(shown)) for m in made.marks]
    facts = {**made.facts, "example_noises": shown.count(NOISE), "noises": count}
    return Draft(shown + made.text, made.prefix, made.references, tuple(marks), facts)


def question(draw: random.Random, count: int, letters: int, shown: str = "") -> Draft:
    """A chain hidden in ``count`` sentences of noise, its statements in order."""
    names, statements, value = chain(draw, letters, shown)
    places = sorted(draw.sample(range(count), len(statements)))
    pieces = [NOISE + "\n"] * count
    for number, (place, statement) in enumerate(zip(places, statements, strict=True)):
        pieces.insert(place + number, statement)
    text, marks = _BEFORE, list[Mark]()
    for piece in pieces:
        if piece in statements:
            marks.append(Mark(len(marks), len(text), len(text) + len(piece)))
        text += piece + " "
    return Draft(
        text.removesuffix(" ") + _AFTER.format(value=value),
        _PREFIX.format(count=len(names), value=value),
        tuple(names),
        tuple(marks),
        {"haystack": "noise", "value": value, "hops": HOPS},
    )


def chain(draw: random.Random, letters: int, shown: str) -> tuple[list[str], list[str], str]:
    """Distinct variables, the statements that assign them one from another, and the value.

    The value is another than the one of the example ``shown``.
    """
    names: list[str] = []
    while len(names) < HOPS + 1:
        name = "".join(draw.choices(string.ascii_uppercase, k=letters))
        if name not in names:
            names.append(name)
    while (value := str(draw.randint(10_000, 99_998))) in shown:
        pass
    first = f"VAR {names[0]} = {value}"
    return names, [first, *(f"VAR {b} = VAR {a} " for a, b in pairwise(names))], value
