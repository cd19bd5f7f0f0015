"""What a generative evaluation task is: prompts with known answers and known places of evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

Region = str
"""Where evidence lies under a row plan: ``filled``, ``exact``, ``mixed`` or ``spread``."""


@dataclass(frozen=True)
class Span:
    """Evidence for ``references[reference]``: prompt columns ``start`` to ``stop - 1``."""

    reference: int
    start: int
    stop: int


@dataclass(frozen=True)
class Sample:
    """One prompt of a task.

    Args:
        task: the task's name.
        length: the token budget it was made for: prompt and answer together.
        index: its number within the task and length; with the task's seed it determines the rest.
        input_ids: int64 ``[1, seq]``, with ``seq + new_tokens <= length``.
        new_tokens: most tokens to generate.
        references: the right answers.
        spans: where the evidence for each reference lies; empty when it is spread over the text.
        facts: more to record about the sample, JSON values only.
    """

    task: str
    length: int
    index: int
    input_ids: Tensor
    new_tokens: int
    references: tuple[str, ...]
    spans: tuple[Span, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.task}/{self.length}/{self.index}"


class Task(Protocol):
    """Makes samples and scores answers."""

    @property
    def name(self) -> str: ...

    def sample(self, length: int, index: int) -> Sample:
        """Sample ``index`` for a budget of ``length`` tokens; a pure function of the task's seed.

        Raises NotEnoughTextError when the budget or the task's text is too small.
        """
        ...

    def score(self, prediction: str, sample: Sample) -> tuple[float, Sequence[float]]:
        """The sample's score (0 to 1), and the score of each of its references (0 or 1)."""
        ...
