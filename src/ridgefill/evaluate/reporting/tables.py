"""The tables of a report: what stands in them, not how they look."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ridgefill.evaluate.answers import NEEDLES
from ridgefill.evaluate.loss import GROUPS
from ridgefill.evaluate.reporting.cells import Cell, Column, Table
from ridgefill.evaluate.reporting.formats import (
    MISSING,
    MORE_NATS,
    MORE_PERCENT,
    NATS,
    PERCENT,
    Interval,
    Style,
    count,
)
from ridgefill.evaluate.reporting.rows import (
    Results,
    Row,
    by_length,
    fill_plans,
    pooled,
    rows_of,
    task_names,
    values,
    whole_range,
)

_RATIO = Style(1, 2)
_GROUP_NAMES = {"mean": "all (mean)", "distant": "distant", "novel": "novel"}


def plan_table(results: Results, times: Mapping[str, Any] | None) -> Table:
    """What each plan is, and its speed by length."""
    measured = {(row["plan"], row["length"]): row for row in (times or {}).get("rows", ())}
    lengths = (results.get("config") or {}).get("lengths") or ()
    kept = [
        (name, label) for name, label in (("every", "exact rows, 1 in"),) if _any(results, name)
    ]
    columns = [
        Column("plan", "head"),
        Column("fill", "text"),
        *(Column(name) for name in ("split", "sinks", "tail")),
        *(Column(label) for _, label in kept),
        *(Column(name) for name in ("prompt", "filled rows", "ideal")),
        *(Column(name, group="measured speed-up") for name in ("CPU", "wall", "CPU / ideal")),
    ]
    blocks = []
    for plan in results.get("plans", ()):
        rows = max(len(lengths), 1)
        what = [Cell(plan["name"], "head", rows), Cell(_fill(plan), "text", rows)]
        for key in ("split", "sinks", "tail", *(name for name, _ in kept)):
            what.append(Cell(_plain(plan.get(key)), rows=rows))
        speeds = [_speed(plan, n, measured.get((plan["name"], n))) for n in lengths]
        first, *others = speeds or [[Cell(MISSING) for _ in range(6)]]
        blocks.append([[*what, *first], *others])
    return Table("Plans, and how much faster they prefill", columns, blocks)


def _fill(plan: Row) -> str:
    """The kind of fill, with what its maps read and predict where that is known."""
    sources, target = plan.get("sources"), plan.get("target")
    known = plan.get("fill") == "ridge" and sources and target
    more = f", {count(len(sources), 'source')}, {target}" if sources and known else ""
    return plan.get("fill", MISSING) + more


def _any(results: Results, key: str) -> bool:
    return any(plan.get(key) for plan in results.get("plans", ()))


def _plain(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _speed(plan: Row, length: int, found: Row | None) -> list[Cell]:
    ideal = plan.get("ideal", {}).get(str(length))
    filled = plan.get("filled_rows", {}).get(str(length))
    cpu, wall = (found.get(key) if found else None for key in ("ratio_cpu", "ratio_wall"))
    share = cpu / ideal if cpu is not None and ideal else None
    numbers = (_RATIO.number(value) for value in (ideal, cpu, wall, share))
    return [Cell(f"{length:,}"), Cell(_plain(filled)), *(Cell(text) for text in numbers)]


def retrieval_tables(results: Results) -> list[Table]:
    """Scores by where the evidence lies: over all lengths, and by length if there are several."""
    rows = [row for row in results.get("answers") or () if row["region"] in ("filled", "exact")]
    columns = [
        *_scored("filled region"),
        Column("difference, points", "interval", "filled region"),
        Column("kept, %", "interval", "filled region"),
        *_scored("exact region"),
    ]
    return _answer_tables(results, rows, columns, _regions, "Retrieval")


def task_tables(results: Results) -> list[Table]:
    """Scores by the tasks' own rules, wherever the evidence lies."""
    rows = rows_of(results, "answers", region="all")
    columns = [*_scored(), Column("difference, points", "interval")]
    return _answer_tables(results, rows, columns, lambda rows: _scores(rows[0]), "Whole tasks")


