"""Results of an evaluation that never ran, summarised from records in the shape real ones have."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ridgefill.evaluate.loss import GROUPS
from ridgefill.evaluate.summary import summarise
from ridgefill.evaluate.verdict import Limits

NEEDLE_TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1")
LAYERS, TOKENS = 30, {"mean": 256, "distant": 14, "novel": 41}
COMPONENTS = ("keys", "key-scale", "key-direction", "values")


@dataclass(frozen=True)
class Fill:
    """How a made-up plan behaves.

    Args:
        keeps: chance to give an answer in the filled region that the exact prefill gives.
        increase: relative increase of the loss by group of tokens.
        gap: nats of damage that are spliced.
        shares: of the gap, by component.
    """

    name: str
    split: int = 15
    fill: str = "ridge"
    keeps: float = 1.0
    increase: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0.0))
    gap: float = 0.0
    shares: Sequence[float] = (0.72, 0.08, 0.6, 0.2)


def increases(mean: float, distant: float, novel: float) -> dict[str, float]:
    return {"mean": mean, "distant": distant, "novel": novel}


DEAD = Fill("s=15, one source", 15, "ridge", 0.0, increases(0.012, 0.08, 0.03), 0.9)
SAFE = Fill("s=20, four sources", 20, "ridge", 1.0, increases(0.001, 0.002, 0.004), 0.0)
IDENTITY = Fill("identity s=15", 15, "identity", 0.0, increases(0.17, 0.31, 0.12), 3.1)
DOUBTFUL = Fill("s=18, four sources", 18, "ridge", 0.985, increases(0.004, 0.009, 0.01), 0.2)


def results(
    fills: Sequence[Fill] = (DEAD, SAFE),
    lengths: Sequence[int] = (2048, 4096),
    tasks: Sequence[str] = NEEDLE_TASKS,
    samples: int = 4,
    documents: int = 8,
    splices: int = 8,
    limits: Limits | None = None,
    seed: int = 0,
    by_layer: Sequence[str] = ("retrieval",),
) -> dict[str, Any]:
    """A run's results.json."""
    limits, draw = limits or Limits(), random.Random(seed)
    records = [
        *_answers(draw, fills, lengths, tasks, samples),
        *_losses(draw, fills, lengths, documents),
        *_splices(draw, fills, lengths, splices, by_layer),
    ]
    names = [fill.name for fill in fills]
    return {
        "format_version": 1,
        "config": {
            "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "weights": "3f9a0c5be1d2",
            "lengths": list(lengths),
            "tasks": list(tasks),
            "samples": samples,
            "documents": documents,
            "splices": splices,
            "seed": seed,
            "loss": {"margin": 0.5, "ngram": 1},
            "limits": {
                "max_distant_loss": limits.max_distant_loss,
                "min_needle": limits.min_needle,
            },
            "texts": {"documents": "bundled text", "essays": "bundled text"},
            "chat_template": "auto",
        },
        "environment": {
            "versions": {"ridgefill": "0.2.0", "torch": "2.8.0", "transformers": "5.24.0"},
            "device": "x86_64",
        },
        "plans": [{"name": "exact", "fill": "exact", "ideal": {str(n): 1.0 for n in lengths}}]
        + [_plan(fill, lengths) for fill in fills],
        **summarise(records, "exact", names, NEEDLE_TASKS, limits),
    }


def times(found: Mapping[str, Any]) -> dict[str, Any]:
    """A run's times.json."""
    return {
        "rows": [
            {
                "plan": plan["name"],
                "length": int(length),
                "prefills": 12,
                "cpu_s": 12.0 / ideal,
                "wall_s": 6.0 / ideal,
                "ratio_cpu": 1 + 0.9 * (ideal - 1),
                "ratio_wall": 1 + 0.95 * (ideal - 1),
                "ideal": ideal,
            }
            for plan in found["plans"]
            for length, ideal in plan["ideal"].items()
        ]
    }


