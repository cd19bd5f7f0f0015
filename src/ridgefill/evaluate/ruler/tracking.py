"""Variable tracking: which variables hold a value, through a chain of assignments in noise."""

import random
import string
from itertools import pairwise

from ridgefill.evaluate.ruler.fitting import Draft, Mark
from ridgefill.evaluate.ruler.niah import NOISE

NEW_TOKENS = 30
HOPS = 4
EXAMPLE_TOKENS = 500
"""Tokens that the worked example before the question may have; a third of shorter budgets."""

_BEFORE = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
_AFTER = "\nQuestion: Find all variables that are assigned the value {value} in the text above."
_PREFIX = (
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables"
    " are assgined the value {value}, they are:"
)
"""As published, with its spelling; but without a space at the end, which is a token of its own."""


def chain(draw: random.Random, letters: int) -> tuple[list[str], list[str], str]:
    """Distinct variables, the statements that assign them one from another, and the value."""
    names: list[str] = []
    while len(names) < HOPS + 1:
        name = "".join(draw.choices(string.ascii_uppercase, k=letters))
        if name not in names:
            names.append(name)
    value = str(draw.randint(10_000, 99_998))
    first = f"VAR {names[0]} = {value}"
    return names, [first, *(f"VAR {b} = VAR {a} " for a, b in pairwise(names))], value


def question(draw: random.Random, count: int, letters: int = 5) -> Draft:
    """A chain hidden in ``count`` noise sentences, its statements in order."""
    names, statements, value = chain(draw, letters)
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


def example(draw: random.Random, count: int) -> str:
    """A worked example with its answer; its variables are of three letters."""
    made = question(draw, count, letters=3)
    return f"{made.text}{made.prefix} {' '.join(made.references)}\n\n"


def draft(draw: random.Random, count: int, shown: str) -> Draft:
    """A question behind the worked example ``shown``."""
    made = question(draw, count)
    marks = [Mark(m.reference, m.start + len(shown), m.stop + len(shown)) for m in made.marks]
    return Draft(shown + made.text, made.prefix, made.references, tuple(marks), made.facts)
