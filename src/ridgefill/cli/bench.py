"""``ridgefill bench``: interleaved TTFT against exact, and the cost of a fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import options
from ridgefill.cli.output import check_results, print_json, table, write_json
from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from ridgefill.core.engine import Method

RESULTS, PLOT = "results.json", "ttft.png"


def bench(
    model: options.Model,
    maps: Annotated[
        list[str],
        typer.Option(metavar="DIR", help="Maps to compare; may be given several times."),
    ],
    lengths: Annotated[str, typer.Option(help="Prompt lengths in tokens.")] = "2048,4096,8192",
    tail: options.Tail = None,
    sinks: options.Sinks = None,
    repeats: Annotated[int, typer.Option(help="Counted rounds per length.")] = 3,
    prompt_file: Annotated[
        Path | None,
        typer.Option(help="Text to take prompts from. Default: the bundled held-out text."),
    ] = None,
    identity: Annotated[
        bool, typer.Option("--identity/--no-identity", help="Also time the identity fill.")
    ] = True,
    fit_cost: Annotated[
        bool,
        typer.Option("--fit-cost/--no-fit-cost", help="Also time a fit against a forward pass."),
    ] = True,
    fit_cost_tokens: Annotated[int, typer.Option(help="Tokens of that fit.")] = 16384,
    output: Annotated[
        Path | None, typer.Option(help=f"Directory for {RESULTS} and {PLOT}; new or empty.")
    ] = None,
    overwrite: options.Overwrite = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    seed: options.Seed = 0,
    strict: options.Strict = True,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    gguf_file: options.GgufFile = None,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Time the prefill: exact, identity and each set of maps in turn, in one process.

    Ratios are the exact prefill's median time over the method's; ideal is the speed-up the cost
    model allows for the row plan, and is never tuned to a measurement.

    \b
    Example:
      ridgefill bench ./model --maps maps --lengths 2048,4096 --output bench-output
    """
    sizes = options.whole_numbers(lengths, "--lengths")
    options.at_least(1, repeats=repeats, threads=threads, fit_cost_tokens=fit_cost_tokens)
    options.at_least(2, lengths=min(sizes))
    check_results(output, (RESULTS, PLOT), overwrite)
    texts = _texts(prompt_file)
    methods = _methods(maps, tail, sinks)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    loaded, tokenizer = options.load_model(
        model,
        quiet=quiet,
        dtype=dtype,
        device_map=device_map,
        gguf_file=gguf_file,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    if identity:
        methods[1:1] = _identity_methods(loaded, methods)
    rows = _time(loaded, tokenizer, texts, methods, sizes, repeats, seed, strict, quiet)
    result = _record(loaded, prompt_file, seed, repeats, rows)
    if output is not None:
        _write(output, result)
    if fit_cost:
        cost = _fit_cost(loaded, tokenizer, methods[-1], fit_cost_tokens, seed, quiet)
        result["fit_cost"] = cost
        if output is not None:
            write_json(output / RESULTS, result)
    if as_json:
        print_json(result)
        return
    _print(rows, result["fit_cost"])
    if output is not None:
        typer.echo(f"\nwritten to {output}: {RESULTS}, {PLOT}")


def _texts(prompt_file: Path | None) -> list[str]:
    from ridgefill import text

    if prompt_file is None:
        return text.bundled("held_out")
    return [options.read_file(prompt_file, "--prompt-file")]


def _methods(folders: Sequence[str], tail: int | None, sinks: int | None) -> "list[Method]":
    """The exact prefill, then one method per set of maps, named after its directory."""
    from ridgefill.core.engine import Method
    from ridgefill.core.maps import FillMaps
    from ridgefill.core.rows import RowPlan

    if len(set(folders)) < len(folders):
        raise RidgeFillError(f"--maps names a directory twice: {', '.join(folders)}")
    methods = [Method("exact")]
    for folder in folders:
        maps = FillMaps.from_pretrained(folder)
        plan = RowPlan(
            tail=maps.config.tail if tail is None else tail,
            sinks=maps.config.sinks if sinks is None else sinks,
        )
        name = Path(folder).name or folder
        taken = {"exact", "identity", *(method.name for method in methods)}
        methods.append(Method(folder if name in taken else name, maps, plan))
    return methods


def _identity_methods(model: Any, methods: "Sequence[Method]") -> "list[Method]":
    """One identity fill per split among the methods, with the first such method's plan."""
    from ridgefill.core.engine import Method
    from ridgefill.engines.transformers import identity_maps

    plans = {m.maps.config.split: m.plan for m in reversed(methods) if m.maps is not None}
    return [
        Method(
            "identity" if len(plans) == 1 else f"identity-{split}",
            identity_maps(model, split),
            plan,
        )
        for split, plan in sorted(plans.items())
    ]


def _time(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    methods: "Sequence[Method]",
    lengths: list[int],
    repeats: int,
    seed: int,
    strict: bool,
    quiet: bool,
) -> list[dict[str, Any]]:
    from ridgefill.bench import ttft
    from ridgefill.bench.prompts import Prompts, stream
    from ridgefill.engines.transformers import TransformersEngine

    engine = TransformersEngine(model, strict=strict)
    for method in methods:
        if method.maps is not None:
            engine.filler(method.maps)  # refuse maps of another model before anything is timed
    prompts = Prompts(stream(tokenizer, texts), seed)
    total = ttft.prefills(len(methods), len(lengths), repeats)
    with options.progress_bar(total, "prefill", "ttft", quiet) as bar:
        report = options.stepper(bar)
        return ttft.measure(engine, methods, lengths, prompts, repeats=repeats, report=report)


def _fit_cost(
    model: Any, tokenizer: Any, method: "Method", tokens: int, seed: int, quiet: bool
) -> dict[str, Any]:
    """The cost of a fit with the options of a method's maps."""
    from ridgefill import text
    from ridgefill.bench.fitcost import fit_cost
    from ridgefill.engines.transformers import FitOptions

    assert method.maps is not None
    config = method.maps.config
    opts = FitOptions(
        split=config.split,
        sources=config.sources,
        target=config.target,
        sinks=config.sinks,
        max_tokens=tokens,
        seed=seed,
    )
    with options.progress_bar(None, "step", "fit cost", quiet) as bar:
        return fit_cost(model, tokenizer, text.bundled(), opts, report=options.stepper(bar))


def _record(
    model: Any, prompt_file: Path | None, seed: int, repeats: int, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    from ridgefill.bench.record import environment
    from ridgefill.engines.transformers.fingerprint import model_name

    return {
        **environment(),
        "model": model_name(model),
        "prompt_text": "bundled held_out" if prompt_file is None else prompt_file.name,
        "seed": seed,
        "n": repeats,
        "rows": rows,
        "fit_cost": None,
    }


def _write(output: Path, result: dict[str, Any]) -> None:
    from ridgefill.bench.plots import plot_ratios
    from ridgefill.bench.record import clock

    output.mkdir(parents=True, exist_ok=True)
    write_json(output / RESULTS, result)
    plot_ratios(result["rows"], output / PLOT, f"TTFT, {result['model']}", clock())


def _print(rows: list[dict[str, Any]], cost: dict[str, Any] | None) -> None:
    header = ["method", "length", "CPU s", "wall s", "ratio CPU", "ratio wall", "ideal"]
    header += ["measured/ideal", "same first token"]
    cells = [
        [
            row["method"],
            row["length"],
            f"{row['ttft_cpu_s']:.3f}",
            f"{row['ttft_wall_s']:.3f}",
            f"{row['ratio_cpu']:.2f}",
            f"{row['ratio_wall']:.2f}",
            f"{row['ideal']:.2f}",
            f"{row[_share()]:.2f}",
            f"{row['first_token_same']:.0%}",
        ]
        for row in rows
    ]
    typer.echo(table(header, cells))
    if cost is not None:
        typer.echo("\n" + fit_cost_lines(cost))


def _share() -> str:
    """The field that holds measured / ideal on the clock that tells the work done."""
    from ridgefill.bench.record import clock

    return "measured_over_ideal" if clock() == "cpu" else "measured_over_ideal_wall"


def fit_cost_lines(cost: dict[str, Any]) -> str:
    """The cost of a fit as a table and a line about memory."""
    clock = "cpu_s"
    header = [f"fit over {cost['tokens']} tokens", "CPU s", "fit / it", "with solve"]
    header += [f"with solve, {int(n) // 1000}K tokens" for n in _larger(cost)]
    rows: list[list[object]] = []
    for bare, label in (("decoder", "forward, decoder alone"), ("model", "forward with logits")):
        over = cost[f"over_{bare}"]
        rows.append(
            [
                label,
                f"{cost[clock][bare]:.2f}",
                f"{over['ratio']:.2f}",
                f"{over['ratio_with_solve']:.2f}",
                *(f"{value:.2f}" for value in over["ratio_with_solve_at"].values()),
            ]
        )
    for part, label in (("fit", "fit, statistics"), ("solve", "fit, solve")):
        rows.append([label, f"{cost[clock][part]:.2f}", *[""] * (len(header) - 2)])
    peaks = [
        f"{peak['bytes'] / 2**20:.0f} MiB over {peak['tokens']} tokens"
        for peak in cost["peak"].values()
    ]
    memory = f"\npeak memory of the fit beyond the model: {', '.join(peaks)}" if peaks else ""
    return table(header, rows) + memory


def _larger(cost: dict[str, Any]) -> list[str]:
    return list(cost["over_decoder"]["ratio_with_solve_at"])
