"""What a fit costs beside bare forward passes over the same tokens, and its peak memory.

The three are run batch by batch in turn, so that drift hits all alike. The statistics and the
solve are those of `ridgefill.fit`.
"""

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ridgefill.bench.memory import peak_bytes
from ridgefill.bench.timing import Stopwatch, rotated
from ridgefill.core import ridge
from ridgefill.core.statistics import Statistics
from ridgefill.engines.transformers.calibrate import Collector, FitOptions
from ridgefill.engines.transformers.windows import Windows

_LARGER_FITS = (100_000, 1_000_000)
"""Tokens for which the ratio with solve is worked out from the measured parts."""


def fit_cost(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    opts: FitOptions,
    *,
    memory: bool = True,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Time a fit against bare forward passes over the same ``opts.max_tokens`` tokens.

    Args:
        model, tokenizer, texts, opts: as for `ridgefill.fit`.
        memory: also measure peak memory over half and over all of the tokens.
        report: told what was done after every step.

    Returns CPU and wall seconds of the statistics pass (``fit``), of the decoder alone
    (``decoder``), of the model with logits of every row (``model``) and of the closed-form solve;
    ratios of CPU time ``fit / decoder`` and ``fit / model`` without and with the solve; and peak
    bytes of tensors beyond the model. Token ids (4 bytes a token) are not among them.
    """
    say = report or (lambda step: None)
    collector = Collector(model, opts)
    windows = opts.windows(texts, tokenizer)
    batches = windows.batches(max(opts.batch_tokens // opts.window, 1))
    watches, parts = _passes(model, collector, windows, batches, say)
    with Stopwatch() as solving:
        ridge.solve(*parts, opts.penalties)
    say("solve")
    result = _summary(windows.ids.size, watches, solving)
    if memory:
        for name, share in (("half", batches[: len(batches) // 2 + 1]), ("all", batches)):
            result["peak"][name] = _peak(collector, windows, share, opts)
            say(f"memory, {name}")
    return result


def _passes(
    model: PreTrainedModel,
    collector: Collector,
    windows: Windows,
    batches: list[tuple[int, ...]],
    say: Callable[[str], None],
) -> tuple[dict[str, Stopwatch], tuple[Statistics, Statistics]]:
    """Run every batch through the three, after a warm-up; training and held-out statistics."""
    decoder = model.get_decoder()
    train, held_out = collector.statistics(), collector.statistics()

    def run(name: str, ids: Tensor, part: Statistics) -> None:
        if name == "fit":
            collector.add(ids, part)
        else:
            (decoder if name == "decoder" else model)(input_ids=ids, use_cache=False)

    watches = {name: Stopwatch() for name in ("fit", "decoder", "model")}
    with torch.no_grad():
        first = windows.tensor(batches[0]).to(model.device)
        for name in watches:
            run(name, first, collector.statistics())
        for number, batch in enumerate(batches):
            ids = windows.tensor(batch).to(model.device)
            part = held_out if windows.held_out[batch[0]] else train
            for name in rotated(list(watches), number):
                with watches[name]:
                    run(name, ids, part)
            say(f"batch {number + 1} of {len(batches)}")
    return watches, (train, held_out)


def _summary(tokens: int, watches: dict[str, Stopwatch], solving: Stopwatch) -> dict[str, Any]:
    cpu = {name: sum(watch.cpu) for name, watch in watches.items()}
    wall = {name: sum(watch.wall) for name, watch in watches.items()}
    cpu["solve"], wall["solve"] = solving.cpu[0], solving.wall[0]
    result: dict[str, Any] = {"tokens": tokens, "cpu_s": cpu, "wall_s": wall, "peak": {}}
    for bare in ("decoder", "model"):
        batches = zip(watches["fit"].cpu, watches[bare].cpu, strict=True)
        result[f"over_{bare}"] = {
            "ratio": cpu["fit"] / cpu[bare],
            "batch_median_ratio": median(fit / forward for fit, forward in batches),
            "ratio_with_solve": (cpu["fit"] + cpu["solve"]) / cpu[bare],
            "ratio_with_solve_at": {
                str(larger): cpu["fit"] / cpu[bare] + cpu["solve"] / (cpu[bare] * larger / tokens)
                for larger in _LARGER_FITS
            },
        }
    return result


def _peak(
    collector: Collector, windows: Windows, batches: list[tuple[int, ...]], opts: FitOptions
) -> dict[str, int]:
    """Peak bytes of a whole fit over ``batches``, beyond the model."""

    def work() -> None:
        train, held_out = collector.statistics(), collector.statistics()
        for batch in batches:
            part = held_out if windows.held_out[batch[0]] else train
            collector.add(windows.tensor(batch), part)
        ridge.solve(train, held_out, opts.penalties)

    tokens = sum(map(len, batches)) * windows.ids.shape[1]
    return {"tokens": tokens, "bytes": peak_bytes(work)}
