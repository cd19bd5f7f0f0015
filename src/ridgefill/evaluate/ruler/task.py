"""A RULER task: plans become samples, answers become scores."""

from dataclasses import dataclass

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler.fitting import Planner, fit, generator
from ridgefill.evaluate.ruler.scoring import Rule, Score
from ridgefill.evaluate.tasks import Sample, Span


@dataclass(frozen=True)
class RulerTask:
    """One task: see `ridgefill.evaluate.tasks.Task`.

    Args:
        name: the published one.
        prompter: tokenises its prompts.
        seed: of every sample.
        new_tokens: most tokens of an answer.
        rule: scores an answer.
        plans: how its samples are made.
    """

    name: str
    prompter: Prompter
    seed: int
    new_tokens: int
    rule: Rule
    plans: Planner

    def sample(self, length: int, index: int) -> Sample:
        """See `Task`. Every draft of a sample draws from the same seed."""
        name = f"{self.name}/{length}/{index}"
        made = fit(
            self.prompter,
            self.plans(length, index),
            lambda: generator(self.seed, self.name, length, index),
            length - self.new_tokens,
            name,
        )
        if made.plan.scarce and made.units == made.plan.most:
            raise NotEnoughTextError(f"{name}: {made.plan.scarce}")
        spans = tuple(
            Span(mark.reference, *made.encoded.columns(mark.start, mark.stop))
            for mark in made.draft.marks
        )
        depths = [round(span.start / made.tokens, 4) for span in spans]
        return Sample(
            self.name,
            length,
            index,
            made.encoded.input_ids,
            self.new_tokens,
            made.draft.references,
            spans,
            {**made.draft.facts, "depths": depths},
        )

    def score(self, prediction: str, sample: Sample) -> Score:
        """See `Task`."""
        return self.rule(prediction, sample.references)
