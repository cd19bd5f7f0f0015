"""Picking rows of an evaluation's results, any part of which may be missing."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from ridgefill.evaluate.answers import NEEDLES
from ridgefill.evaluate.splice import ALL

Row = Mapping[str, Any]
Results = Mapping[str, Any]


def fill_plans(results: Results) -> list[str]:
    """The names of the plans that fill, in their order."""
    return [plan["name"] for plan in results.get("plans", ()) if plan.get("fill") != "exact"]


def rows_of(results: Results, part: str, **wanted: Any) -> list[Row]:
    """The rows of a part of the results whose fields have the ``wanted`` values."""
    return [
        row
        for row in results.get(part) or ()
        if all(row.get(key) == value for key, value in wanted.items())
    ]


def values(rows: Iterable[Row], key: str) -> list[Any]:
    """The different values of a field, in their order."""
    return list(dict.fromkeys(row[key] for row in rows))


def task_names(results: Results, rows: Iterable[Row]) -> list[str]:
    """The tasks of rows: the pooled needles, then those the run names, in its order."""
    first = [NEEDLES, *((results.get("config") or {}).get("tasks") or ())]
    order = {name: number for number, name in enumerate(first)}
    return sorted(values(rows, "task"), key=lambda name: order.get(name, len(order)))


def pooled(rows: Sequence[Row], *keys: str) -> list[Row]:
    """Of rows that agree in ``keys``, those over all lengths, or of the only length."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        row
        for group in groups.values()
        for row in ([row for row in group if row["length"] is None] or group)
    ]


def by_length(rows: Sequence[Row]) -> list[Row]:
    """The rows of one length, the shortest first."""
    return sorted((row for row in rows if row["length"] is not None), key=lambda r: r["length"])


def whole_range(rows: Sequence[Row]) -> list[Row]:
    """Of a plan's splices, those in all late layers: per component the widest range."""
    widest: dict[str, Row] = {}
    for row in rows:
        held = widest.setdefault(row["component"], row)
        if row["last"] - row["first"] > held["last"] - held["first"]:
            widest[row["component"]] = row
    return sorted(widest.values(), key=lambda row: row["component"] != ALL)


def by_layer(rows: Sequence[Row]) -> list[Row]:
    """Of a plan's splices, those in one layer."""
    return [row for row in rows if row["first"] == row["last"]]
