"""``ridgefill eval``: what plans cost on one model, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import evaluation as shared
from ridgefill.cli import options
from ridgefill.cli.output import print_json, table
from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from ridgefill.evaluate.evaluation import Settings
    from ridgefill.evaluate.plans import PlanSpec


def evaluate(
    model: options.Model,
    output: Annotated[
        Path, typer.Option(help="Directory for the results; that of an interrupted run goes on.")
    ],
    maps: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Maps to compare; may be given several times."),
    ] = None,
    plans: Annotated[
        Path | None,
        typer.Option(help="JSON list of plans instead: name, fill, maps, split, tail, sinks."),
    ] = None,
    suite: Annotated[str, typer.Option(help="quick or full: how much is measured.")] = "quick",
    lengths: Annotated[str, typer.Option(help="Prompt lengths in tokens.")] = "2048,4096",
    tail: options.Tail = None,
    sinks: options.Sinks = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="RULER tasks, with commas, or none. Default: those of the suite."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Prompts per task and length.")] = None,
    documents: Annotated[int | None, typer.Option(help="Documents per length.")] = None,
    splices: Annotated[
        int | None, typer.Option(help="Documents, and needle prompts, to splice; 0 for none.")
    ] = None,
    text: shared.Text = None,
    text_column: shared.TextColumn = "text",
    essays: shared.Essays = None,
    squad: Annotated[Path | None, typer.Option(help="SQuAD v2 JSON file, for qa_1.")] = None,
    hotpotqa: Annotated[Path | None, typer.Option(help="HotpotQA JSON file, for qa_2.")] = None,
    longbench: Annotated[
        str | None, typer.Option(metavar="PATH", help="LongBench v2: a JSON file or a dataset.")
    ] = None,
    chat: shared.Chat = "auto",
    margin: Annotated[
        float, typer.Option(help="Nats that distant context must be worth to a token.")
    ] = 0.5,
    novel_ngram: Annotated[
        int, typer.Option(help="A token is novel by itself (1) or after its last N - 1 tokens.")
    ] = 1,
    max_distant_loss: shared.MaxDistantLoss = "1%",
    min_needle: shared.MinNeedle = "0.99",
    dump_tokens: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Keep token losses: npz or parquet.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    seed: options.Seed = 0,
    strict: options.Strict = True,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    gguf_file: options.GgufFile = None,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Compare the exact prefill with fills: retrieval, losses and what carries the error.

    Every plan gets the same prompts; every figure has its 95 % interval. Without --plans these are
    the exact prefill, an identity fill at every split among the maps, and the maps. Interrupted or
    killed, the same command goes on where it was.

    \b
    Example:
      ridgefill eval MODEL --maps maps --suite quick --output eval-output
      ridgefill eval MODEL --plans plans.json --lengths 4096 --samples 50 --output eval-output
    """
    from ridgefill.evaluate.evaluation import write_report

    names, settings = _settings(
        suite, lengths, tasks, samples, documents, splices, seed, dump_tokens
    )
    settings = _limited(settings, margin, novel_ngram, max_distant_loss, min_needle)
    options.at_least(1, threads=threads)
    specs = _specs(maps, plans)
    inputs = shared.Inputs(text, text_column, essays, squad, hotpotqa, longbench, chat)
    inputs.check()
    names = [*names, *_tasks_of_data(inputs, names, tasks)]
    shared.check_output(output, overwrite)
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
    evaluation = shared.build(
        loaded, tokenizer, specs, names, inputs, settings, tail=tail, sinks=sinks, strict=strict
    )
    results, times = shared.run(evaluation, output, quiet, overwrite)
    write_report(output, results, times)
    if as_json:
        print_json({**results, "times": times})
        return
    typer.echo(summary(results, times))
    typer.echo(f"\nwritten to {output}: report.html, results.json, samples.jsonl and plots")


