"""Models, requests and reference scores for the tests of the harness."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers import PreTrainedModel

from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.harness import RidgeFillLM
from tests.engines.transformers.builders import random_maps, tiny_tokenizer
from tests.engines.transformers.families import SPLIT, build
from tests.engines.transformers.reference import BruteForce
from tests.harness_tasks import text

TAIL, SINKS = 8, 2
IDENTITY = {"fill": "identity", "split": SPLIT}


def make_model(seed: int) -> PreTrainedModel:
    """In fp64, so that neither batches nor padding change a digit that is compared."""
    return build("llama", seed, torch.float64)


def save_maps(model: PreTrainedModel, folder: Path) -> str:
    """The directory of random maps with `TAIL` and `SINKS`."""
    random_maps(model, tail=TAIL, sinks=SINKS).save_pretrained(folder / "maps")
    return str(folder / "maps")


def filled(model: PreTrainedModel, **options: Any) -> RidgeFillLM:
    return RidgeFillLM(model, tokenizer=tiny_tokenizer(), **options)


def stock(model: PreTrainedModel, **options: Any) -> HFLM:
    return HFLM(model, tokenizer=tiny_tokenizer(), **options)


def ask(context: str, continuation: str) -> Instance:
    return Instance("loglikelihood", {}, (context, continuation), 0)


def requests(seed: int, sizes: list[tuple[int, int]]) -> list[Instance]:
    """Contexts and continuations of so many words."""
    draw = random.Random(seed)
    return [ask(text(draw, context), " " + text(draw, scored)) for context, scored in sizes]


def encode(words: str) -> list[int]:
    return [1, *(int(word[1:]) for word in words.split())]


class Reference:
    """Log-probabilities of the filled model, computed row by row without a cache."""

    def __init__(self, model: PreTrainedModel, maps: FillMaps, plan: RowPlan) -> None:
        self.model, self.maps, self.plan = model, maps, plan

    def score(self, request: Instance, max_length: int = 10_000) -> tuple[float, bool]:
        context, continuation = (encode(part) for part in request.args)
        ids = torch.tensor([*context, *continuation[1:]][-max_length - 1 :])
        count = len(continuation) - 1
        exact = self.plan.exact_mask(torch.ones(1, len(ids) - 1, dtype=torch.bool))[0]
        total, greedy = 0.0, True
        for at in range(len(ids) - count, len(ids)):
            rows = BruteForce(self.model, self.maps, exact[:at]).logits(ids[:at])
            total += float(rows.log_softmax(-1)[ids[at]])
            greedy &= int(rows.argmax()) == int(ids[at])
        return total, greedy


def close(ours: list[Any], theirs: list[Any]) -> None:
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-9)
