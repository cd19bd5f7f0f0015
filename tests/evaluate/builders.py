"""A tiny model behind its engine, plans on it, and a task that needs no text."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from ridgefill.core.engine import Method
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import TransformersEngine, identity_maps
from ridgefill.evaluate.tasks import Sample, Span
from tests.engines.transformers.builders import random_maps
from tests.engines.transformers.families import SPLIT, VOCAB, build

TAIL = 12
EXACT = Method("exact")


def engine(seed: int, family: str = "llama", dtype: torch.dtype = torch.float32):  # type: ignore[no-untyped-def]
    """An engine on a random model of a family in the test matrix."""
    return TransformersEngine(build(family, seed, dtype))


def fills(session: TransformersEngine, **rows: object) -> list[Method]:
    """An identity fill and random maps with the same plan; default a tail of `TAIL`."""
    plan = RowPlan(**{"tail": TAIL, "sinks": 2, **rows})  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(torch.initial_seed())  # the same maps in every call of a test
        maps = random_maps(session.model)
    return [
        Method("identity", identity_maps(session.model, SPLIT), plan),
        Method("random", maps, plan),
    ]


def random_document(length: int) -> Tensor:
    """Token ids ``[1, length]``."""
    return torch.randint(3, VOCAB, (1, length))


class LookUp:
    """A task on token ids: a marked word at a known place, scored by whether it comes back."""

    def __init__(self, name: str = "look-up", seed: int = 0) -> None:
        self.name, self.seed = name, seed

    def sample(self, length: int, index: int) -> Sample:
        draw = random.Random(f"{self.seed} {self.name} {length} {index}")
        ids = [draw.randrange(3, VOCAB) for _ in range(length - 4)]
        at = draw.randrange(len(ids))
        references = (f"w{ids[at]}",)
        spans = (Span(0, at, at + 1),)
        return Sample(self.name, length, index, torch.tensor([ids]), 4, references, spans)

    def score(self, prediction: str, sample: Sample) -> tuple[float, Sequence[float]]:
        found = [float(word in prediction.split()) for word in sample.references]
        return sum(found) / len(found), found
