"""Questions about documents among distractors: SQuAD 2.0 and HotpotQA.

A prompt always holds the documents that tell the answer. Published HotpotQA prompts hold a
question's other documents too; here they are the first distractors, so that short budgets hold as
many of them as fit.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler.fitting import Draft, Mark, Plan, generator

NEW_TOKENS = 32
_ORDER = "Only give me the answer and do not output any other words."
_BEFORE = (
    f"Answer the question based on the given documents. {_ORDER}\n\n"
    "The following are given documents.\n\n"
)
_AFTER = f"\n\nAnswer the question based on the given documents. {_ORDER}\n\nQuestion: {{question}}"
_PREFIX = " Answer:"
_SOURCES = {
    "qa_1": ("--squad", "SQuAD 2.0 (dev-v2.0.json of rajpurkar.github.io/SQuAD-explorer)"),
    "qa_2": ("--hotpotqa", "HotpotQA (hotpot_dev_distractor_v1.json of hotpotqa.github.io)"),
}


@dataclass(frozen=True)
class Question:
    """A question; documents are indices into `Corpus.documents`.

    ``gold`` tell the answer, ``near`` are the first distractors to add.
    """

    text: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    near: tuple[int, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """Questions, and every document any of them could be asked about."""

    documents: Sequence[str]
    questions: Sequence[Question]


def read(name: str, path: Path | None) -> Corpus:
    """The questions of a task's data file in its published layout.

    Raises RidgeFillError, naming the file, when it is not given, cannot be read or is of another
    layout.
    """
    option, source = _SOURCES[name]
    if path is None:
        raise RidgeFillError(f"{name} needs the file of {source}: name it with {option}")
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise RidgeFillError(f"{path} is not UTF-8 text: {option} takes {source}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RidgeFillError(f"{path} is no JSON ({error}): {option} takes {source}") from None
    try:
        corpus = _READERS[name](data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RidgeFillError(
            f"{path} is not laid out as {source} ({type(error).__name__}: {error}): check {option}"
        ) from None
    if not corpus.questions:
        raise NotEnoughTextError(f"{path} holds no question with an answer: check {option}")
    return corpus


def _squad(data: Any) -> Corpus:
    articles = [[paragraph["context"] for paragraph in d["paragraphs"]] for d in data["data"]]
    documents, place = _indexed(text for article in articles for text in article)
    questions = []
    for entry, article in zip(data["data"], articles, strict=True):
        own = [place[text] for text in article]
        for paragraph in entry["paragraphs"]:
            gold = place[paragraph["context"]]
            near = tuple(index for index in dict.fromkeys(own) if index != gold)
            for asked in paragraph["qas"]:
                answers = dict.fromkeys(_text(answer["text"]) for answer in asked["answers"])
                if answers and not asked.get("is_impossible", False):
                    text = _text(asked["question"])
                    questions.append(Question(text, tuple(answers), (gold,), near))
    return Corpus(documents, questions)


def _hotpotqa(data: Any) -> Corpus:
    contexts = [
        [(title, f"{title}\n{''.join(text)}") for title, text in d["context"]] for d in data
    ]
    documents, place = _indexed(text for context in contexts for _, text in context)
    questions = []
    for entry, context in zip(data, contexts, strict=True):
        supporting = {title for title, _ in entry["supporting_facts"]}
        own = {place[text]: title in supporting for title, text in context}
        gold = tuple(index for index, needed in own.items() if needed)
        near = tuple(index for index, needed in own.items() if not needed)
        if gold:
            answers = (_text(entry["answer"]),)
            questions.append(Question(_text(entry["question"]), answers, gold, near))
    return Corpus(documents, questions)


_READERS: dict[str, Callable[[Any], Corpus]] = {"qa_1": _squad, "qa_2": _hotpotqa}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} stands where text should")
    return value


def _indexed(texts: Iterable[Any]) -> tuple[list[str], dict[str, int]]:
    documents = sorted({_text(text) for text in texts})
    return documents, {text: index for index, text in enumerate(documents)}


class Questions:
    """The questions of a task in a seeded order, so that the first few are a fair sample.

    Those whose own documents do not fit in a budget are passed over at that length. Published
    samples are the first questions of the file, at lengths where all fit.
    """

    def __init__(self, name: str, corpus: Corpus, prompter: Prompter, seed: int) -> None:
        self._name, self._corpus, self._prompter, self._seed = name, corpus, prompter, seed
        self._order = list(corpus.questions)
        generator(seed, name, "order").shuffle(self._order)
        self._fitting: dict[int, tuple[list[Question], Iterator[Question]]] = {}

    def plans(self, length: int, index: int) -> list[Plan]:
        """See `Planner`. Raises NotEnoughTextError when there are too few questions."""
        question = self._question(length, index)
        made = partial(draft, self._corpus, question)
        return [Plan(made, len(question.gold), len(self._corpus.documents))]

    def _question(self, length: int, index: int) -> Question:
        """The ``index``-th question that fits; those before it are tried once and kept."""
        if index >= len(self._order):
            raise NotEnoughTextError(
                f"{self._name} has {len(self._order)} questions, but sample {index} is asked for: "
                "use fewer samples"
            )
        found, rest = self._fitting.setdefault(length, ([], iter(self._order)))
        while len(found) <= index:
            question = next(rest, None)
            if question is None:
                raise NotEnoughTextError(
                    f"{self._name}/{length}/{index}: of {len(self._order)} questions, only the "
                    f"documents of {len(found)} fit: use a larger length or fewer samples"
                )
            if self._fits(question, length, len(found)):
                found.append(question)
        return found[index]

    def _fits(self, question: Question, length: int, index: int) -> bool:
        draw = generator(self._seed, self._name, length, index)
        shortest = draft(self._corpus, question, draw, len(question.gold))
        return self._prompter.count(shortest.text, shortest.prefix) <= length - NEW_TOKENS


def draft(corpus: Corpus, question: Question, draw: random.Random, count: int) -> Draft:
    """A prompt with ``count`` documents: those with the answer, those near, then any others.

    A smaller corpus than the budget gives a shorter prompt, as published.
    """
    chosen = _documents(corpus, question, draw, count)
    draw.shuffle(chosen)
    text, marks = _BEFORE, []
    for number, index in enumerate(chosen, start=1):
        start = len(text)
        text += f"Document {number}:\n{corpus.documents[index]}"
        if index in question.gold:
            marks += [Mark(at, start, len(text)) for at in range(len(question.answers))]
        text += "\n\n"
    return Draft(
        text.removesuffix("\n\n") + _AFTER.format(question=question.text),
        _PREFIX,
        question.answers,
        tuple(sorted(marks, key=lambda mark: (mark.reference, mark.start))),
        {"haystack": "documents", "documents": len(chosen), "gold": len(question.gold)},
    )


def _documents(corpus: Corpus, question: Question, draw: random.Random, count: int) -> list[int]:
    near = draw.sample(question.near, len(question.near))
    chosen = [*question.gold, *near][:count]
    if len(chosen) < count:
        held = set(chosen)
        others = [index for index in range(len(corpus.documents)) if index not in held]
        chosen += draw.sample(others, count - len(chosen))
    return chosen
