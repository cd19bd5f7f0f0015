"""The pieces an evaluation is made of: one prompt or document under every plan, one record each.

A record is a JSON object with the item's ``id`` and ``kind`` and, under ``plans``, what each plan
gave. Times stand apart under ``times``, because nothing else may differ between two runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ridgefill.bench.timing import Stopwatch
from ridgefill.core.engine import Method, SpliceEngine
from ridgefill.evaluate.decoding import greedy
from ridgefill.evaluate.documents import Window
from ridgefill.evaluate.loss import GROUPS, DocumentScores, LossOptions, score_document
from ridgefill.evaluate.plans import check_fills, filled_mask
from ridgefill.evaluate.tasks import Sample, Task
from ridgefill.evaluate.tokens import write_tokens

Record = dict[str, Any]


@dataclass(frozen=True)
class Context:
    """What every item needs.

    Args:
        engine: runs the model.
        methods: the plans, the exact one first.
        tokenizer: the model's.
        stop: ids that end an answer.
        first: special tokens that the tokenizer puts before a text.
        loss: how tokens are grouped.
        tokens: a directory and format (``npz`` or ``parquet``) for token-level losses, or None.
    """

    engine: SpliceEngine
    methods: Sequence[Method]
    tokenizer: Any
    stop: Collection[int] = ()
    first: Sequence[int] = ()
    loss: LossOptions = field(default_factory=LossOptions)
    tokens: tuple[Path, str] | None = None

    @property
    def fills(self) -> list[Method]:
        """The plans that fill."""
        return [method for method in self.methods if method.plan is not None]

    @property
    def tail(self) -> int:
        """The rows that run exact under every plan: the shortest tail."""
        return min(method.plan.tail for method in self.fills if method.plan is not None)


class Item(Protocol):
    """One unit of work. ``cost`` is in prompt tokens times prefills, for the time left."""

    @property
    def id(self) -> str: ...

    @property
    def cost(self) -> int: ...

    def run(self, context: Context) -> Record:
        """Run every plan. Raises RidgeFillError for a plan that fills nothing of the prompt."""
        ...


@dataclass(frozen=True)
class AnswerItem:
    """One generated answer per plan."""

    task: Task
    length: int
    index: int
    plans: int

    @property
    def id(self) -> str:
        return f"{self.task.name}/{self.length}/{self.index}"

    @property
    def cost(self) -> int:
        return self.length * self.plans

    def run(self, context: Context) -> Record:
        sample = self.task.sample(self.length, self.index)
        rows = sample.input_ids.shape[1]
        check_fills(context.methods, rows)
        plans, times = {}, {}
        for method in context.methods:
            with Stopwatch() as watch:
                cache, logits = context.engine.prefill(sample.input_ids, method)
            times[method.name] = {
                "cpu_s": round(watch.cpu[0], 4),
                "wall_s": round(watch.wall[0], 4),
            }
            ids = greedy(context.engine, cache, logits, sample.new_tokens, context.stop)
            prediction = str(context.tokenizer.decode(ids, skip_special_tokens=True))
            score, by_reference = self.task.score(prediction, sample)
            plans[method.name] = {
                "score": score,
                "by_reference": list(by_reference),
                "regions": regions(sample, filled_mask(method, rows)),
                "filled_rows": int(filled_mask(method, rows).sum()),
                "prediction": prediction,
            }
        return {
            "id": self.id,
            "kind": "answer",
            "task": sample.task,
            "length": self.length,
            "index": self.index,
            "prompt_tokens": rows,
            "references": list(sample.references),
            "spans": [[span.reference, span.start, span.stop] for span in sample.spans],
            "facts": dict(sample.facts),
            "plans": plans,
            "times": times,
        }


def regions(sample: Sample, filled: Tensor) -> list[str]:
    """Per reference, where its evidence lies: ``filled``, ``exact``, ``mixed`` or ``spread``."""
    found = []
    for number in range(len(sample.references)):
        spans = [span for span in sample.spans if span.reference == number]
        rows = [filled[span.start : span.stop] for span in spans]
        if not rows:
            found.append("spread")
            continue
        share = float(torch.cat(rows).float().mean())
        found.append({0.0: "exact", 1.0: "filled"}.get(share, "mixed"))
    return found


@dataclass(frozen=True)
class LossItem:
    """The losses of one window of a document per plan."""

    window: Window
    plans: int

    @property
    def id(self) -> str:
        return self.window.id

    @property
    def cost(self) -> int:
        return self.window.length * self.plans

    def run(self, context: Context) -> Record:
        ids, length = self.window.input_ids, self.window.length
        check_fills(context.methods, length)
        scores = score_document(
            context.engine, context.methods, ids, context.tail, context.first, context.loss
        )
        if context.tokens is not None:
            folder, kind = context.tokens
            write_tokens(folder / f"{self.id.replace('/', '-')}.{kind}", scores, ids.shape[1])
        return {
            "id": self.id,
            "kind": "loss",
            "length": length,
            "source": self.window.source,
            "document": self.window.document,
            "window": self.window.number,
            "tokens": {group: int(scores.mask(group).sum()) for group in GROUPS},
            "plans": {name: _sums(scores, name) for name in scores.by_method},
        }


def _sums(scores: DocumentScores, name: str) -> dict[str, Any]:
    """A plan's summed losses and divergence in nats, and how often it agrees with exact."""
    found = scores.by_method[name]
    losses = {group: float(found.loss[scores.mask(group)].double().sum()) for group in GROUPS}
    return {"loss": losses, "kl": float(found.kl.double().sum()), "agree": int(found.agree.sum())}