def _plan(fill: Fill, lengths: Sequence[int]) -> dict[str, Any]:
    ideal = LAYERS / fill.split
    return {
        "name": fill.name,
        "fill": fill.fill,
        "split": fill.split,
        "tail": 256,
        "sinks": 4,
        "every": 0,
        "ideal": {str(n): 1 + (ideal - 1) * (1 - 600 / n) for n in lengths},
        "filled_rows": {str(n): n - 260 for n in lengths},
    }


def _answers(
    draw: random.Random,
    fills: Sequence[Fill],
    lengths: Sequence[int],
    tasks: Sequence[str],
    samples: int,
) -> Iterator[dict[str, Any]]:
    for task in tasks:
        for length in lengths:
            for index in range(samples):
                place = (
                    "spread" if task not in NEEDLE_TASKS else ("filled", "exact")[index % 8 == 7]
                )
                right = float(draw.random() < 0.95)
                plans = {"exact": _answer(right, "exact")}
                for fill in fills:
                    kept = place == "exact" or draw.random() < fill.keeps
                    plans[fill.name] = _answer(right * kept, place)
                yield {
                    "id": f"{task}/{length}/{index}",
                    "kind": "answer",
                    "task": task,
                    "length": length,
                    "index": index,
                    "plans": plans,
                }


def _answer(score: float, region: str) -> dict[str, Any]:
    return {"score": score, "by_reference": [score], "regions": [region]}


def _losses(
    draw: random.Random, fills: Sequence[Fill], lengths: Sequence[int], documents: int
) -> Iterator[dict[str, Any]]:
    per_token = {"mean": 3.5, "distant": 2.1, "novel": 6.2}
    for length in lengths:
        for number in range(documents):
            exact = {g: TOKENS[g] * per_token[g] * draw.uniform(0.85, 1.15) for g in GROUPS}
            plans = {"exact": {"loss": exact, "kl": 0.0, "agree": TOKENS["mean"]}}
            for fill in fills:
                loss = {
                    g: exact[g] * (1 + fill.increase[g] * draw.uniform(0.6, 1.4)) for g in GROUPS
                }
                kl = TOKENS["mean"] * fill.increase["mean"] * draw.uniform(2, 3)
                agree = round(TOKENS["mean"] * (1 - min(fill.increase["mean"] * 4, 0.6)))
                plans[fill.name] = {"loss": loss, "kl": kl, "agree": agree}
            yield {
                "id": f"loss/{length}/{number}",
                "kind": "loss",
                "source": ("novel", "code")[number % 2],
                "length": length,
                "tokens": TOKENS,
                "plans": plans,
            }


def _splices(
    draw: random.Random,
    fills: Sequence[Fill],
    lengths: Sequence[int],
    splices: int,
    by_layer: Sequence[str],
) -> Iterator[dict[str, Any]]:
    for measure, scale in (("loss", 0.1), ("retrieval", 1.0)):
        for number in range(splices):
            yield {
                "id": f"splice/{measure}/{number}",
                "kind": "splice",
                "measure": measure,
                "length": min(lengths),
                "plans": {
                    fill.name: _spliced(draw, fill, scale, measure in by_layer) for fill in fills
                },
            }


def _spliced(draw: random.Random, fill: Fill, scale: float, by_layer: bool) -> dict[str, Any]:
    exact = 0.1 * draw.uniform(0.8, 1.2)
    gap = scale * (fill.gap * draw.uniform(0.8, 1.2) + 0.02 * draw.uniform(-1, 1))
    drawn = (1.0, *(share * draw.uniform(0.7, 1.3) for share in fill.shares))
    shares = dict(zip(("all", *COMPONENTS), drawn, strict=True))
    late = range(fill.split, LAYERS)
    parts = [
        _part(name, late[0], late[-1], exact + gap * (1 - share)) for name, share in shares.items()
    ]
    if by_layer:
        for name, share in shares.items():
            for layer in late if "-" not in name else ():
                part = (
                    share * draw.uniform(-0.2, 1.8) / len(late) * 2 * (LAYERS - layer) / len(late)
                )
                parts.append(_part(name, layer, layer, exact + gap * (1 - part)))
    return {"exact": exact, "filled": exact + gap, "parts": parts}


def _part(component: str, first: int, last: int, damage: float) -> dict[str, Any]:
    return {"component": component, "first": first, "last": last, "damage": damage}
