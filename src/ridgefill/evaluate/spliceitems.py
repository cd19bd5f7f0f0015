"""Splice tests as items of an evaluation: on a document's loss, or on an answer in the prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ridgefill.core.engine import Method
from ridgefill.evaluate.decoding import answer_log_probs
from ridgefill.evaluate.documents import Window
from ridgefill.evaluate.items import Context, Record
from ridgefill.evaluate.plans import check_fills
from ridgefill.evaluate.splice import Splice, Splicer, splices
from ridgefill.evaluate.tasks import Task

LOSS, RETRIEVAL = "loss", "retrieval"


class SpliceTarget(Protocol):
    """What a splice is measured on: a prompt, and the damage to what its tail predicts."""

    @property
    def measure(self) -> str: ...

    @property
    def keep(self) -> int | None: ...

    @property
    def id(self) -> str: ...

    @property
    def length(self) -> int: ...

    def prompt(self) -> Tensor:
        """The prompt, int64 ``[1, seq]``."""
        ...

    def damage(self, context: Context, cache: Any, logits: Tensor) -> float:
        """Nats of loss after the tail ran on a mixed cache, giving ``logits`` ``[1, keep, V]``."""
        ...


@dataclass(frozen=True)
class LossTarget:
    """The mean loss of a document's tail."""

    window: Window
    measure = LOSS
    keep = None

    @property
    def id(self) -> str:
        return self.window.id

    @property
    def length(self) -> int:
        return self.window.length

    def prompt(self) -> Tensor:
        return self.window.input_ids[:, :-1]

    def damage(self, context: Context, cache: Any, logits: Tensor) -> float:
        targets = self.window.input_ids[0, -context.tail :].to(logits.device)
        return float(torch.nn.functional.cross_entropy(logits[0].float(), targets))


@dataclass(frozen=True)
class AnswerTarget:
    """Minus the mean log-probability of the tokens of a sample's first answer."""

    task: Task
    length: int
    index: int
    tokenizer: Any
    measure = RETRIEVAL
    keep = 1

    @property
    def id(self) -> str:
        return f"{self.task.name}/{self.length}/{self.index}"

    def prompt(self) -> Tensor:
        return self.task.sample(self.length, self.index).input_ids

    def damage(self, context: Context, cache: Any, logits: Tensor) -> float:
        sample = self.task.sample(self.length, self.index)
        text = " " + sample.references[0]
        answer = torch.tensor(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        scores = answer_log_probs(context.engine, cache, logits, answer)
        return -float(scores.gather(1, answer[:, None]).mean())


@dataclass(frozen=True)
class SpliceItem:
    """The splices of one prompt for every plan that fills."""

    target: SpliceTarget
    layers: int
    splits: Mapping[str, int]
    by_layer: bool

    @property
    def id(self) -> str:
        return f"splice/{self.target.id}"

    @property
    def cost(self) -> int:
        runs = sum(5 + 3 * (self.layers - s) * self.by_layer for s in self.splits.values())
        return self.target.length * (1 + len(self.splits)) + 256 * runs

    def run(self, context: Context) -> Record:
        prompt = self.target.prompt()
        check_fills(context.methods, prompt.shape[1])
        return {
            "id": self.id,
            "kind": "splice",
            "measure": self.target.measure,
            "length": self.target.length,
            "plans": {
                method.name: self._splices(context, method, prompt) for method in context.fills
            },
        }

    def _splices(self, context: Context, method: Method, prompt: Tensor) -> dict[str, Any]:
        split, damage, keep = self.splits[method.name], self.target.damage, self.target.keep
        splicer = Splicer(context.engine, method, prompt, context.tail)
        components = splicer.components(range(split, self.layers))
        exact = damage(context, *splicer.exact_logits(keep))
        parts = [
            {**_place(splice), "damage": damage(context, *splicer.logits(splice, keep))}
            for splice in splices(components, split, self.layers, self.by_layer)
        ]
        return {"exact": exact, "filled": parts[0]["damage"], "parts": parts[1:]}


def _place(splice: Splice | None) -> dict[str, Any]:
    if splice is None:
        return {}
    return {"component": splice.component, "first": splice.first, "last": splice.last}
