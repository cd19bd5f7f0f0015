"""RULER: thirteen synthetic tasks for long context, generated to their published definitions.

Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language Models?", 2024,
github.com/NVIDIA/RULER. Templates, answer prefixes, counts, answer budgets and scoring rules are
those of the publication. What differs: a prompt is filled to its budget by single units of
haystack instead of steps of ten and more; a sample depends on its own seed alone; essay haystacks
begin at a random word of the given texts, which are novels unless essays are given.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.data import sample as bundled_sample
from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler import counting, niah, qa, tracking
from ridgefill.evaluate.ruler.fitting import Draft, fit, generator
from ridgefill.evaluate.ruler.scoring import Rule, Score, string_match_all, string_match_part
from ridgefill.evaluate.tasks import Sample, Span, Task

NEEDLE_TASKS = tuple(niah.KINDS)
TASKS = (*NEEDLE_TASKS, "vt", "cwe", "fwe", "qa_1", "qa_2")

Drafter = Callable[[random.Random, int], Draft]


@dataclass(frozen=True)
class Plan:
    """How to make one sample: drafts by units of haystack, and the units to choose from."""

    draft: Drafter
    least: int
    most: int


@dataclass(frozen=True)
class RulerTask:
    """One of `TASKS`. ``plan(length, index)`` says how its samples are made."""

    name: str
    prompter: Prompter
    seed: int
    new_tokens: int
    rule: Rule
    plan: Callable[[int, int], Plan]

    def sample(self, length: int, index: int) -> Sample:
        """See `Task`. Every draft of a sample draws from the same seed."""
        name = f"{self.name}/{length}/{index}"
        plan, parts = self.plan(length, index), (self.seed, self.name, length, index)
        room = length - self.new_tokens
        made, encoded = fit(
            self.prompter,
            lambda units: plan.draft(generator(*parts), units),
            plan.least,
            plan.most,
            room,
            name,
        )
        spans = tuple(
            Span(mark.reference, *encoded.columns(mark.start, mark.stop)) for mark in made.marks
        )
        tokens = encoded.input_ids.shape[1]
        depths = [round(span.start / tokens, 4) for span in spans]
        return Sample(
            self.name,
            length,
            index,
            encoded.input_ids,
            self.new_tokens,
            made.references,
            spans,
            {**made.facts, "depths": depths},
        )

    def score(self, prediction: str, sample: Sample) -> Score:
        """See `Task`."""
        return self.rule(prediction, sample.references)


def make_tasks(
    names: Sequence[str],
    prompter: Prompter,
    *,
    seed: int = 0,
    essay_texts: Sequence[str] | None = None,
    squad: Path | None = None,
    hotpotqa: Path | None = None,
) -> list[Task]:
    """Tasks by name.

    Args:
        names: of `TASKS`.
        prompter: tokenises their prompts.
        seed: of every sample.
        essay_texts: running text for haystacks; default the bundled novels, which the samples'
            facts call "bundled text".
        squad, hotpotqa: data files of qa_1 and qa_2.

    Raises RidgeFillError for an unknown name and for data that is missing or of another layout.
    """
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise RidgeFillError(f"unknown RULER task {unknown[0]!r}: use {', '.join(TASKS)}")
    essays = _essays(essay_texts)
    files = {"qa_1": squad, "qa_2": hotpotqa}
    made: list[Task] = []
    for name in names:
        new_tokens, rule = _rules(name)
        plan = _plan(name, prompter, seed, essays, files.get(name))
        made.append(RulerTask(name, prompter, seed, new_tokens, rule, plan))
    return made


def _rules(name: str) -> tuple[int, Rule]:
    """Tokens to generate, and how the answer is scored."""
    fixed = {
        "vt": tracking.NEW_TOKENS,
        "cwe": counting.COMMON_NEW_TOKENS,
        "fwe": counting.CODED_NEW_TOKENS,
        "qa_1": qa.NEW_TOKENS,
        "qa_2": qa.NEW_TOKENS,
    }
    rule = string_match_part if name.startswith("qa_") else string_match_all
    return fixed.get(name, niah.NEW_TOKENS), rule


def _essays(texts: Sequence[str] | None) -> niah.Essays:
    if texts is not None:
        return niah.Essays(texts, "own text")
    novels = [d.text for d in bundled_sample("held_out") if d.kind == "novel"]
    return niah.Essays(novels, "bundled text")


def _plan(
    name: str, prompter: Prompter, seed: int, essays: niah.Essays, file: Path | None
) -> Callable[[int, int], Plan]:
    if name in niah.KINDS:
        kind = niah.KINDS[name]
        return lambda length, index: Plan(
            lambda draw, units: niah.draft(kind, essays, draw, units, length),
            *niah.units(kind, essays, length),
        )
    if name == "vt":
        return lambda length, index: _tracking(prompter, seed, length, index)
    if name == "cwe":
        return lambda length, index: Plan(
            lambda draw, units: counting.common_words(draw, units, length),
            *counting.common_units(),
        )
    if name == "fwe":
        return lambda length, index: Plan(
            lambda draw, units: counting.coded_words(draw, units, length),
            *counting.coded_units(length),
        )
    return _questions(name, seed, qa.read(name, file))


def _tracking(prompter: Prompter, seed: int, length: int, index: int) -> Plan:
    least = tracking.HOPS + 1
    room = min(tracking.EXAMPLE_TOKENS, length // 3)
    draw = generator(seed, "vt example", length, index)
    state = draw.getstate()

    def example(units: int) -> Draft:
        draw.setstate(state)
        return Draft(tracking.example(draw, units), "", ())

    shown = fit(prompter, example, least, room, room, f"vt/{length}/{index}, example")[0].text
    return Plan(lambda inner, units: tracking.draft(inner, units, shown), least, length)


def _questions(name: str, seed: int, corpus: qa.Corpus) -> Callable[[int, int], Plan]:
    """Questions in a seeded order, so that the first few are a fair sample."""
    order = list(range(len(corpus.questions)))
    generator(seed, name, "order").shuffle(order)

    def plan(length: int, index: int) -> Plan:
        if index >= len(order):
            raise NotEnoughTextError(
                f"{name} has {len(order)} questions, but sample {index} is asked for: use fewer "
                "samples"
            )
        question = corpus.questions[order[index]]
        return Plan(
            lambda draw, units: qa.draft(corpus, question, draw, units),
            *qa.units(corpus, question),
        )

    return plan
