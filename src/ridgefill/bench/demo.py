"""The demo's comparison: exact, identity and ridge on TTFT, a needle and tail loss."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ridgefill.bench import ttft
from ridgefill.bench.prompts import Prompts, stream
from ridgefill.core.engine import Engine, Method
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.data import sample
from ridgefill.engines.transformers import TransformersEngine, identity_maps
from ridgefill.evaluate import loss, needles

_DEPTH = 0.4
_LOSS_DRAWS = 1_000_000
"""Prompt numbers of the loss, so that they are other slices than those that were timed."""


@dataclass(frozen=True)
class Comparison:
    """What the demo compares on.

    Args:
        length: prompt length in tokens.
        repeats: timed rounds.
        documents: slices of held-out novels for the tail loss.
        seed: of the prompts.
    """

    length: int = 4096
    repeats: int = 3
    documents: int = 4
    seed: int = 0

    @property
    def prefills(self) -> int:
        """How many prefills the comparison runs."""
        return 3 * (self.repeats + 1 + 1 + self.documents)


def compare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    maps: FillMaps,
    comparison: Comparison,
    report: Callable[..., None] | None = None,
) -> dict[str, Any]:
    """Compare the exact prefill, the identity fill and ``maps``.

    ``report`` is called after every prefill. Returns the rows of the table under ``rows``, one
    per method: those of `ridgefill.bench.ttft.measure` with ``needle_answer``, ``needle_right``
    and ``tail_loss`` (nats per token); and the needle under ``needle``.
    """
    config = maps.config
    plan = RowPlan(tail=config.tail, sinks=config.sinks)
    identity = identity_maps(model, config.split, tail=config.tail, sinks=config.sinks)
    methods = [Method("exact"), Method("identity", identity, plan), Method("ridge", maps, plan)]
    engine = TransformersEngine(model)
    step = report or (lambda *done: None)
    novels = [document.text for document in sample("held_out") if document.kind == "novel"]
    prompts = Prompts(stream(tokenizer, novels), comparison.seed)
    prompts.check(comparison.length + 1)
    prompt = needles.make_prompt(tokenizer, novels[0], comparison.length, _DEPTH, comparison.seed)
    rows = ttft.measure(
        engine, methods, [comparison.length], prompts, repeats=comparison.repeats, report=step
    )
    for method, row in zip(methods, rows, strict=True):
        answer = needles.answer_text(engine, method, prompt, tokenizer)
        step("needle", method.name)
        row["needle_answer"] = answer.strip()
        row["needle_right"] = prompt.answer in answer
        row["tail_loss"] = _tail_loss(engine, method, prompts, comparison, config.tail, step)
    needle = {
        "answer": prompt.answer,
        "columns": [prompt.start, prompt.stop],
        "depth": prompt.depth,
        "in_filled_region": needles.in_filled_region(prompt, config.tail)
        and prompt.start >= config.sinks,
    }
    return {"rows": rows, "needle": needle}


def _tail_loss(
    engine: Engine,
    method: Method,
    prompts: Prompts,
    comparison: Comparison,
    tail: int,
    step: Callable[..., None],
) -> float:
    losses = []
    for number in range(comparison.documents):
        ids = prompts.take(comparison.length + 1, _LOSS_DRAWS + number)
        losses.append(loss.tail_loss(engine, method, ids, tail))
        step("loss", method.name)
    return mean(losses)
