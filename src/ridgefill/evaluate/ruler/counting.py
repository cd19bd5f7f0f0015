"""Counting tasks: the most common words of a list, and of a coded text."""

import math
import random
import string
from dataclasses import dataclass
from functools import partial

from ridgefill.evaluate.ruler.fitting import Draft, Plan
from ridgefill.evaluate.ruler.lexicon import words

COMMON_NEW_TOKENS, CODED_NEW_TOKENS = 120, 50
COMMON_WORDS = 10
CODED_WORDS = 3
ALPHA = 2.0

_COMMON_BEFORE = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n"
)
_COMMON_AFTER = "\nQuestion: What are the 10 most common words in the above list?"
_COMMON_PREFIX = " Answer: The top 10 words that appear most often in the list are:"

_CODED_BEFORE = (
    "Read the following coded text and track the frequency of each coded word. Find the three most "
    "frequently appeared coded words. "
)
_CODED_AFTER = (
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three "
    "most frequently appeared words in the above coded text?"
)
_CODED_PREFIX = (
    " Answer: According to the coded text above, the three most frequently appeared words are:"
)


@dataclass(frozen=True)
class Scale:
    """How often the common words and the others occur in the list.

    ``example`` is the worked example before it: distinct words, and the same two counts.
    """

    often: int
    seldom: int
    example: tuple[int, int, int]


PUBLISHED = Scale(often=30, seldom=3, example=(40, 10, 3))
SHORT = Scale(often=6, seldom=1, example=(20, 3, 1))
"""Published for budgets below 4096 tokens."""
SHORTEST = Scale(often=3, seldom=1, example=(11, 2, 1))
"""Not published: for budgets that the short lists do not fit in."""


def common_plans(length: int, index: int) -> list[Plan]:
    """Lists on the published scale, or on the first smaller one that fits."""
    scales = (PUBLISHED, SHORT, SHORTEST) if length >= 4096 else (SHORT, SHORTEST)
    most = len(words("noun", "adjective", "verb"))
    return [Plan(partial(common_words, scale=scale), COMMON_WORDS + 1, most) for scale in scales]


def common_words(draw: random.Random, distinct: int, scale: Scale) -> Draft:
    """Ten words often among others seldom, behind a worked example of the same kind."""
    shown, answer = _numbered(draw, *scale.example)
    asked, common = _numbered(draw, distinct, scale.often, scale.seldom)
    worked = " ".join(f"{number}. {word}" for number, word in enumerate(answer, start=1))
    example = f"{_COMMON_BEFORE}{shown}{_COMMON_AFTER}{_COMMON_PREFIX} {worked}\n"
    return Draft(
        f"{example}{_COMMON_BEFORE}{asked}{_COMMON_AFTER}",
        _COMMON_PREFIX,
        tuple(common),
        facts={
            "haystack": "word list",
            "often": scale.often,
            "seldom": scale.seldom,
            "distinct": distinct,
        },
    )


def _numbered(draw: random.Random, distinct: int, often: int, seldom: int) -> tuple[str, list[str]]:
    """A shuffled numbered list, and the words that are in it often."""
    chosen = draw.sample(words("noun", "adjective", "verb"), distinct)
    common, others = chosen[:COMMON_WORDS], chosen[COMMON_WORDS:]
    listed = common * often + others * seldom
    draw.shuffle(listed)
    return " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1)), common


def coded_plans(length: int, index: int) -> list[Plan]:
    """Coded texts of as many words as fit; with too few the ranks would not differ."""
    least = math.ceil(1 / (_frequency(4) - _frequency(5))) + 1
    return [Plan(partial(coded_words, length=length), least, 2 * length)]


def coded_words(draw: random.Random, count: int, length: int) -> Draft:
    """A text of made-up words whose frequencies fall with the square of their rank.

    The first rank is noise (dots); ranks 2 to 4 are the answer. Counts are the published ones:
    rounded down, so that rare words of the vocabulary do not occur.
    """
    vocabulary = _coded_vocabulary(draw, max(length // 50, CODED_WORDS + 2))
    counts = [int(count * _frequency(rank)) for rank in range(1, len(vocabulary) + 1)]
    text = [word for word, times in zip(vocabulary, counts, strict=True) for _ in range(times)]
    draw.shuffle(text)
    answers = tuple(vocabulary[1 : CODED_WORDS + 1])
    return Draft(
        f"{_CODED_BEFORE}{' '.join(text)}{_CODED_AFTER}",
        _CODED_PREFIX,
        answers,
        facts={
            "haystack": "coded text",
            "counts": dict(zip(answers, counts[1:], strict=False)),
            "next_count": counts[CODED_WORDS + 1],
        },
    )


def _frequency(rank: int) -> float:
    zeta = math.pi**2 / 6  # Riemann's zeta function at ALPHA
    return float(rank**-ALPHA) / zeta


def _coded_vocabulary(draw: random.Random, size: int) -> list[str]:
    made: dict[str, None] = {"...": None}
    while len(made) < size:
        made["".join(draw.choices(string.ascii_lowercase, k=6))] = None
    return list(made)
