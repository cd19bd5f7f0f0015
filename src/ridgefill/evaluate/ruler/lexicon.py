"""Words, numbers and uuids that needles are made of."""

import random
import uuid
from collections.abc import Callable, Collection
from functools import lru_cache

from ridgefill.core.errors import RidgeFillError


@lru_cache
def words(*kinds: str) -> tuple[str, ...]:
    """English words of some kinds (``noun``, ``adjective``, ``verb``), sorted.

    Answers are scored whatever their case, so of words that differ in it alone one is kept.

    Raises RidgeFillError when the package that holds them is missing.
    """
    try:
        from wonderwords import RandomWord
    except ImportError:
        raise RidgeFillError(
            "the package wonderwords is needed for RULER's words: pip install 'ridgefill[eval]'"
        ) from None
    listed = RandomWord().filter(include_categories=list(kinds))
    return tuple(sorted({word.lower(): word for word in sorted(listed)}.values()))


def word(draw: random.Random) -> str:
    """An adjective and a noun, as in ``quiet-river``."""
    return f"{draw.choice(words('adjective'))}-{draw.choice(words('noun'))}"


def number(draw: random.Random) -> str:
    """Seven digits."""
    return str(draw.randint(10**6, 10**7 - 1))


def identifier(draw: random.Random) -> str:
    """A version 4 uuid."""
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "words": word,
    "numbers": number,
    "uuids": identifier,
}


def fresh(draw: random.Random, kind: str, taken: Collection[str]) -> str:
    """A needle part of a kind that is not ``taken``."""
    while (made := KINDS[kind](draw)) in taken:
        pass
    return made
