"""RULER's scoring rules: every reference found, or any of them."""

import re
from collections.abc import Callable, Sequence

Score = tuple[float, Sequence[float]]
Rule = Callable[[str, Sequence[str]], Score]

_CONTROL = re.compile(r"[\x00-\x1f]")


def clean(prediction: str) -> str:
    """The answer as it is scored: control characters are line breaks, the ends are bare."""
    return _CONTROL.sub("\n", prediction.strip()).strip()


def string_match_all(prediction: str, references: Sequence[str]) -> Score:
    """The share of references that occur in the answer, whatever their case."""
    found = _found(prediction, references)
    return sum(found) / len(found), found


def string_match_part(prediction: str, references: Sequence[str]) -> Score:
    """1 when any reference occurs in the answer: they are ways to say the same thing.

    So each of them counts as found then.
    """
    score = max(_found(prediction, references))
    return score, [score] * len(references)


def _found(prediction: str, references: Sequence[str]) -> list[float]:
    answer = clean(prediction).lower()
    return [float(reference.lower() in answer) for reference in references]
