"""Time to first token (TTFT) of several ways to prefill, interleaved in one process.

Every round gives all methods the same prompt, in an order that rotates from round to round, so
that warming caches, frequency changes and other load reach all methods alike.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from torch import Tensor

from ridgefill.bench.prompts import Prompts
from ridgefill.bench.timing import Stopwatch, median_ratio, ratio_of_medians, rotated
from ridgefill.core.engine import Engine, Method
from ridgefill.core.errors import RidgeFillError

WARM_UP = -1
"""The round number of the warm-up, which is not counted."""

Report = Callable[[int, str], None]
"""Told the length and the method's name after every prefill."""


def measure(
    engine: Engine,
    methods: Sequence[Method],
    lengths: Sequence[int],
    prompts: Prompts,
    *,
    repeats: int = 3,
    report: Report | None = None,
) -> list[dict[str, Any]]:
    """Measure TTFT: one prefill and the most likely first token.

    Args:
        engine: prefills prompts.
        methods: what to compare; exactly one of them is exact (no maps), the reference.
        lengths: prompt lengths in tokens.
        prompts: where the prompts come from.
        repeats: counted rounds per length, after one warm-up per method.
        report: called after every prefill, warm-ups included.

    Returns one dictionary per length and method, see `_row`. Raises RidgeFillError before any
    prefill when an argument does not fit.
    """
    reference = _check(methods, lengths, repeats, prompts)
    rows: list[dict[str, Any]] = []
    for length in lengths:
        watches, tokens = _rounds(engine, methods, length, prompts, repeats, report)
        for method in methods:
            row = _row(method, watches[method.name], watches[reference])
            same = [a == b for a, b in zip(tokens[method.name], tokens[reference], strict=True)]
            ideal = engine.ideal(method, length)
            rows.append(
                {
                    "length": length,
                    **row,
                    "ideal": ideal,
                    "measured_over_ideal": row["ratio_cpu"] / ideal,
                    "measured_over_ideal_wall": row["ratio_wall"] / ideal,
                    "first_token_same": sum(same) / len(same),
                }
            )
    return rows


def prefills(methods: int, lengths: int, repeats: int) -> int:
    """How many prefills `measure` runs, warm-ups included."""
    return methods * lengths * (repeats + 1)


def _check(
    methods: Sequence[Method], lengths: Sequence[int], repeats: int, prompts: Prompts
) -> str:
    """Raise RidgeFillError for arguments that do not fit; the reference method's name."""
    names = [method.name for method in methods]
    exact = [method.name for method in methods if method.maps is None]
    if len(exact) != 1 or len(set(names)) != len(names):
        raise RidgeFillError(
            f"methods must have distinct names and one of them must be exact, got {names}"
        )
    if repeats < 1:
        raise RidgeFillError(f"repeats must be 1 or more, got {repeats}")
    if not lengths or min(lengths) < 2:
        raise RidgeFillError(f"lengths must be 2 or more tokens, got {list(lengths)}")
    for length in lengths:
        prompts.check(length)
    return exact[0]


def _rounds(
    engine: Engine,
    methods: Sequence[Method],
    length: int,
    prompts: Prompts,
    repeats: int,
    report: Report | None,
) -> tuple[dict[str, Stopwatch], dict[str, list[int]]]:
    """Stopwatch and first tokens per method, one lap and token per counted round."""
    by_name = {method.name: method for method in methods}
    watches = {name: Stopwatch() for name in by_name}
    tokens: dict[str, list[int]] = {name: [] for name in by_name}
    for number in (WARM_UP, *range(repeats)):
        counted = number != WARM_UP
        prompt = prompts.take(length, number + 1)
        for name in rotated(list(by_name), max(number, 0)):
            watch = watches[name] if counted else Stopwatch()
            with watch:
                token = _first_token(engine, prompt, by_name[name])
            if counted:
                tokens[name].append(token)
            if report is not None:
                report(length, name)
    return watches, tokens


def _first_token(engine: Engine, prompt: Tensor, method: Method) -> int:
    _, logits = engine.prefill(prompt, method)
    return int(logits[0, -1].argmax())


def _row(method: Method, watch: Stopwatch, reference: Stopwatch) -> dict[str, Any]:
    """Times in seconds; ratios of the reference's over the method's, of medians and by round."""
    return {
        "method": method.name,
        **describe(method),
        "repeats": len(watch.cpu),
        "ttft_cpu_s": median(watch.cpu),
        "ttft_wall_s": median(watch.wall),
        "ratio_cpu": ratio_of_medians(reference.cpu, watch.cpu),
        "ratio_wall": ratio_of_medians(reference.wall, watch.wall),
        "round_ratio_cpu": median_ratio(reference.cpu, watch.cpu),
        "round_ratio_wall": median_ratio(reference.wall, watch.wall),
        "rounds_cpu_s": watch.cpu,
        "rounds_wall_s": watch.wall,
    }


def describe(method: Method) -> dict[str, Any]:
    """The row plan and maps of a method, for reports; empty for the exact prefill."""
    if method.maps is None:
        return {}
    config = method.maps.config
    plan = method.plan
    return {
        "kind": config.kind,
        "split": config.split,
        "layers": config.num_layers,
        "sources": list(config.sources),
        "target": config.target,
        "tail": config.tail if plan is None else plan.tail,
        "sinks": config.sinks if plan is None else plan.sinks,
    }
