"""RULER: thirteen synthetic tasks for long context, generated to their published definitions.

Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language Models?", 2024,
github.com/NVIDIA/RULER. Templates, answer prefixes, counts, answer budgets and scoring rules are
those of the publication. What differs:

- A prompt is filled to its budget by single units of haystack, not by steps of ten and more, and
  the budget includes the chat template.
- A sample depends on its own seed alone. The order of needles and lists is drawn for each sample;
  published samples share it.
- Essay haystacks begin at another word in each sample, not always at the first, and the texts are
  novels unless essays are given. Texts are never repeated to reach a length.
- Where a published rule leaves no room in a short budget, less is asked for, as the sample's facts
  tell: see `counting`, `tracking` and `qa`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgefill.core.errors import RidgeFillError
from ridgefill.data import sample as bundled_sample
from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler import counting, niah, qa, tracking
from ridgefill.evaluate.ruler.fitting import Planner
from ridgefill.evaluate.ruler.scoring import Rule, string_match_all, string_match_part
from ridgefill.evaluate.ruler.task import RulerTask
from ridgefill.evaluate.tasks import Task

NEEDLE_TASKS = tuple(niah.KINDS)
TASKS = (*NEEDLE_TASKS, "vt", "cwe", "fwe", "qa_1", "qa_2")


@dataclass(frozen=True)
class _Sources:
    """What the plans of tasks are made from."""

    prompter: Prompter
    seed: int
    essays: niah.Essays
    squad: Path | None
    hotpotqa: Path | None


@dataclass(frozen=True)
class _Definition:
    """Tokens to generate, how an answer is scored, and how samples are made."""

    new_tokens: int
    rule: Rule
    planner: Callable[[_Sources], Planner]


def _needles(kind: niah.Kind) -> _Definition:
    return _Definition(
        niah.NEW_TOKENS, string_match_all, lambda given: niah.planner(kind, given.essays)
    )


def _questions(name: str, file: Path | None, given: _Sources) -> Planner:
    return qa.Questions(name, qa.read(name, file), given.prompter, given.seed).plans


_DEFINITIONS = {
    **{name: _needles(kind) for name, kind in niah.KINDS.items()},
    "vt": _Definition(
        tracking.NEW_TOKENS,
        string_match_all,
        lambda given: tracking.planner(given.prompter, given.seed),
    ),
    "cwe": _Definition(
        counting.COMMON_NEW_TOKENS, string_match_all, lambda given: counting.common_plans
    ),
    "fwe": _Definition(
        counting.CODED_NEW_TOKENS, string_match_all, lambda given: counting.coded_plans
    ),
    "qa_1": _Definition(
        qa.NEW_TOKENS,
        string_match_part,
        lambda given: _questions("qa_1", given.squad, given),
    ),
    "qa_2": _Definition(
        qa.NEW_TOKENS,
        string_match_part,
        lambda given: _questions("qa_2", given.hotpotqa, given),
    ),
}


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
    Their ``sample`` raises NotEnoughTextError for a budget that a prompt does not fit in and for
    essays that do not fill it.
    """
    unknown = [name for name in names if name not in _DEFINITIONS]
    if unknown:
        raise RidgeFillError(f"unknown RULER task {unknown[0]!r}: use {', '.join(TASKS)}")
    given = _Sources(prompter, seed, _essays(essay_texts), squad, hotpotqa)
    made: list[Task] = []
    for name in names:
        definition = _DEFINITIONS[name]
        planner = definition.planner(given)
        made.append(
            RulerTask(name, prompter, seed, definition.new_tokens, definition.rule, planner)
        )
    return made


def _essays(texts: Sequence[str] | None) -> niah.Essays:
    if texts is not None:
        return niah.Essays(texts, "own text")
    novels = [d.text for d in bundled_sample("held_out") if d.kind == "novel"]
    return niah.Essays(novels, "bundled text")