def _settings(
    suite: str,
    lengths: str,
    tasks: str | None,
    samples: int | None,
    documents: int | None,
    splices: int | None,
    seed: int,
    dump: str | None,
) -> "tuple[list[str], Settings]":
    from ridgefill.evaluate.evaluation import Settings
    from ridgefill.evaluate.suite import SUITES
    from ridgefill.evaluate.tokens import check_format

    if suite not in SUITES:
        raise RidgeFillError(f"--suite is one of {', '.join(SUITES)}, got {suite!r}")
    options.at_least(0, samples=samples, documents=documents, splices=splices)
    sizes = options.whole_numbers(lengths, "--lengths")
    options.at_least(2, lengths=min(sizes))
    if dump is not None:
        check_format(dump)
    amounts, names = SUITES[suite]
    given = {"samples": samples, "documents": documents, "splices": splices}
    amounts = replace(amounts, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
    chosen = list(names) if tasks is None else _split(tasks)
    if not (chosen and amounts.samples) and not amounts.documents and not amounts.splices:
        raise RidgeFillError("nothing to measure: ask for samples, documents or splices")
    unique = tuple(dict.fromkeys(sizes))
    return chosen, Settings(lengths=unique, amounts=amounts, seed=seed, dump=dump)


def _split(tasks: str) -> list[str]:
    return [] if tasks == "none" else [name.strip() for name in tasks.split(",")]


def _limited(
    settings: "Settings", margin: float, ngram: int, max_distant_loss: str, min_needle: str
) -> "Settings":
    from ridgefill.evaluate.loss import LossOptions
    from ridgefill.evaluate.verdict import Limits

    limits = Limits(
        options.share(max_distant_loss, "--max-distant-loss"),
        options.share(min_needle, "--min-needle"),
    )
    return replace(settings, loss=LossOptions(margin=margin, ngram=ngram), limits=limits)


def _specs(maps: list[str] | None, plans: Path | None) -> "list[PlanSpec]":
    from ridgefill.core.maps import FillMaps
    from ridgefill.evaluate.plans import plans_of_maps, read_plans

    if (maps is None) == (plans is None):
        raise RidgeFillError("name the plans to compare with either --maps or --plans")
    if plans is not None:
        return read_plans(plans)
    folders = maps or []
    splits = {folder: FillMaps.from_pretrained(folder).config.split for folder in folders}
    return plans_of_maps(folders, splits)


def _tasks_of_data(inputs: shared.Inputs, names: list[str], given: str | None) -> list[str]:
    """The qa tasks of the suite's default, where their data is there."""
    data = {"qa_1": inputs.squad, "qa_2": inputs.hotpotqa}
    return [name for name, path in data.items() if path and given is None and name not in names]


def summary(results: Mapping[str, Any], times: Mapping[str, Any]) -> str:
    """The table of a finished evaluation: one line per plan."""
    from ridgefill.evaluate.answers import NEEDLES

    lengths = results["config"]["lengths"]
    header = ["plan", "ideal", "CPU ratio", "needles filled", "exact", "mean loss", "distant loss"]
    header += ["verdict"]
    rows: list[list[object]] = []
    for plan in results["plans"]:
        name, longest = plan["name"], lengths[-1]
        answers = _rows(results["answers"], name)
        losses = {row["group"]: row for row in _rows(results["loss"], name)}
        pooled = [row for row in answers if row["task"] == NEEDLES]
        needle = next(iter([*pooled, *answers]), None)
        found = next((v for v in results["verdicts"] if v["plan"] == name), None)
        ratio = next(
            (r for r in times["rows"] if r["plan"] == name and r["length"] == longest), None
        )
        rows.append(
            [
                name,
                f"{plan['ideal'][str(longest)]:.2f}",
                f"{ratio['ratio_cpu']:.2f}" if ratio else "–",
                _mean(needle, "score", "{:.2f}"),
                _mean(needle, "exact", "{:.2f}"),
                _mean(losses.get("mean"), "relative", "{:+.1%}"),
                _mean(losses.get("distant"), "relative", "{:+.1%}"),
                found["answer"] if found else "–",
            ]
        )
    return table(header, rows)


def _rows(rows: Sequence[Mapping[str, Any]], plan: str) -> list[Mapping[str, Any]]:
    """A plan's rows over all lengths; of answers, those in the filled region."""
    mine = [row for row in rows if row["plan"] == plan and row.get("region", "filled") == "filled"]
    pooled = [row for row in mine if row["length"] is None]
    return pooled or mine


def _mean(row: Mapping[str, Any] | None, key: str, style: str) -> str:
    return style.format(row[key]["mean"]) if row else "–"
