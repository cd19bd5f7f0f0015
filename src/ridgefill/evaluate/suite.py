"""A whole evaluation: which items it has, and running them so that it can be interrupted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ridgefill.core.engine import Method
from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.documents import Window
from ridgefill.evaluate.items import AnswerItem, Context, Item, LossItem
from ridgefill.evaluate.journal import Journal
from ridgefill.evaluate.spliceitems import (
    LOSS,
    RETRIEVAL,
    AnswerTarget,
    LossTarget,
    SpliceItem,
    SpliceTarget,
)
from ridgefill.evaluate.tasks import Task

Report = Callable[[Item], None]


@dataclass(frozen=True)
class Amounts:
    """How much of everything, per length.

    Args:
        samples: prompts per task.
        documents: windows of documents for the losses.
        splices: documents, and as many needle prompts, that are spliced at the shortest length.
        by_layer: what is spliced layer by layer as well, for a heat map: ``loss``, ``retrieval``.
    """

    samples: int
    documents: int
    splices: int
    by_layer: tuple[str, ...] = (RETRIEVAL,)


SUITES: Mapping[str, tuple[Amounts, tuple[str, ...]]] = {
    "quick": (
        Amounts(samples=5, documents=8, splices=3),
        ("niah_single_1", "niah_single_2", "niah_multikey_1"),
    ),
    "full": (
        Amounts(samples=50, documents=64, splices=12, by_layer=(LOSS, RETRIEVAL)),
        (
            *("niah_single_1", "niah_single_2", "niah_single_3"),
            *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
            *("niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"),
        ),
    ),
}
"""Amounts and tasks by name of the suite; the qa tasks come in where their data is given."""


def make_items(
    methods: Sequence[Method],
    tasks: Sequence[Task],
    lengths: Sequence[int],
    windows: Mapping[int, Sequence[Window]],
    amounts: Amounts,
    layers: int,
    tokenizer: Any,
    needles: Sequence[str] = (),
) -> list[Item]:
    """The items of an evaluation, so ordered that all kinds of results grow together.

    Args:
        methods: the plans.
        tasks: those with generated answers.
        lengths: prompt lengths in tokens.
        windows: documents per length.
        amounts: how many of each.
        layers: of the model.
        tokenizer: the model's.
        needles: names of tasks that a splice may ask; the first of them among ``tasks`` is used.
    """
    spliced = list(
        _splice_items(methods, tasks, min(lengths), windows, amounts, layers, tokenizer, needles)
    )
    items: list[Item] = []
    for index in range(max(amounts.samples, amounts.documents, amounts.splices)):
        for length in lengths:
            if index < amounts.samples:
                items += [AnswerItem(task, length, index, len(methods)) for task in tasks]
            held = windows.get(length, ())[: amounts.documents]
            items += [LossItem(window, len(methods)) for window in held[index : index + 1]]
        items += spliced[index :: amounts.splices] if index < amounts.splices else []
    return items


def _splice_items(
    methods: Sequence[Method],
    tasks: Sequence[Task],
    length: int,
    windows: Mapping[int, Sequence[Window]],
    amounts: Amounts,
    layers: int,
    tokenizer: Any,
    needles: Sequence[str],
) -> Iterable[Item]:
    splits = {m.name: m.maps.config.split for m in methods if m.maps is not None}
    targets: list[SpliceTarget] = [
        LossTarget(window) for window in windows.get(length, ())[: amounts.splices]
    ]
    asked = next((task for task in tasks if task.name in needles), None)
    if asked is not None:
        targets += [
            AnswerTarget(asked, length, index, tokenizer) for index in range(amounts.splices)
        ]
    return [
        SpliceItem(target, layers, splits, target.measure in amounts.by_layer) for target in targets
    ]


def run_items(
    items: Sequence[Item], context: Context, journal: Journal, report: Report | None = None
) -> list[dict[str, Any]]:
    """Run the items that the journal does not hold, and return the records of all of them.

    ``report`` is called with every item that is done, those of an earlier run first.
    """
    step = report or (lambda item: None)
    missing = []
    for item in items:
        if item.id in journal.records:
            step(item)
        else:
            missing.append(item)
    for item in missing:
        try:
            journal.append(item.run(context))
        except RidgeFillError as error:
            raise RidgeFillError(f"{item.id}: {error}") from error
        step(item)
    return [journal.records[item.id] for item in items]
