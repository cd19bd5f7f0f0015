"""Write the measured tables of README.md from the JSON beside this script.

python benchmarks/readme.py          # rewrite the marked blocks
python benchmarks/readme.py --check  # exit 1 when they are out of date
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == old else "README.md is out of date: run benchmarks/readme.py")
    readme.write_text(new, encoding="utf-8")


def render(text: str) -> str:
    """``text`` with every marked block replaced by what its JSON says."""
    for name, table in TABLES.items():
        start, stop = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, rest = text.split(start)
        _, after = rest.split(stop)
        text = f"{before}{start}{table()}\n{stop}{after}"
    return text


def _read(path: str) -> dict[str, Any]:
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def quality() -> str:
    """Tail loss and retrieval by plan."""
    results = _read("quality.json")
    lines = [
        "| plan | tail loss | over exact, 95 % interval | needle in noise | needle in a novel |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in results["rows"]:
        delta = row["delta_tail_loss"]
        interval = f"{delta['mean']:+.3f} [{delta['low']:+.3f}, {delta['high']:+.3f}]"
        cells = [row["plan"], f"{row['mean_tail_loss']['mean']:.3f}", interval]
        cells += [
            f"{row[f'mean_right_{kind}']['mean']:.2f} ({row[f'mean_log_prob_{kind}']['mean']:.2f})"
            for kind in ("noise", "novel")
        ]
        lines.append("| " + " | ".join(cells) + " |")
    count = results["n"]
    config = results["config"]
    lines += [
        "",
        f"{config['length']}-token prompts, tail {config['tail']}, 4 sinks unless stated; "
        f"{count['documents']} windows of unseen novels, {count['needles_per_kind']} needles per "
        f"haystack, all in the filled region; maps from {config['fit_tokens']:,} tokens. Needle "
        "cells: share with every digit right, mean log-probability of the answer's tokens.",
    ]
    return "\n".join(lines)


def ttft() -> str:
    """Time to first token by prompt length."""
    results = _read("ttft/results.json")
    lines = [
        "| prompt | method | ratio, CPU time | ratio, wall | ideal | measured / ideal |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in results["rows"]:
        if row["ideal"] == 1:
            continue
        numbers = [row["ratio_cpu"], row["ratio_wall"], row["ideal"], row["measured_over_ideal"]]
        cells = [str(row["length"]), row["method"], *(f"{number:.2f}" for number in numbers)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fit_cost() -> str:
    """What a fit costs beside a forward pass."""
    fit = _read("ttft/results.json")["fit_cost"]
    model, decoder = fit["over_model"], fit["over_decoder"]
    half, whole = fit["peak"]["half"], fit["peak"]["all"]
    return (
        f"A fit over {fit['tokens']:,} tokens costs {model['ratio']:.2f}x the CPU time of a bare "
        f"forward pass of the model over them, {model['ratio_with_solve']:.2f}x with the solve "
        f"in closed form ({decoder['ratio']:.2f}x and {decoder['ratio_with_solve']:.2f}x of the "
        "decoder without logits). The solve costs the same for any text; over 100,000 tokens that "
        f"makes {model['ratio_with_solve_at']['100000']:.2f}x "
        f"({decoder['ratio_with_solve_at']['100000']:.2f}x). Peak memory beyond the model: "
        f"{half['bytes'] / 2**20:,.0f} MiB over {half['tokens']:,} tokens, "
        f"{whole['bytes'] / 2**20:,.0f} MiB over {whole['tokens']:,}."
    )


def verdict() -> str:
    """What the quick suite says of each plan, over both lengths."""
    results = _read("verdict/results.json")
    lines = [
        "| plan | verdict | needle in the filled region | distant-token loss | mean loss |",
        "| --- | --- | --- | --- | --- |",
    ]
    for found in results["verdicts"]:
        plan = found["plan"]
        needle = _pooled(results["answers"], plan, task="needles", region="filled")
        score, exact = (needle[key]["mean"] for key in ("score", "exact"))
        losses = [
            _percent(_pooled(results["loss"], plan, group=group)["relative"])
            for group in ("distant", "mean")
        ]
        retrieved = f"{score:.2f} (exact {exact:.2f}, n={needle['n']})"
        lines.append("| " + " | ".join([plan, found["answer"], retrieved, *losses]) + " |")
    lines += ["", _by_source(results, "ridge s=15")]
    config = results["config"]
    tail = results["plans"][1]["tail"]
    documents = _pooled(results["loss"], plan, group="mean")["delta"]["n"]
    lengths = " and ".join(map(str, config["lengths"]))
    lines += [
        "",
        f"`benchmarks/verdict.sh`: {lengths}-token prompts, tail {tail}; three RULER needle tasks "
        f"(noise, text, four keys), losses over {documents} windows of held-out text as change "
        "from exact with 95 % intervals. Safe means at most "
        f"{config['limits']['max_distant_loss']:.0%} on distant tokens and "
        f"{config['limits']['min_needle']:.0%} of answers kept, both with their whole interval.",
    ]
    return "\n".join(lines)


def _by_source(results: dict[str, Any], plan: str) -> str:
    """A plan's mean loss on each kind of text, in words."""
    rows = [row for row in results["loss_by_source"] if row["plan"] == plan]
    parts = [
        f"{row['relative']['mean']:+.1%} on {row['source']} (n={row['relative']['n']})"
        for row in rows
        if row["group"] == "mean"
    ]
    return f"Mean loss of {plan} by kind of text: {', '.join(parts)}."


def _pooled(rows: list[dict[str, Any]], plan: str, **labels: str) -> dict[str, Any]:
    """A plan's row over all lengths."""
    wanted = {"plan": plan, "length": None, **labels}
    return next(row for row in rows if all(row[key] == wanted[key] for key in wanted))


def _percent(interval: dict[str, Any]) -> str:
    return f"{interval['mean']:+.1%} [{interval['low']:+.1%}, {interval['high']:+.1%}]"


TABLES: dict[str, Callable[[], str]] = {
    "quality": quality,
    "ttft": ttft,
    "fit-cost": fit_cost,
    "verdict": verdict,
}

if __name__ == "__main__":
    main()
