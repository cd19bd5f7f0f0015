"""Questions about documents among distractors: SQuAD 2.0 and HotpotQA."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.evaluate.ruler.fitting import Draft, Mark

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

    ``needed`` must be in the prompt, ``gold`` (among them) tell the answer, ``near`` are the first
    distractors to add.
    """

    text: str
    answers: tuple[str, ...]
    needed: tuple[int, ...]
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
        data = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise RidgeFillError(f"{path} is not UTF-8 text: {option} takes {source}") from None
    except (OSError, ValueError) as error:
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
                answers = tuple(dict.fromkeys(answer["text"] for answer in asked["answers"]))
                if not asked.get("is_impossible", False) and answers:
                    questions.append(Question(asked["question"], answers, (gold,), (gold,), near))
    return Corpus(documents, questions)


def _hotpotqa(data: Any) -> Corpus:
    contexts = [
        [(title, f"{title}\n{''.join(text)}") for title, text in d["context"]] for d in data
    ]
    documents, place = _indexed(text for context in contexts for _, text in context)
    questions = []
    for entry, context in zip(data, contexts, strict=True):
        supporting = {title for title, _ in entry["supporting_facts"]}
        needed = tuple(dict.fromkeys(place[text] for _, text in context))
        gold = tuple(dict.fromkeys(place[t] for title, t in context if title in supporting))
        questions.append(Question(entry["question"], (entry["answer"],), needed, gold))
    return Corpus(documents, questions)


_READERS: dict[str, Callable[[Any], Corpus]] = {"qa_1": _squad, "qa_2": _hotpotqa}


def _indexed(texts: Any) -> tuple[list[str], dict[str, int]]:
    documents = sorted(set(texts))
    return documents, {text: index for index, text in enumerate(documents)}


def units(corpus: Corpus, question: Question) -> tuple[int, int]:
    """The fewest and the most documents of a prompt."""
    return len(question.needed), len(corpus.documents)


def draft(corpus: Corpus, question: Question, draw: random.Random, count: int) -> Draft:
    """A prompt with ``count`` documents: the needed ones, those near, then any others."""
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
        {"haystack": "documents", "documents": len(chosen)},
    )


def _documents(corpus: Corpus, question: Question, draw: random.Random, count: int) -> list[int]:
    near = draw.sample(question.near, len(question.near))
    chosen = [*question.needed, *near][:count]
    if len(chosen) < count:
        held = set(chosen)
        others = [index for index in range(len(corpus.documents)) if index not in held]
        chosen += draw.sample(others, count - len(chosen))
    return chosen
