"""Needles in a haystack: the eight retrieval tasks."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.ruler.fitting import Draft, Mark, Plan, Planner
from ridgefill.evaluate.ruler.lexicon import fresh

NEW_TOKENS = 128
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
DEPTHS = tuple(round(100 * step / 39) for step in range(40))
"""Where needles go in an essay, in percent of its sentences."""

_NEEDLE = "One of the special magic {kind} for {key} is: {value}."
_SEVERAL = (
    "Some special magic {kind} are hidden within the following text. Make sure to memorize it. I "
    "will quiz you about the {kind} afterwards.\n",
    "\nWhat are all the special magic {kind} for {query} mentioned in the provided text?",
    " The special magic {kind} for {query} mentioned in the provided text are",
)
_ONE = (
    "A special magic {kind} is hidden within the following text. Make sure to memorize it. I will "
    "quiz you about the {kind} afterwards.\n",
    "\nWhat is the special magic {kind} for {query} mentioned in the provided text?",
    " The special magic {kind} for {query} mentioned in the provided text is",
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Kind:
    """What a needle task is made of.

    Args:
        haystack: ``noise``, ``essay`` or ``needle`` (other needles).
        key, value: ``words``, ``numbers`` or ``uuids``.
        keys, values, queries: how many keys are hidden, values per key, and keys asked for.
    """

    haystack: str = "essay"
    key: str = "words"
    value: str = "numbers"
    keys: int = 1
    values: int = 1
    queries: int = 1


KINDS = {
    "niah_single_1": Kind(haystack="noise"),
    "niah_single_2": Kind(),
    "niah_single_3": Kind(value="uuids"),
    "niah_multikey_1": Kind(keys=4),
    "niah_multikey_2": Kind(haystack="needle"),
    "niah_multikey_3": Kind(haystack="needle", key="uuids", value="uuids"),
    "niah_multivalue": Kind(values=4),
    "niah_multiquery": Kind(keys=4, queries=4),
}


class Essays:
    """Running text that haystacks are cut from. Raises NotEnoughTextError when there is none."""

    def __init__(self, texts: Sequence[str], label: str) -> None:
        self.label, self._texts = label, texts

    @cached_property
    def words(self) -> list[str]:
        """All words, in order, whatever stood between them."""
        found = [word for text in self._texts for word in text.split()]
        if not found:
            raise NotEnoughTextError("the essay texts hold no words: name other files")
        return found

    def cut(self, start: int, count: int) -> list[str]:
        """``count`` words from ``start`` on; after the last word comes the first."""
        stop = start + count
        return self.words[start:stop] + self.words[: max(stop - len(self.words), 0)]


@dataclass(frozen=True)
class Statement:
    """A sentence of the haystack, or a needle: one that tells a key's value."""

    text: str
    key: str = ""
    value: str = ""


def planner(kind: Kind, essays: Essays) -> Planner:
    """Prompts whose units are words of an essay, or sentences."""
    least = kind.keys * kind.values

    def plans(length: int, index: int) -> list[Plan]:
        made = partial(draft, kind, essays)
        if kind.haystack != "essay":
            return [Plan(made, least, length)]
        held = len(essays.words)
        most = 2 * length
        if held > most:
            return [Plan(made, least, most)]
        scarce = f"the essay texts end after {held} words: give more text or use a smaller length"
        return [Plan(made, least, held, scarce)]

    return plans


def draft(kind: Kind, essays: Essays, draw: random.Random, count: int) -> Draft:
    """A prompt with ``count`` units of haystack.

    Needles in essays go to distinct ones of forty even depths, else between random sentences, as
    published. Published haystacks all begin at the first essay's first word; here each begins at
    another word of the texts, so that samples differ.
    """
    taken: set[str] = set()
    needles = _needles(kind, draw, taken)
    start = draw.randrange(len(essays.words)) if kind.haystack == "essay" else 0
    asked = draw.sample(sorted({needle.key for needle in needles}), kind.queries)
    hidden = draw.sample(needles, len(needles))
    if kind.haystack == "essay":
        pieces, glue = _in_essay(essays.cut(start, count), hidden, draw), " "
    else:
        pieces, glue = _between_sentences(_sentences(kind, draw, count, taken), hidden, draw), "\n"
    return _assemble(kind, essays, pieces, glue, needles, asked)


def _needles(kind: Kind, draw: random.Random, taken: set[str]) -> list[Statement]:
    made = []
    for _ in range(kind.keys):
        key = _take(draw, kind.key, taken)
        for _ in range(kind.values):
            value = _take(draw, kind.value, taken)
            text = _NEEDLE.format(kind=kind.value, key=key, value=value)
            made.append(Statement(text, key, value))
    return made


def _take(draw: random.Random, kind: str, taken: set[str]) -> str:
    made = fresh(draw, kind, taken)
    taken.add(made)
    return made


def _in_essay(
    words: Sequence[str], needles: Sequence[Statement], draw: random.Random
) -> list[Statement]:
    sentences = [Statement(text) for text in _SENTENCE_END.split(" ".join(words))]
    depths = sorted(draw.sample(DEPTHS, len(needles)))
    places = [len(sentences) * depth // 100 for depth in depths]
    pieces: list[Statement] = []
    for before, after, needle in zip([0, *places], places, needles, strict=False):
        pieces += [*sentences[before:after], needle]
    return [*pieces, *sentences[places[-1] :]]


def _sentences(kind: Kind, draw: random.Random, count: int, taken: set[str]) -> list[Statement]:
    """Noise, or needles with other keys and values."""
    if kind.haystack == "noise":
        return [Statement(NOISE)] * count
    parts = [(_take(draw, kind.key, taken), _take(draw, kind.value, taken)) for _ in range(count)]
    return [
        Statement(_NEEDLE.format(kind=kind.value, key=key, value=value)) for key, value in parts
    ]


def _between_sentences(
    sentences: Sequence[Statement], needles: Sequence[Statement], draw: random.Random
) -> list[Statement]:
    places = sorted(draw.sample(range(len(sentences)), len(needles)), reverse=True)
    pieces = list(sentences)
    for place, needle in zip(places, needles, strict=True):
        pieces.insert(place, needle)
    return pieces


def _assemble(
    kind: Kind,
    essays: Essays,
    pieces: Sequence[Statement],
    glue: str,
    needles: Sequence[Statement],
    asked: Sequence[str],
) -> Draft:
    """The text around the haystack, the answers in the order asked, and where they stand."""
    one = kind.queries * kind.values == 1
    named = kind.value[:-1] if one else kind.value
    query = asked[0] if len(asked) == 1 else ", ".join(asked[:-1]) + ", and " + asked[-1]
    before, after, prefix = (
        part.format(kind=named, query=query) for part in (_ONE if one else _SEVERAL)
    )
    answers = [needle for key in asked for needle in needles if needle.key == key]
    text, marks = before, []
    for piece in pieces:
        if piece.key in asked:
            marks.append(Mark(answers.index(piece), len(text), len(text) + len(piece.text)))
        text += piece.text + glue
    label = essays.label if kind.haystack == "essay" else kind.haystack
    return Draft(
        text.removesuffix(glue) + after,
        prefix,
        tuple(needle.value for needle in answers),
        tuple(sorted(marks, key=lambda mark: mark.reference)),
        {"haystack": label, "queries": list(asked), "needles": len(needles)},
    )
