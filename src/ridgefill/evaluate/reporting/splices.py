"""Which component carries the error, in one sentence."""

from collections.abc import Mapping, Sequence

from ridgefill.evaluate.reporting.formats import MORE_NATS, PERCENT, Interval
from ridgefill.evaluate.reporting.rows import Results, Row, fill_plans, rows_of, whole_range
from ridgefill.evaluate.splice import ALL

MEASURES: Mapping[str, str] = {
    "loss": "mean loss of a document's tail",
    "retrieval": "loss of a needle's answer",
}
_KEY_PARTS = {"key-scale": "scale", "key-direction": "direction"}


def carriers(results: Results, measure: str) -> list[tuple[str, str]]:
    """For every plan that was spliced, its name and a sentence."""
    found = [
        (plan, whole_range(rows_of(results, "splice", measure=measure, plan=plan)))
        for plan in fill_plans(results)
    ]
    return [(plan, _carrier(rows)) for plan, rows in found if rows]


def _carrier(rows: Sequence[Row]) -> str:
    gap = rows[0]["gap"]
    size = f"the gap of {MORE_NATS.interval(gap)} (n\u00a0=\u00a0{gap['n']})"
    shares = {row["component"]: row["closed"] for row in rows if row["closed"] is not None}
    single = {name: share for name, share in shares.items() if name != ALL}
    whole = [name for name in single if name not in _KEY_PARTS]
    if not whole:
        return (
            f"{size[0].upper()}{size[1:]} is not certain to be above zero, so no component can be "
            "said to carry it; the nats undone are given instead of shares."
        )
    first, *others = sorted(whole, key=lambda name: -single[name]["mean"])
    share = single[first]
    if share["mean"] <= 0:
        return f"No component by itself closes any of {size}."
    part = "most of the error" if share["mean"] > 0.5 else "the largest share of the error"
    text = f"Exact {_name(first)} close {PERCENT.interval(share)} of {size}"
    against = f", {_name(others[0])} {PERCENT.interval(single[others[0]])}" if others else ""
    if others and _overlap(share, single[others[0]]):
        ending = "; the intervals overlap, so which of them carries more is open"
    else:
        ending = f": {_name(first)} carry {part}"
    return f"{text}{against}{ending}.{_key_parts(first, single)}"


def _key_parts(first: str, single: Mapping[str, Interval]) -> str:
    parts = [
        f"their {name} alone {PERCENT.interval(single[part])}"
        for part, name in _KEY_PARTS.items()
        if first == "keys" and part in single
    ]
    return f" Of the keys, {' and '.join(parts)}." if parts else ""


def _overlap(a: Interval, b: Interval) -> bool:
    limits = (a["low"], a["high"], b["low"], b["high"])
    return None in limits or (a["low"] <= b["high"] and b["low"] <= a["high"])


def _name(component: str) -> str:
    return component.replace("-state", " states")
