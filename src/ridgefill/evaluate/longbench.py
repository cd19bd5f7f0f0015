"""LongBench v2: multiple-choice questions about long documents, with zero examples.

Bai et al., "LongBench v2: Towards Deeper Understanding and Reasoning on Realistic Long-context
Multitasks", 2024, github.com/THUDM/LongBench. Prompt, answer length, truncation in the middle and
the rule that finds the answer are those of the publication. What differs: a prompt is cut on token
ids and keeps its special tokens and chat template, so that it has exactly the budget; the cut
moves off the question and the choices where half a budget would not hold them; a placeholder in a
document is text; groups are averaged by what their records say (result.py counts medium as long).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.longbenchrecords import DIFFICULTIES, LENGTHS, Record, read_records
from ridgefill.evaluate.prompting import Encoded, Prompter
from ridgefill.evaluate.ruler.fitting import generator
from ridgefill.evaluate.tasks import Sample

NAME = "longbench_v2"
NEW_TOKENS = 128

_BEFORE = "Please read the following text and answer the question below.\n\n<text>\n"
_AFTER = """
</text>

What is the correct answer to this question: {question}
Choices:
(A) {a}
(B) {b}
(C) {c}
(D) {d}

Format your response as follows: "The correct answer is (insert answer here)\"."""
_ANSWERS = (
    re.compile(r"The correct answer is \(([A-D])\)"),
    re.compile(r"The correct answer is ([A-D])"),
)


@dataclass(frozen=True)
class LongBench:
    """The task: sample ``index`` asks record ``index``, so a few samples are a fair subset.

    ``records`` are in a seeded order; see `make_task`.
    """

    records: Sequence[Record]
    prompter: Prompter
    name: str = NAME

    def sample(self, length: int, index: int) -> Sample:
        """See `Task`. A prompt over the budget is cut in the middle; ``truncated`` says so.

        Facts: ``id``, ``domain``, ``sub_domain``, ``difficulty`` and ``length`` as published,
        ``truncated``, and ``document_tokens`` before the cut. There are no spans: what in a
        document is evidence is not known.
        """
        if not 0 <= index < len(self.records):
            raise NotEnoughTextError(
                f"{self.name} has {len(self.records)} records, but sample {index} is asked for: "
                "use fewer samples"
            )
        record, room = self.records[index], length - NEW_TOKENS
        encoded = self.prompter.encode(prompt(record))
        first, last = encoded.columns(len(_BEFORE), len(_BEFORE) + len(record.context))
        ids, tokens = encoded.input_ids, encoded.input_ids.shape[1]
        if tokens > room:
            start, stop = self._cut(encoded, (first, last), room, f"{self.name}/{length}/{index}")
            ids = torch.cat([ids[:, :start], ids[:, stop:]], dim=1)
        facts = {**record.facts(), "truncated": tokens > room, "document_tokens": last - first}
        return Sample(self.name, length, index, ids, NEW_TOKENS, (record.answer,), (), facts)

    def score(self, prediction: str, sample: Sample) -> tuple[float, Sequence[float]]:
        """See `Task`: 1 for the right letter, 0 for another and for none."""
        right = float(extract_answer(prediction) == sample.references[0])
        return right, [right]

    @staticmethod
    def _cut(encoded: Encoded, document: tuple[int, int], room: int, name: str) -> tuple[int, int]:
        """The columns to leave out: the middle of the prompt, or what of the document is nearest.

        Raises NotEnoughTextError when the prompt without its document is over the budget.
        """
        first, last = document
        excess = encoded.input_ids.shape[1] - room
        if excess > last - first:
            raise NotEnoughTextError(
                f"{name}: question and choices alone take "
                f"{encoded.input_ids.shape[1] - (last - first)} tokens but the budget leaves "
                f"{room}: use a larger length"
            )
        start = min(max(room // 2, first), last - excess)
        return start, start + excess


def make_task(source: str, prompter: Prompter, *, seed: int = 0) -> LongBench:
    """The task over the records of ``source``; see `read_records`, which tells what is refused.

    The order of the records depends on the seed and their ids alone, not on the order they are
    stored in.
    """
    records = sorted(read_records(source), key=lambda record: record.id)
    generator(seed, NAME, "order").shuffle(records)
    return LongBench(records, prompter)


def prompt(record: Record) -> str:
    """The published prompt of a record, with the whole document."""
    after = _AFTER.format(
        question=record.question,
        **dict(zip("abcd", record.choices, strict=True)),
    )
    return _BEFORE + record.context + after


def extract_answer(prediction: str) -> str | None:
    """The letter that an answer names, or None: the published rule, asterisks left out."""
    bare = prediction.replace("*", "")
    found = (pattern.search(bare) for pattern in _ANSWERS)
    return next((match.group(1) for match in found if match), None)


def summary(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Accuracy and n by plan and group: ``overall``, the difficulties and the lengths.

    ``records`` are those of an evaluation's answers; other tasks among them are left out. An
    empty group has the accuracy None.
    """
    mine = [record for record in records if record.get("task") == NAME]
    plans = dict.fromkeys(plan for record in mine for plan in record["plans"])
    groups: dict[str, tuple[str, str] | None] = {
        "overall": None,
        **{name: ("difficulty", name) for name in DIFFICULTIES},
        **{name: ("length", name) for name in LENGTHS},
    }
    return {
        plan: {name: _accuracy(mine, plan, group) for name, group in groups.items()}
        for plan in plans
    }


def _accuracy(
    records: Sequence[Mapping[str, Any]], plan: str, group: tuple[str, str] | None
) -> dict[str, Any]:
    scores = [
        record["plans"][plan]["score"]
        for record in records
        if plan in record["plans"] and (group is None or record["facts"][group[0]] == group[1])
    ]
    return {"accuracy": fmean(scores) if scores else None, "n": len(scores)}
