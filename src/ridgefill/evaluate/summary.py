"""From records to results: means and paired intervals per plan, pooled by task, length and region.

Nothing here depends on the order or the timing of a run: the same records give the same results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ridgefill.evaluate import longbench
from ridgefill.evaluate.answers import answer_rows, kept_values
from ridgefill.evaluate.bootstrap import RESAMPLES, Interval, mean_interval, ratio_interval
from ridgefill.evaluate.loss import GROUPS
from ridgefill.evaluate.splicetable import splice_rows
from ridgefill.evaluate.verdict import Check, Limits, check_least, check_most, overall

Record = Mapping[str, Any]


def summarise(
    records: Iterable[Record],
    exact: str,
    fills: Sequence[str],
    needles: Sequence[str],
    limits: Limits,
) -> dict[str, Any]:
    """Results of a run as JSON values.

    Args:
        records: those of `ridgefill.evaluate.items`, in any order.
        exact: name of the exact plan.
        fills: names of the others.
        needles: names of the tasks whose answers lie at one place of the prompt, pooled as
            ``needles``.
        limits: of the verdicts.

    Returns ``answers``, ``loss``, ``loss_by_source``, ``splice`` and ``verdicts``, each a list of
    rows, and ``longbench`` where it was asked; see the functions that make them.
    """
    ordered = sorted(records, key=lambda record: record["id"])
    by_kind = {
        kind: [record for record in ordered if record["kind"] == kind]
        for kind in ("answer", "loss", "splice")
    }
    by_split = longbench.summary(by_kind["answer"])
    return {
        **({"longbench": by_split} if by_split else {}),
        "answers": answer_rows(by_kind["answer"], exact, fills, needles),
        "loss": [row for plan in fills for row in loss_rows(by_kind["loss"], exact, plan)],
        "loss_by_source": [row for p in fills for row in source_rows(by_kind["loss"], exact, p)],
        "splice": [row for plan in fills for row in splice_rows(by_kind["splice"], plan)],
        "verdicts": [verdict(by_kind, exact, plan, needles, limits) for plan in fills],
    }


def loss_rows(records: Sequence[Record], exact: str, plan: str) -> list[dict[str, Any]]:
    """One row per group of tokens, for every length and for all together (``length`` null).

    ``exact`` and ``loss`` are in nats per token; ``delta`` is their paired difference, ``relative``
    that difference over the exact loss. The group ``mean`` also has ``kl`` (nats per token) and
    ``agree`` (share of most likely tokens that are the exact prefill's). Intervals are over
    documents.
    """
    lengths = sorted({record["length"] for record in records})
    chosen = [(length, [r for r in records if r["length"] == length]) for length in lengths]
    if len(lengths) > 1:
        chosen.append((None, list(records)))
    return [
        _loss_row(part, exact, plan, group, length)
        for length, part in chosen
        for group in GROUPS
        if sum(record["tokens"][group] for record in part)
    ]


def source_rows(records: Sequence[Record], exact: str, plan: str) -> list[dict[str, Any]]:
    """`loss_rows` over all lengths for every source of documents, where there are several."""
    sources = sorted({record["source"] for record in records})
    chosen = [(source, [r for r in records if r["source"] == source]) for source in sources]
    return [
        {"source": source, **_loss_row(part, exact, plan, group, None)}
        for source, part in chosen
        for group in GROUPS
        if len(sources) > 1 and sum(record["tokens"][group] for record in part)
    ]


def _loss_row(
    records: Sequence[Record], exact: str, plan: str, group: str, length: int | None
) -> dict[str, Any]:
    tokens = [record["tokens"][group] for record in records]
    theirs = [record["plans"][exact]["loss"][group] for record in records]
    ours = [record["plans"][plan]["loss"][group] for record in records]
    more = [a - b for a, b in zip(ours, theirs, strict=True)]
    row = {
        "plan": plan,
        "length": length,
        "group": group,
        "tokens": sum(tokens),
        "exact": ratio_interval(theirs, tokens).as_json(),
        "loss": ratio_interval(ours, tokens).as_json(),
        "delta": ratio_interval(more, tokens).as_json(),
        "relative": ratio_interval(more, theirs).as_json(),
    }
    if group == "mean":
        for name in ("kl", "agree"):
            values = [record["plans"][plan][name] for record in records]
            row[name] = ratio_interval(values, tokens).as_json()
    return row


def verdict(
    by_kind: Mapping[str, Sequence[Record]],
    exact: str,
    plan: str,
    needles: Sequence[str],
    limits: Limits,
) -> dict[str, Any]:
    """``answer`` (safe, harmful or unsure) and the ``checks`` behind it, by `Limits`.

    A limit without a sample to check it by is ``unmeasured``, and the answer then never safe.
    """
    checks, unmeasured = checks_of(by_kind, exact, plan, needles, limits)
    answer = overall(checks)
    if unmeasured and answer == "safe":
        answer = "unsure"
    return {
        "plan": plan,
        "answer": answer,
        "checks": [check.as_json() for check in checks],
        "unmeasured": unmeasured,
    }


def checks_of(
    by_kind: Mapping[str, Sequence[Record]],
    exact: str,
    plan: str,
    needles: Sequence[str],
    limits: Limits,
) -> tuple[list[Check], list[str]]:
    """The checks that the records allow, and the names of those they do not."""
    checks, unmeasured = [], []
    increase = _distant_increase(by_kind["loss"], exact, plan)
    if increase is None:
        unmeasured.append("distant_loss")
    else:
        limit = limits.max_distant_loss
        checks.append(check_most("distant_loss", limit, increase(1), increase))
    kept = kept_values([r for r in by_kind["answer"] if r["task"] in needles], exact, plan)
    if not kept:
        unmeasured.append("needle")
    else:
        times = partial(_share, kept)
        checks.append(check_least("needle", limits.min_needle, times(1), times))
    return checks, unmeasured


def _share(values: Sequence[float], times: int) -> Interval:
    return mean_interval(list(values) * times, (0.0, 1.0), _resamples(times))


def _distant_increase(
    records: Sequence[Record], exact: str, plan: str
) -> Callable[[int], Interval] | None:
    theirs = [record["plans"][exact]["loss"]["distant"] for record in records]
    ours = [record["plans"][plan]["loss"]["distant"] for record in records]
    if not sum(theirs):
        return None
    more = [a - b for a, b in zip(ours, theirs, strict=True)]
    return lambda times: ratio_interval(more * times, theirs * times, _resamples(times))


def _resamples(times: int) -> int:
    """The samples at hand are judged as in the tables; how many more are needed is a guess."""
    return RESAMPLES if times == 1 else 1000
