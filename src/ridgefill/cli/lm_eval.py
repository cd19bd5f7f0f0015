"""``ridgefill lm-eval``: tasks of lm-evaluation-harness on filled prefills."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import harness, options
from ridgefill.cli.output import check_results, print_json, table, write_json
from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

    from ridgefill.engines.transformers.harness import RidgeFillLM

RESULTS, SAMPLES = "results.json", "samples.jsonl"


def lm_eval(
    model: options.Model,
    tasks: Annotated[str, typer.Option(help="Tasks, groups or patterns, with commas.")],
    output: Annotated[
        Path, typer.Option(help=f"Directory for {RESULTS} and {SAMPLES}; new or empty.")
    ],
    maps: Annotated[
        str | None, typer.Option(metavar="DIR", help="Maps: a directory or hub repository.")
    ] = None,
    identity: Annotated[bool, typer.Option("--identity", help="Identity fill at --split.")] = False,
    split: Annotated[int | None, typer.Option(help="First late layer of --identity.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Fill nothing.")] = False,
    tail: options.Tail = None,
    sinks: options.Sinks = None,
    include_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory with more task files (YAML).")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Documents per task. Default: all.")] = None,
    batch_size: Annotated[int, typer.Option(help="Prompts per batch.")] = 1,
    num_fewshot: Annotated[
        int | None, typer.Option(help="Examples in each prompt. Default: the task's own.")
    ] = None,
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", help="Put prompts into the chat template.")
    ] = False,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='For tasks that take it, such as {"max_seq_lengths": [4096]}.'
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of every draw. Default: the harness's own seeds.")
    ] = None,
    strict: options.Strict = True,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    gguf_file: options.GgufFile = None,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Run tasks of lm-evaluation-harness, prompts filled where that is possible.

    Generation fills every prompt longer than sinks + tail. A log-likelihood is filled only where
    its continuation fits into the tail, since filled rows have no logits; other requests run exact.
    How many ran in which way is printed and written.

    \b
    Example:
      ridgefill lm-eval MODEL --maps maps --tasks lambada_openai,triviaqa --output lm-eval-output
      ridgefill lm-eval MODEL --exact --tasks mine --include-path tasks --output exact-output
    """
    options.at_least(1, limit=limit, batch_size=batch_size)
    options.at_least(0, num_fewshot=num_fewshot)
    filling = _filling(maps, identity, split, exact, tail, sinks)
    more = _metadata(metadata)
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    if not names:
        raise RidgeFillError(f"--tasks names no task, got {tasks!r}")
    harness.require_packages()
    if include_path is not None and not include_path.is_dir():
        raise RidgeFillError(f"{include_path} is no directory: check --include-path")
    check_results(output, (RESULTS, SAMPLES), overwrite)
    manager, names = harness.load_tasks(names, include_path, {"pretrained": model, **more})
    loaded, tokenizer = options.load_model(
        model,
        dtype=dtype,
        device_map=device_map,
        gguf_file=gguf_file,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    if apply_chat_template and not tokenizer.chat_template:
        raise RidgeFillError("the tokenizer has no chat template: leave out --apply-chat-template")
    from ridgefill.engines.transformers.harness import RidgeFillLM

    lm = RidgeFillLM(loaded, tokenizer=tokenizer, batch_size=batch_size, strict=strict, **filling)
    config = {
        "tasks": names,
        "num_fewshot": num_fewshot,
        "limit": limit,
        "batch_size": batch_size,
        "apply_chat_template": apply_chat_template,
        "metadata": more,
        "seed": seed,
    }
    found = _evaluate(lm, manager, config)
    result = _record(lm, config, found)
    _write(output, result, found["samples"])
    if as_json:
        print_json(result)
        return
    typer.echo(summary(result))
    typer.echo(f"\nwritten to {output}: {RESULTS}, {SAMPLES}")


def _filling(
    maps: str | None,
    identity: bool,
    split: int | None,
    exact: bool,
    tail: int | None,
    sinks: int | None,
) -> dict[str, Any]:
    """Arguments of `RidgeFillLM`. Raises RidgeFillError for options that contradict each other."""
    from ridgefill.core.maps import FillMaps
    from ridgefill.core.rows import RowPlan

    if [maps is not None, identity, exact].count(True) != 1:
        raise RidgeFillError(
            "name the maps with --maps, or pass --identity with --split, or --exact to fill "
            "nothing: exactly one of the three"
        )
    if identity != (split is not None):
        raise RidgeFillError("--identity and --split go together: maps have their own split")
    if exact:
        if (tail, sinks) != (None, None):
            raise RidgeFillError("--tail and --sinks mean nothing with --exact: leave them out")
        return {}
    RowPlan(tail=1 if tail is None else tail, sinks=0 if sinks is None else sinks)
    if maps is not None:
        FillMaps.from_pretrained(maps)  # refuse what cannot be read before tasks and model load
    fill = "identity" if identity else "ridge"
    return {"maps": maps, "fill": fill, "split": split, "tail": tail, "sinks": sinks}


def _metadata(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RidgeFillError(f"--metadata takes a JSON object, got {text!r}")
    return found


def _evaluate(
    lm: "RidgeFillLM", manager: "TaskManager", config: Mapping[str, Any]
) -> dict[str, Any]:
    from lm_eval import simple_evaluate

    kinds = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
    seeds = {} if config["seed"] is None else dict.fromkeys(kinds, config["seed"])
    found: dict[str, Any] = simple_evaluate(
        lm,
        tasks=list(config["tasks"]),
        task_manager=manager,
        num_fewshot=config["num_fewshot"],
        limit=config["limit"],
        apply_chat_template=config["apply_chat_template"],
        **seeds,
    )
    return found


def _record(
    lm: "RidgeFillLM", config: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    from importlib.metadata import version

    from ridgefill.bench.record import environment
    from ridgefill.engines.transformers.fingerprint import model_name

    about = environment()
    about["versions"]["lm_eval"] = version("lm_eval")
    kept = ("results", "groups", "n-shot", "n-samples", "higher_is_better")
    return {
        **about,
        "model": model_name(lm.model),
        "config": dict(config),
        "fill": lm.fill_info(),
        "fill_summary": lm.fill_summary(),
        "task_versions": _plain(found["versions"]),
        **{name: _plain(found[name]) for name in kept if name in found},
    }


def _plain(values: Any) -> Any:
    """JSON values of what the harness returns."""
    from lm_eval.utils import handle_non_serializable

    return json.loads(json.dumps(values, default=handle_non_serializable))


def _write(output: Path, result: dict[str, Any], samples: Mapping[str, Sequence[Any]]) -> None:
    from ridgefill.core.artefact import write_file

    output.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"task": task, **_plain(sample)}) + "\n"
        for task, held in samples.items()
        for sample in held
    ]
    write_file(output / SAMPLES, "".join(lines).encode())
    write_json(output / RESULTS, result)


def summary(result: Mapping[str, Any]) -> str:
    """The scores as a table, and a line that says how the requests ran."""
    rows: list[list[object]] = []
    for task, scores in result["results"].items():
        for key, value in scores.items():
            metric, comma, rule = key.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            error = scores.get(f"{metric}_stderr,{rule}")
            count = result["n-samples"].get(task, {}).get("effective", "–")
            rows.append([task, metric, rule, count, _number(value), _number(error)])
    return (
        table(["task", "metric", "filter", "n", "value", "stderr"], rows)
        + f"\n\n{result['fill_summary']}"
    )


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float | int) else "–"
