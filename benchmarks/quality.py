"""Quality of row plans on SmolLM2: retrieval and tail loss, paired with the exact prefill.

Fits maps at two splits on the bundled fit text, then measures exact, identity and ridge plans on
the bundled held-out text: loss on the tail of windows of two unseen novels, and a needle in the
filled region of noise and of a novel. Writes quality.json and prints the table.

    python benchmarks/quality.py --output benchmarks/results
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ridgefill import FillMaps, RowPlan, data, fit, identity_maps, text
from ridgefill.bench.record import environment
from ridgefill.core.artefact import write_file
from ridgefill.core.engine import Engine, Method
from ridgefill.engines.transformers import TransformersEngine
from ridgefill.engines.transformers.loading import load
from ridgefill.evaluate import needles
from ridgefill.evaluate.bootstrap import mean_interval, paired_interval
from ridgefill.evaluate.loss import tail_loss

DEPTHS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
KINDS = ("noise", "novel")


def main() -> None:
    args = _arguments()
    torch.manual_seed(args.seed)
    model, tokenizer = load(args.model)
    engine = TransformersEngine(model)
    novels = [d.text for d in data.sample("held_out") if d.kind == "novel"]
    documents = list(_documents(tokenizer, novels, args))
    prompts = {kind: list(_prompts(tokenizer, novels, kind, args)) for kind in KINDS}
    rows: list[dict[str, Any]] = []
    for method in _methods(model, tokenizer, args):
        row = _measure(engine, method, documents, prompts, args.tail)
        rows.append(row | _against(row, rows[0] if rows else row))
        print(_line(rows[-1]), flush=True)
    _write(args, rows, len(documents))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-demo")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--fit-tokens", type=int, default=60_000)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--tail", type=int, default=128)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--needles", type=int, default=16, help="prompts per kind of haystack")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _methods(model: Any, tokenizer: Any, args: argparse.Namespace) -> Iterator[Method]:
    plan = RowPlan(tail=args.tail)
    yield Method("exact")
    for split in (20, 15):
        yield Method(f"s={split} identity", identity_maps(model, split), plan)
        for name, options in _variants(split):
            maps = _fit(model, tokenizer, args, split=split, **options)
            if split == 20 and name == "ridge, one source":
                yield Method(f"s={split} {name}, sinks filled", maps, RowPlan(args.tail, sinks=0))
            yield Method(f"s={split} {name}", maps, plan)


def _variants(split: int) -> Sequence[tuple[str, dict[str, Any]]]:
    variants = (
        ("ridge, one source", {"sources": (split,), "target": "input"}),
        ("ridge, four sources, folded", {"target": "normed"}),
        ("ridge, four sources", {"target": "input"}),
    )
    return variants[: 3 if split == 15 else 2]


def _fit(model: Any, tokenizer: Any, args: argparse.Namespace, **options: Any) -> FillMaps:
    texts = text.bundled("fit", text.bundled_share(tokenizer, args.fit_tokens))
    return fit(model, tokenizer, texts, seed=args.seed, **options)


def _documents(tokenizer: Any, novels: Sequence[str], args: argparse.Namespace) -> Iterator[Tensor]:
    """Windows of ``length + 1`` tokens spread over the novels, without overlap."""
    each = args.documents // len(novels)
    for novel in novels:
        ids = torch.tensor(tokenizer(novel, verbose=False)["input_ids"])
        step = (len(ids) - args.length - 1) // each
        for index in range(each):
            yield ids[None, index * step : index * step + args.length + 1]


def _prompts(
    tokenizer: Any, novels: Sequence[str], kind: str, args: argparse.Namespace
) -> Iterator[needles.NeedlePrompt]:
    """Needle prompts at every depth of the filled region in turn."""
    for index in range(args.needles):
        novel = novels[index % len(novels)]
        start = (args.seed * 7919 + index * 15_013) % (len(novel) - 8 * args.length)
        haystack = needles.noise(args.length) if kind == "noise" else novel[start:]
        depth = DEPTHS[index % len(DEPTHS)]
        seed = args.seed + index + 1000 * KINDS.index(kind)
        prompt = needles.make_prompt(tokenizer, haystack, args.length, depth, seed)
        if not needles.in_filled_region(prompt, args.tail):
            raise ValueError(f"the needle at depth {depth} lies outside the filled region")
        yield prompt


def _measure(
    engine: Engine,
    method: Method,
    documents: Sequence[Tensor],
    prompts: dict[str, list[needles.NeedlePrompt]],
    tail: int,
) -> dict[str, Any]:
    bar = tqdm(documents, desc=method.name, file=sys.stderr)
    row: dict[str, Any] = {
        "plan": method.name,
        "tail_loss": [tail_loss(engine, method, ids, tail) for ids in bar],
    }
    for kind, items in prompts.items():
        answers = [needles.retrieve(engine, method, prompt) for prompt in items]
        row[f"right_{kind}"] = [float(answer.right) for answer in answers]
        row[f"log_prob_{kind}"] = [answer.log_prob for answer in answers]
    return row


def _against(row: dict[str, Any], exact: dict[str, Any]) -> dict[str, Any]:
    """Means, and paired differences from the exact prefill with 95 % intervals."""
    summary: dict[str, Any] = {}
    for name, values in row.items():
        if name == "plan":
            continue
        summary[f"mean_{name}"] = asdict(mean_interval(values))
        summary[f"delta_{name}"] = asdict(paired_interval(values, exact[name]))
    return summary


def _line(row: dict[str, Any]) -> str:
    loss = row["delta_tail_loss"]
    needle = " ".join(
        f"{kind} {np.mean(row[f'right_{kind}']):.2f} ({np.mean(row[f'log_prob_{kind}']):.2f})"
        for kind in KINDS
    )
    return (
        f"{row['plan']:36} loss {np.mean(row['tail_loss']):.3f} "
        f"{loss['mean']:+.3f} [{loss['low']:+.3f}, {loss['high']:+.3f}]  {needle}"
    )


def _write(args: argparse.Namespace, rows: list[dict[str, Any]], documents: int) -> None:
    config = {**vars(args), "output": str(args.output)}
    results = {
        "config": config,
        "environment": environment(),
        "n": {"documents": documents, "needles_per_kind": args.needles},
        "rows": rows,
    }
    args.output.mkdir(parents=True, exist_ok=True)
    write_file(args.output / "quality.json", (json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
