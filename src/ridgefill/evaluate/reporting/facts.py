"""What a report says about its own run: what to be careful with, and how it was set up."""

from collections.abc import Mapping
from typing import Any

from ridgefill.evaluate.answers import NEEDLES
from ridgefill.evaluate.reporting.formats import MISSING, PERCENT, count, listed
from ridgefill.evaluate.reporting.rows import Results, fill_plans, pooled, rows_of, values

BUNDLED = "bundled text"
FEW = 30
"""A sample smaller than this is called small."""
_WEAK = 0.5


def subtitle(results: Results) -> str:
    """How much was measured, in one line."""
    config = results.get("config") or {}
    lengths = [f"{length:,}" for length in config.get("lengths") or ()]
    parts = [f"{count(len(fill_plans(results)), 'plan')} beside exact"]
    parts += [f"prompts of {listed(lengths)} tokens"] if lengths else []
    if config.get("tasks") and config.get("samples"):
        parts.append(f"{count(config['samples'], 'prompt')} per task and length")
    if config.get("documents"):
        parts.append(f"{count(config['documents'], 'document')} per length")
    return " · ".join(parts)


def cautions(results: Results) -> list[str]:
    """What to keep in mind when reading the figures, the most important first."""
    return [*_small(results), *_weak(results), *_bundled(results)]


def _small(results: Results) -> list[str]:
    checks = [check for found in results.get("verdicts") or () for check in found["checks"]]
    units = {"needle": "needle prompt", "distant_loss": "document"}
    few = {
        name: min(check["interval"]["n"] for check in checks if check["name"] == name)
        for name in values(checks, "name")
    }
    parts = [count(n, units.get(name, "sample")) for name, n in few.items() if n < FEW]
    if not parts:
        return []
    return [f"Small sample: verdicts rest on {listed(parts)}. Read the size of an effect."]


def _weak(results: Results) -> list[str]:
    rows = pooled(rows_of(results, "answers", region="filled"), "task", "plan")
    weak = {row["task"]: row["exact"]["mean"] for row in rows if row["exact"]["mean"] < _WEAK}
    return [
        f"The exact prefill itself scores only {PERCENT.value(mean)} on "
        f"{'the needle tasks' if task == NEEDLES else task} in the filled region: there is little "
        "there for a fill to lose."
        for task, mean in weak.items()
    ]


def _bundled(results: Results) -> list[str]:
    texts = (results.get("config") or {}).get("texts") or {}
    found = []
    if texts.get("essays") == BUNDLED and results.get("answers"):
        found.append(
            "Haystacks are made of the bundled text, not of the essays that published scores use: "
            "compare plans here, not with scores elsewhere."
        )
    if texts.get("documents") == BUNDLED and results.get("loss"):
        found.append("Losses are on the bundled text. Measure on your own before you serve a plan.")
    return found


def settings(results: Results) -> list[tuple[str, str]]:
    """Config and environment as labels and values, what is missing left out."""
    config = results.get("config") or {}
    environment = results.get("environment") or {}
    limits, loss = config.get("limits") or {}, config.get("loss") or {}
    texts = config.get("texts") or {}
    found = {
        "model": config.get("model"),
        "weights": config.get("weights"),
        "suite": config.get("suite"),
        "prompt lengths": ", ".join(f"{length:,}" for length in config.get("lengths") or ()),
        "tasks": ", ".join(config.get("tasks") or ()),
        "prompts per task and length": config.get("samples"),
        "documents per length": config.get("documents"),
        "spliced prompts per measure": config.get("splices"),
        "text": ", ".join(f"{name}: {label}" for name, label in texts.items()),
        "chat template": config.get("chat_template", config.get("chat")),
        "seed": config.get("seed"),
        "limits": ", ".join(f"{name} {PERCENT.value(x)}" for name, x in limits.items()),
        "token groups": ", ".join(f"{name} {value}" for name, value in loss.items()),
        "device": environment.get("device"),
        "versions": _versions(environment.get("versions") or {}),
    }
    return [(label, str(value)) for label, value in found.items() if value not in (None, "")]


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version or MISSING}" for name, version in versions.items())


def definitions(results: Results) -> list[tuple[str, str]]:
    """The terms of the report that its results use, and what they mean."""
    loss = (results.get("config") or {}).get("loss") or {}
    ngram = loss.get("ngram", 1)
    novel = (
        "has not occurred before in the document"
        if ngram == 1
        else f"has not followed its last {count(ngram - 1, 'token')} before in the document"
    )
    answers, losses, splice = (bool(results.get(p)) for p in ("answers", "loss", "splice"))
    found = [
        (
            answers,
            "Filled region",
            "Filled rows have late-layer cache entries from a map; sinks, the tail and chosen rows "
            "are exact rows. An answer lies in the filled region of a plan when every token of its "
            "evidence is a filled row, and in the exact region when none is. The exact prefill is "
            "scored on the same references.",
        ),
        (
            answers,
            "Kept",
            "Of the answers in the filled region that the exact prefill gives, the share that the "
            "plan gives too.",
        ),
        (
            losses,
            "Mean loss",
            "Over every token of the tail, whose context lies in the filled region. Most tokens "
            "are told by the few before them, so it stays low where retrieval is gone.",
        ),
        (
            losses,
            "Distant token",
            "A token in the later half of the tail that the exact model predicts better, by at "
            f"least {loss.get('margin', 0.5):g} nats, with the whole document as context than with "
            "the tail alone. What it needs lies in the filled region.",
        ),
        (losses, "Novel token", f"A token of the tail that {novel}."),
        (
            losses,
            "KL, top-1",
            "How far a plan's next-token distribution lies from the exact prefill's, in nats per "
            "token, and how often both hold the same token most likely.",
        ),
        (
            splice,
            "Splice",
            "One component of the filled cache is swapped for the exact prefill's, and the tail "
            "runs on the mixture. The share closed is how much of the gap between filled and exact "
            "that undoes. Components are swapped one at a time; shares need not add up to 100 %.",
        ),
        (
            True,
            "Interval",
            "In brackets: 95 % bootstrap intervals over prompts or documents. Every plan gets the "
            "same ones, and differences are paired. Bold figures are differences whose interval "
            "leaves out zero.",
        ),
        (
            True,
            "Verdict",
            "A limit holds when its whole interval lies on the safe side, and is broken when the "
            "whole interval lies on the other; in between is unsure. A plan is safe when every "
            "limit holds and harmful when one is broken.",
        ),
        (
            True,
            "Speed-up",
            "The exact prefill's time over the plan's: medians, plans interleaved in one process. "
            "The ideal is the ratio of their multiply-adds.",
        ),
    ]
    return [(term, text) for wanted, term, text in found if wanted]
