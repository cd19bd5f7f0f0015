"""``ridgefill demo``: fit, prefill and compare on a small model, in one table."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import options
from ridgefill.cli.output import check_results, print_json, say, table, write_json

if TYPE_CHECKING:
    from ridgefill.core.maps import FillMaps

RESULTS, PLOT, MAPS = "results.json", "ttft.png", "maps"


def demo(
    output: Annotated[
        Path, typer.Option(help=f"Directory for {RESULTS}, {PLOT} and {MAPS}; new or empty.")
    ] = Path("demo-output"),
    model: Annotated[str, typer.Option(help="As MODEL of ridgefill fit.")] = "smollm2-demo",
    fit_tokens: Annotated[int, typer.Option(help="Tokens of bundled text to fit on.")] = 90_000,
    length: Annotated[int, typer.Option(help="Prompt length in tokens.")] = 4096,
    repeats: Annotated[int, typer.Option(help="Timed rounds.")] = 3,
    documents: Annotated[int, typer.Option(help="Held-out slices for the tail loss.")] = 4,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Fit maps of SmolLM2-135M-Instruct on the bundled text, then compare three prefills.

    Exact, identity fill and ridge maps: time to first token, a number to find in the filled
    region of the prompt, and the loss on the tail of held-out novels. Takes about eight minutes
    on two cores; nothing is fetched.

    \b
    Example:
      ridgefill demo --output demo-output
    """
    options.at_least(1, fit_tokens=fit_tokens, repeats=repeats, documents=documents)
    options.at_least(2, length=length)
    check_results(output, (RESULTS, PLOT, MAPS), overwrite)
    _check_maps(output / MAPS, overwrite)
    start = time.perf_counter()
    say("loading the model", quiet)
    loaded, tokenizer = options.load_model(model, quiet=True)
    maps, fit_seconds = _fit(loaded, tokenizer, fit_tokens, seed, quiet)
    output.mkdir(parents=True, exist_ok=True)
    maps.save_pretrained(output / MAPS, overwrite=overwrite)
    compared = _compare(loaded, tokenizer, maps, quiet, length, repeats, documents, seed)
    result = _record(maps, fit_seconds, time.perf_counter() - start, compared)
    result["n"] = {"ttft_rounds": repeats, "needles": 1, "loss_documents": documents}
    result["config"] |= {"fit_tokens": fit_tokens, "length": length, "seed": seed}
    _write(output, result)
    if as_json:
        print_json(result)
    else:
        _print(result, output)


def _check_maps(folder: Path, overwrite: bool) -> None:
    from ridgefill.core import artefact

    artefact.check_target(folder, overwrite)


def _fit(
    model: Any, tokenizer: Any, tokens: int, seed: int, quiet: bool
) -> "tuple[FillMaps, float]":
    """Maps with the package's default options, and the seconds the fit took."""
    from ridgefill import text
    from ridgefill.engines.transformers import fit

    texts = text.bundled(share=text.bundled_share(tokenizer, tokens))
    start = time.perf_counter()
    maps = fit(model, tokenizer, texts, seed=seed, progress=not quiet)
    return maps, time.perf_counter() - start


def _compare(
    model: Any,
    tokenizer: Any,
    maps: "FillMaps",
    quiet: bool,
    length: int,
    repeats: int,
    documents: int,
    seed: int,
) -> dict[str, Any]:
    from ridgefill.bench.demo import Comparison, compare

    comparison = Comparison(length=length, repeats=repeats, documents=documents, seed=seed)
    with options.progress_bar(comparison.prefills, "prefill", "compare", quiet) as bar:
        return compare(model, tokenizer, maps, comparison, options.stepper(bar))


def _record(
    maps: "FillMaps", fit_seconds: float, seconds: float, compared: dict[str, Any]
) -> dict[str, Any]:
    from ridgefill.bench.record import environment

    config = maps.config
    return {
        **environment(),
        "model": config.base_model.name,
        "config": {
            "split": config.split,
            "layers": config.num_layers,
            "sources": list(config.sources),
            "target": config.target,
            "tail": config.tail,
            "sinks": config.sinks,
        },
        "fit": {
            "rows": config.provenance["rows"],
            "seconds": fit_seconds,
            "held_out_r2": config.provenance["held_out_r2"],
        },
        "seconds": seconds,
        **compared,
    }


def _write(output: Path, result: dict[str, Any]) -> None:
    from ridgefill.bench.plots import plot_bars
    from ridgefill.bench.record import clock

    write_json(output / RESULTS, result)
    title = f"TTFT of a {result['config']['length']}-token prompt, {result['model']}"
    plot_bars(result["rows"], output / PLOT, title, clock())


def _print(result: dict[str, Any], output: Path) -> None:
    config, needle = result["config"], result["needle"]
    header = ["method", "TTFT CPU s", "TTFT wall s", "ratio CPU", "ratio wall", "ideal"]
    header += ["measured/ideal", "needle answer", "right", "tail loss"]
    cells = [
        [
            row["method"],
            f"{row['ttft_cpu_s']:.2f}",
            f"{row['ttft_wall_s']:.2f}",
            f"{row['ratio_cpu']:.2f}",
            f"{row['ratio_wall']:.2f}",
            f"{row['ideal']:.2f}",
            f"{row['measured_over_ideal']:.2f}",
            _one_line(row["needle_answer"]),
            "yes" if row["needle_right"] else "no",
            f"{row['tail_loss']:.3f}",
        ]
        for row in result["rows"]
    ]
    typer.echo(
        f"{result['model']}, split {config['split']} of {config['layers']}, prompt of "
        f"{config['length']} tokens, tail {config['tail']}, {config['sinks']} sinks\n"
    )
    typer.echo(table(header, cells))
    first, stop = needle["columns"]
    typer.echo(
        f"\nneedle {needle['answer']} in columns {first} to {stop - 1}, "
        f"{'inside' if needle['in_filled_region'] else 'not inside'} the filled region; tail loss "
        f"in nats, mean of slices of held-out novels (n={result['n']['loss_documents']}); TTFT "
        f"medians of rounds (n={result['n']['ttft_rounds']})\n"
        f"fit {result['fit']['seconds']:.0f} s, all {result['seconds']:.0f} s; written to {output}"
    )


def _one_line(answer: str, most: int = 24) -> str:
    line = " ".join(answer.split())
    return line if len(line) <= most else line[: most - 1] + "…"