def longbench_tables(results: Results) -> list[Table]:
    """Accuracy on LongBench v2 by difficulty and length, if it was asked."""
    found = results.get("longbench") or {}
    groups = list(next(iter(found.values()), {}))
    columns = [Column("plan", "head"), *(Column(name, "interval") for name in groups)]
    blocks = [
        [[Cell(plan, "head"), *(cell for name in groups for cell in _accuracy(parts[name]))]]
        for plan, parts in found.items()
    ]
    caption = "LongBench v2, accuracy in % and number of questions"
    return [Table(caption, columns, blocks)] if blocks else []


def _accuracy(part: Mapping[str, Any]) -> list[Cell]:
    share = MISSING if part["accuracy"] is None else PERCENT.number(part["accuracy"])
    return [Cell(share), Cell(f"{part['n']:,}", "range")]


def _scored(group: str = "") -> list[Column]:
    return [Column(label, group=group) for label in ("n", "exact, %", "plan, %")]


def _answer_tables(
    results: Results,
    rows: Sequence[Row],
    columns: Sequence[Column],
    cells: Callable[[list[Row]], list[Cell]],
    title: str,
) -> list[Table]:
    everything, single = pooled(rows, "plan", "task", "region"), by_length(rows)
    several = len(values(single, "length")) > 1
    parts = [(everything, f"{title}, all lengths together" if several else title)]
    if several:
        parts.append((single, f"{title}, by prompt length"))
    plans = fill_plans(results)
    tables = []
    for part, caption in parts:
        prompt = [Column("prompt")] if part is single else []
        blocks = _answer_blocks(results, part, plans, cells, bool(prompt))
        heads = [Column("task", "head"), *prompt, Column("plan", "head")]
        tables.append(Table(caption, [*heads, *columns], blocks))
    return [table for table in tables if table.blocks]


def _answer_blocks(
    results: Results,
    rows: Sequence[Row],
    plans: Sequence[str],
    cells: Callable[[list[Row]], list[Cell]],
    lengths: bool,
) -> list[list[list[Cell]]]:
    blocks = []
    for task in task_names(results, rows):
        mine = [row for row in rows if row["task"] == task]
        for length in values(mine, "length"):
            found = [[r for r in mine if (r["plan"], r["length"]) == (p, length)] for p in plans]
            lines = [
                [Cell(plan, "head"), *cells(part)]
                for plan, part in zip(plans, found, strict=True)
                if part
            ]
            name = "needles, pooled" if task == NEEDLES else task
            prompt = [Cell(_plain(length), rows=len(lines))] if lengths else []
            lines[0][:0] = [Cell(name, "head", len(lines)), *prompt]
            blocks.append(lines)
    return blocks


def _regions(rows: list[Row]) -> list[Cell]:
    found = {row["region"]: row for row in rows}
    filled, exact = found.get("filled"), found.get("exact")
    kept = _measured(filled["kept"] if filled else None, PERCENT)
    return [*_scores(filled), *kept, *_scores(exact)[:3]]


def _scores(row: Row | None) -> list[Cell]:
    if row is None:
        return [Cell("0"), *(Cell(MISSING) for _ in range(3)), Cell("", "range")]
    means = [Cell(PERCENT.number(row[key]["mean"])) for key in ("exact", "score")]
    return [Cell(f"{row['n']:,}"), *means, *_measured(row["delta"], MORE_PERCENT, tested=True)]


def _measured(interval: Interval | None, style: Style, tested: bool = False) -> list[Cell]:
    """A mean and its interval; a ``tested`` one stands out where the interval excludes zero."""
    if interval is None:
        return [Cell(MISSING), Cell("", "range")]
    low, high = interval["low"], interval["high"]
    certain = tested and None not in (low, high) and (low > 0 or high < 0)
    mean = Cell(style.number(interval["mean"]), strong=certain)
    return [mean, Cell(style.limits(interval), "range")]


