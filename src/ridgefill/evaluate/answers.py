"""Scores of generated answers by task, length and region, paired with the exact prefill."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ridgefill.evaluate.bootstrap import mean_interval, paired_interval

Record = Mapping[str, Any]
REGIONS = ("filled", "exact", "mixed", "spread")
NEEDLES = "needles"
"""The name under which the needle tasks are pooled."""


def answer_rows(
    records: Sequence[Record], exact: str, fills: Sequence[str], needles: Sequence[str]
) -> list[dict[str, Any]]:
    """One row per plan, task (and `NEEDLES`), length (null for all together) and region.

    ``region`` ``all`` scores samples by the task's own rule. In the other regions a sample's score
    is the mean over its references whose evidence lies there *under that plan*, and ``exact`` is
    the exact prefill's score on the same references. ``score``, ``exact`` and ``delta`` are
    intervals over samples; ``kept`` is the share of the exact prefill's right answers that the
    plan gives too, null where there are none.
    """
    rows: list[dict[str, Any]] = []
    for task, length, part in _groups(records, needles):
        for plan in fills:
            rows += _rows(part, exact, plan, {"plan": plan, "task": task, "length": length})
    return rows


def _groups(
    records: Sequence[Record], needles: Sequence[str]
) -> Iterator[tuple[str, int | None, list[Record]]]:
    tasks = list(dict.fromkeys(record["task"] for record in records))
    pools = {task: [r for r in records if r["task"] == task] for task in tasks}
    if len([task for task in tasks if task in needles]) > 1:
        pools[NEEDLES] = [record for record in records if record["task"] in needles]
    for task, pool in pools.items():
        lengths = sorted({record["length"] for record in pool})
        for length in lengths:
            yield task, length, [record for record in pool if record["length"] == length]
        if len(lengths) > 1:
            yield task, None, pool


def _rows(
    records: Sequence[Record], exact: str, plan: str, labels: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    ours = [record["plans"][plan]["score"] for record in records]
    theirs = [record["plans"][exact]["score"] for record in records]
    yield {**labels, "region": "all", **_compared(ours, theirs), "kept": None}
    for region in REGIONS:
        pairs = [pair for r in records if (pair := _in_region(r, exact, plan, region))]
        if pairs:
            a, b = ([fmean(part) for part in side] for side in zip(*pairs, strict=True))
            kept = _kept(pairs)
            interval = mean_interval(kept, (0.0, 1.0)).as_json() if kept else None
            yield {**labels, "region": region, **_compared(a, b), "kept": interval}


def _compared(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    return {
        "n": len(ours),
        "score": mean_interval(ours, (0.0, 1.0)).as_json(),
        "exact": mean_interval(theirs, (0.0, 1.0)).as_json(),
        "delta": paired_interval(ours, theirs, (-1.0, 1.0)).as_json(),
    }


def _in_region(
    record: Record, exact: str, plan: str, region: str
) -> tuple[list[float], list[float]] | None:
    """A sample's reference scores in a region, the plan's and the exact prefill's."""
    found = record["plans"][plan]
    at = [i for i, place in enumerate(found["regions"]) if place == region]
    if not at:
        return None
    exact_scores = record["plans"][exact]["by_reference"]
    return [found["by_reference"][i] for i in at], [exact_scores[i] for i in at]


def _kept(pairs: Sequence[tuple[list[float], list[float]]]) -> list[float]:
    """Per sample with right exact answers, the share of them that the plan gives too."""
    shares = []
    for ours, theirs in pairs:
        right = [a for a, b in zip(ours, theirs, strict=True) if b]
        if right:
            shares.append(fmean(right))
    return shares


def kept_values(records: Sequence[Record], exact: str, plan: str) -> list[float]:
    """`_kept` of the references whose evidence lies in the filled region under ``plan``."""
    pairs = [pair for r in records if (pair := _in_region(r, exact, plan, "filled"))]
    return _kept(pairs)
