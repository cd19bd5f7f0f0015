"""``ridgefill verify``: is this plan safe on this model?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ridgefill.cli import evaluation as shared
from ridgefill.cli import options
from ridgefill.cli.output import print_json

NOT_SAFE = 1
_NAMES = {"distant_loss": "distant-token loss", "needle": "answers kept in the filled region"}
_UNITS = {"distant_loss": "documents", "needle": "needle prompts that exact answers"}


def verify(
    model: options.Model,
    maps: Annotated[str, typer.Option(metavar="DIR", help="The maps to judge.")],
    max_distant_loss: shared.MaxDistantLoss = "1%",
    min_needle: shared.MinNeedle = "0.99",
    length: Annotated[int, typer.Option(help="Prompt length in tokens.")] = 4096,
    tail: options.Tail = None,
    sinks: options.Sinks = None,
    samples: Annotated[int, typer.Option(help="Needle prompts, of each of three tasks.")] = 40,
    documents: Annotated[int, typer.Option(help="Documents.")] = 60,
    text: shared.Text = None,
    text_column: shared.TextColumn = "text",
    essays: shared.Essays = None,
    chat: shared.Chat = "auto",
    output: Annotated[
        Path | None,
        typer.Option(help="Directory for the results; more samples later go on from it."),
    ] = None,
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
    """Judge maps by two limits; exit code 0 when they are safe, 1 when not or when unsure.

    A limit holds when the whole 95 % interval lies on its safe side, and is broken when the whole
    interval lies on the other. In between the answer is unsure, with how many more samples like
    these would decide; with --output a second call with more of them keeps what was measured.

    \b
    Example:
      ridgefill verify MODEL --maps maps --max-distant-loss 1% --min-needle 0.99
    """
    from ridgefill.evaluate.evaluation import Settings
    from ridgefill.evaluate.plans import PlanSpec, check_plans
    from ridgefill.evaluate.suite import SUITES, Amounts
    from ridgefill.evaluate.verdict import SAFE, Limits

    limits = Limits(
        options.share(max_distant_loss, "--max-distant-loss"),
        options.share(min_needle, "--min-needle"),
    )
    options.at_least(1, samples=samples, documents=documents)
    options.at_least(2, length=length)
    amounts = Amounts(samples=samples, documents=documents, splices=0)
    settings = Settings(lengths=(length,), amounts=amounts, seed=seed, limits=limits)
    inputs = shared.Inputs(text, text_column, essays, chat=chat)
    inputs.check()
    shared.check_output(output, overwrite)
    loaded, tokenizer = options.load_model(
        model,
        quiet=quiet,
        dtype=dtype,
        device_map=device_map,
        gguf_file=gguf_file,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    specs = check_plans([PlanSpec("filled", "ridge", maps=maps)])
    evaluation = shared.build(
        loaded,
        tokenizer,
        specs,
        SUITES["quick"][1],
        inputs,
        settings,
        tail=tail,
        sinks=sinks,
        strict=strict,
    )
    results, _ = shared.run(evaluation, output, quiet, overwrite)
    (found,) = results["verdicts"]
    if as_json:
        print_json({**found, "plan": results["plans"][1], "config": results["config"]})
    else:
        typer.echo(verdict_text(found))
    if found["answer"] != SAFE:
        raise typer.Exit(NOT_SAFE)


def verdict_text(found: Mapping[str, Any]) -> str:
    """A verdict in words: the answer, then one line per limit."""
    lines = [f"verdict: {found['answer']}"]
    for check in found["checks"]:
        name, sign = check["name"], "at most" if check["name"] == "distant_loss" else "at least"
        interval = check["interval"]
        values = [interval["mean"], interval["low"], interval["high"]]
        mean, low, high = ("–" if value is None else f"{value:+.2%}" for value in values)
        if name == "needle":
            mean, low, high = (text.lstrip("+") for text in (mean, low, high))
        lines.append(
            f"  {check['answer']:8} {_NAMES[name]}: {mean} [{low}, {high}] (n={interval['n']}), "
            f"{sign} {check['limit']:.2%}"
        )
        if check["answer"] == "unsure":
            lines.append(f"           {_advice(check)}")
    lines += [f"  unsure   {_NAMES[name]}: not measured" for name in found["unmeasured"]]
    return "\n".join(lines)


def _advice(check: Mapping[str, Any]) -> str:
    unit = _UNITS[check["name"]]
    if check["more"] is None:
        return f"the value lies too near to the limit for any affordable number of {unit}"
    return f"about {check['more']} more {unit} like these would decide"