def loss_tables(results: Results) -> list[Table]:
    """Losses by group of tokens: over all lengths, and by length if there are several."""
    rows = results.get("loss") or ()
    several = len(values(by_length(rows), "length")) > 1
    together = "Losses, all lengths together" if several else "Losses"
    tables = [_loss_table(results, pooled(rows, "plan", "group"), together, several=False)]
    if several:
        tables.append(_loss_table(results, by_length(rows), "Losses, by prompt length", True))
    tables.append(_loss_table(results, results.get("loss_by_source") or (), "Losses by source"))
    return [table for table in tables if table.blocks]


def _loss_table(
    results: Results, rows: Iterable[Row], caption: str, several: bool = False
) -> Table:
    rows = list(rows)
    sources = any("source" in row for row in rows)
    columns = [
        Column("plan", "head"),
        *([Column("prompt")] if several else []),
        *([Column("documents of", "head")] if sources else []),
        Column("group", "head"),
        Column("documents"),
        Column("tokens"),
        Column("exact", group="nats per token"),
        Column("plan", group="nats per token"),
        Column("increase", "interval", "nats per token"),
        Column("KL", group="nats per token"),
        Column("increase, %", "interval"),
        Column("top-1, %"),
    ]
    held: dict[tuple[str, int | None, str | None], dict[str, Row]] = {}
    for row in rows:
        place = (row["plan"], row["length"] if several else None, row.get("source"))
        held.setdefault(place, {})[row["group"]] = row
    blocks = []
    plans = fill_plans(results)
    ordered = sorted(held.items(), key=lambda item: plans.index(item[0][0]))
    for (plan, length, source), groups in ordered:
        lines = [
            [Cell(_GROUP_NAMES[group], "head"), *_losses(groups[group])]
            for group in GROUPS
            if group in groups
        ]
        prompt = [Cell(f"{length:,}", rows=len(lines))] if length is not None else []
        origin = [Cell(source, "head", len(lines))] if source is not None else []
        lines[0][:0] = [Cell(plan, "head", len(lines)), *prompt, *origin]
        blocks.append(lines)
    return Table(caption, columns, blocks)


def _losses(row: Row) -> list[Cell]:
    return [
        Cell(f"{row['delta']['n']:,}"),
        Cell(f"{row['tokens']:,}"),
        *(Cell(NATS.number(row[key]["mean"])) for key in ("exact", "loss")),
        *_measured(row["delta"], MORE_NATS, tested=True),
        Cell(NATS.number(row["kl"]["mean"]) if row.get("kl") else ""),
        *_measured(row["relative"], MORE_PERCENT, tested=True),
        Cell(PERCENT.number(row["agree"]["mean"]) if row.get("agree") else ""),
    ]


def splice_table(results: Results, measure: str) -> Table:
    """What exact components in all late layers undo, by plan."""
    columns = [
        Column("plan", "head"),
        Column("exact component", "head"),
        Column("share closed, %", "interval"),
        Column("undone, nats", "interval"),
        Column("gap, nats", "interval"),
    ]
    blocks = []
    for plan in fill_plans(results):
        whole = whole_range(rows_of(results, "splice", measure=measure, plan=plan))
        lines = [
            [
                Cell(row["component"], "head"),
                *_measured(row["closed"], PERCENT),
                *_measured(row["undone"], MORE_NATS, tested=True),
            ]
            for row in whole
        ]
        if lines:
            gap = _measured(whole[0]["gap"], MORE_NATS, tested=True)
            lines[0].insert(0, Cell(plan, "head", len(lines)))
            lines[0] += [Cell(c.text, c.kind, len(lines), c.strong) for c in gap]
            blocks.append(lines)
    return Table("Components made exact in all late layers", columns, blocks)
