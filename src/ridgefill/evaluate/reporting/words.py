"""The sentences of a report: verdicts in words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ridgefill.evaluate.reporting.formats import PERCENT, Interval, Style, as_change, count, listed
from ridgefill.evaluate.reporting.rows import Results, pooled, rows_of
from ridgefill.evaluate.verdict import HARMFUL, SAFE, UNSURE

HARMLESS_MEAN = 0.02
"""A relative increase of the mean loss up to which it looks harmless by itself."""


@dataclass(frozen=True)
class CheckWords:
    """How a check is spoken of.

    ``value`` is filled with the value and how many there are; ``endings`` go on, by answer, with
    the limit; ``harm`` is what is wrong when it is broken, ``sample`` what is counted, ``wanted``
    what more of would decide, ``missing`` what there was none of when it is unmeasured.
    """

    value: str
    endings: Mapping[str, str]
    harm: str
    sample: str = "sample"
    wanted: str = "sample"
    missing: str = "no sample"
    change: bool = False


CHECKS: Mapping[str, CheckWords] = {
    "needle": CheckWords(
        "Of the answers in the filled region that the exact prefill gives, it keeps {value} ({n})",
        {
            SAFE: ", meeting the {limit} asked for.",
            HARMFUL: ", short of the {limit} asked for.",
            UNSURE: ". The {limit} asked for",
        },
        "it loses answers in the filled region",
        "prompt",
        "needle prompt",
        "no needle in the filled region that the exact prefill finds",
    ),
    "distant_loss": CheckWords(
        "The loss on distant tokens {value} ({n})",
        {
            SAFE: ", within the limit of {limit}.",
            HARMFUL: ", over the limit of {limit}.",
            UNSURE: ". The limit of {limit}",
        },
        "it costs too much on distant tokens",
        "document",
        "document",
        "no distant token",
        change=True,
    ),
}
_OTHER_ENDINGS = {
    SAFE: ", within the limit of {limit}.",
    HARMFUL: ", beyond the limit of {limit}.",
    UNSURE: ". The limit of {limit}",
}
_OPENINGS = {
    SAFE: "Safe on {model} under this plan: both limits hold.",
    HARMFUL: "Harmful on {model} under this plan: {harms}.",
    UNSURE: "Unsure on {model} under this plan: {doubt}.",
}


@dataclass(frozen=True)
class Verdict:
    """A plan's verdict in words.

    ``opening``, then ``sentences``, then ``hidden`` where mean loss hides the damage.
    """

    plan: str
    answer: str
    rows: str
    opening: str
    sentences: list[str]
    hidden: str | None
    unmeasured: bool


def verdicts(results: Results) -> list[Verdict]:
    """The verdict of every plan that fills."""
    return [_verdict(results, found) for found in results.get("verdicts") or ()]


def _verdict(results: Results, found: Mapping[str, Any]) -> Verdict:
    mean = _mean_loss(results, found["plan"])
    hides = mean is not None and mean_hides(found, mean)
    sentences = [_check(check) for check in _worst_first(found["checks"])]
    sentences += [_unmeasured(name) for name in found["unmeasured"]]
    if mean is not None and not hides:
        sentences.append(f"Over all tokens the loss {as_change(mean)}.")
    sentences += _by_source(results, found["plan"])
    hidden = f"Mean loss hides this: over all tokens the loss {as_change(mean)}" if mean else ""
    return Verdict(
        plan=found["plan"],
        answer=found["answer"],
        rows=_rows(results, found["plan"]),
        opening=_opening(results, found),
        sentences=sentences,
        hidden=f"{hidden}, which by itself looks harmless." if hides else None,
        unmeasured=bool(found["unmeasured"]),
    )


def _by_source(results: Results, plan: str) -> list[str]:
    """The mean loss on each source of documents: one may be fine where another is not."""
    rows = rows_of(results, "loss_by_source", plan=plan, group="mean")
    parts = [f"on {row['source']} it {as_change(row['relative'])}" for row in rows]
    return [f"By source of the documents: {listed(parts)}."] if parts else []


def mean_hides(found: Mapping[str, Any], mean: Interval) -> bool:
    """Whether a limit is broken while the mean loss is certain to look harmless."""
    broken = any(check["answer"] == HARMFUL for check in found["checks"])
    return broken and mean["high"] is not None and mean["high"] <= HARMLESS_MEAN


def _mean_loss(results: Results, plan: str) -> Interval | None:
    rows = pooled(rows_of(results, "loss", plan=plan, group="mean"), "plan")
    return rows[0]["relative"] if rows else None


def _worst_first(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = {HARMFUL: 0, UNSURE: 1, SAFE: 2}
    return sorted(checks, key=lambda check: order[check["answer"]])


def _opening(results: Results, found: Mapping[str, Any]) -> str:
    answers = [check["answer"] for check in found["checks"]]
    broken = [check["name"] for check in found["checks"] if check["answer"] == HARMFUL]
    doubts = ["the samples at hand do not decide"] if UNSURE in answers else []
    if found["unmeasured"]:
        doubts.append("one limit is unmeasured" if answers else "neither limit is measured")
    return _OPENINGS[found["answer"]].format(
        model=(results.get("config") or {}).get("model", "this model"),
        harms=listed([_words(name).harm for name in broken]),
        doubt=listed(doubts),
    )


def _check(check: Mapping[str, Any]) -> str:
    words, interval, style = _words(check["name"]), check["interval"], _style(check)
    value = as_change(interval, style) if words.change else style.interval(interval)
    said = words.value.format(value=value, n=f"n\u00a0=\u00a0{count(interval['n'], words.sample)}")
    ending = words.endings[check["answer"]].format(limit=PERCENT.value(check["limit"]))
    advice = f" {_advice(check, words, style)}" if check["answer"] == UNSURE else ""
    return said + ending + advice


def _style(check: Mapping[str, Any]) -> Style:
    """Percent, with more digits where rounding would put an end of the interval on the limit."""
    interval, limit = check["interval"], check["limit"]
    ends = [end for end in (interval["low"], interval["high"]) if end not in (None, limit)]
    near = any(PERCENT.number(end) == PERCENT.number(limit) for end in ends)
    return replace(PERCENT, digits=2) if near else PERCENT


def _advice(check: Mapping[str, Any], words: CheckWords, style: Style) -> str:
    interval, more = check["interval"], check["more"]
    if interval["low"] is None or interval["high"] is None:
        where = f"cannot be judged by {count(interval['n'], words.sample)}"
    else:
        where = f"lies inside the interval {style.limits(interval)}"
    if more is None:
        return f"{where}, and no affordable number of {words.wanted}s would decide."
    return f"{where}: about {count(more, f'more {words.wanted}')} like these would decide."


def _unmeasured(name: str) -> str:
    words = _words(name)
    return f"Unmeasured: there was {words.missing}, so nothing is known of whether {words.harm}."


def _words(name: str) -> CheckWords:
    return CHECKS.get(name) or CheckWords(
        f"{name}: {{value}} ({{n}})", _OTHER_ENDINGS, f"it breaks the limit of {name}"
    )


def _rows(results: Results, plan: str) -> str:
    """A plan in a few words."""
    named = [row for row in results.get("plans", ()) if row["name"] == plan]
    found: Mapping[str, Any] = named[0] if named else {}
    parts = [f"{found['fill']} fill"] if "fill" in found else []
    parts += [f"{key} {found[key]:,}" for key in ("split", "tail") if key in found]
    parts += [count(found["sinks"], "sink")] if "sinks" in found else []
    parts += [f"one row in {found['every']} exact"] if found.get("every") else []
    ideal = found.get("ideal") or {}
    longest = max(ideal, key=int, default=None)
    parts += [f"ideal {ideal[longest]:.2f}x at {int(longest):,} tokens"] if longest else []
    return ", ".join(parts)
