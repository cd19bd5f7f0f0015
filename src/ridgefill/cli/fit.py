"""``ridgefill fit``: fit maps from text."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import options
from ridgefill.cli.output import check_writable, print_json, say, table
from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from ridgefill.core.maps import FillMaps


def fit(
    model: options.Model,
    output: Annotated[Path, typer.Option(help="Directory for the maps; new or empty.")],
    text: Annotated[
        list[Path] | None,
        typer.Option(help="A text file or a directory of them; may be given several times."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME[:CONFIG]", help="A local or hub dataset."),
    ] = None,
    dataset_split: Annotated[str, typer.Option(help="Split of the dataset.")] = "train",
    text_column: Annotated[
        str, typer.Option(help="Column that holds the text, in datasets and .jsonl files.")
    ] = "text",
    bundled: Annotated[
        bool, typer.Option("--bundled", help="Use the text sample that ships with ridgefill.")
    ] = False,
    split: Annotated[
        int | None, typer.Option(help="First late layer. Default: half the layers.")
    ] = None,
    sources: Annotated[
        str | None,
        typer.Option(help="Residual states the maps read. Default: SPLIT, 2/3, 1/3 of it and 0."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="input or normed. Default: normed where it folds.")
    ] = None,
    window: Annotated[int | None, typer.Option(help="Tokens per window. Default: 1024.")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens per forward pass. Default: 4096.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Use at most this many tokens.")] = None,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of windows that penalties are chosen on. Default: 0.1."),
    ] = None,
    seed: options.Seed = 0,
    sinks: Annotated[
        int | None,
        typer.Option(help="First tokens left out of the fit, and kept exact. Default: 4."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option(help="Tail of the default row plan. Default: 256.")
    ] = None,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    gguf_file: options.GgufFile = None,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Fit the maps of a model's late layers from text, in one pass.

    Ctrl-C keeps what was read in OUTPUT.partial; the same command goes on from there. Under
    torchrun every process reads its share of the text.

    \b
    Example:
      ridgefill fit HuggingFaceTB/SmolLM2-135M --text corpus/ --output maps
      ridgefill fit ./model --dataset ./my-dataset --max-tokens 500000 --output maps
      torchrun --nproc-per-node 4 -m ridgefill fit ./model --text corpus/ --output maps
    """
    given = {
        "split": split,
        "sources": None if sources is None else tuple(options.whole_numbers(sources, "--sources")),
        "target": target,
        "window": window,
        "batch_tokens": batch_tokens,
        "max_tokens": max_tokens,
        "held_out": held_out,
        "seed": seed,
        "sinks": sinks,
        "tail": tail,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    _check(chosen)
    with _processes() as rank:
        if rank == 0:
            _check_output(output, overwrite)
        texts = _texts(text, dataset, bundled, dataset_split, text_column)
        loaded = options.load_model(
            model,
            quiet=quiet or rank > 0,
            dtype=dtype,
            device_map=device_map,
            gguf_file=gguf_file,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        if bundled and max_tokens is not None:
            texts = _bundled(loaded[1], max_tokens)
        start = time.perf_counter()
        show = not quiet and rank == 0
        maps = _fit(*loaded, texts, output, overwrite=overwrite, progress=show, **chosen)
        if rank == 0:
            _report(maps, output, time.perf_counter() - start, as_json)


def _check(chosen: dict[str, Any]) -> None:
    """Raise RidgeFillError for options that no model could make right."""
    from ridgefill.core.maps import TARGETS
    from ridgefill.core.rows import RowPlan
    from ridgefill.engines.transformers import FitOptions

    options.at_least(1, **{n: chosen.get(n) for n in ("window", "batch_tokens", "max_tokens")})
    RowPlan(**{name: chosen[name] for name in ("tail", "sinks") if name in chosen})
    FitOptions(**chosen)
    if chosen.get("target", TARGETS[0]) not in TARGETS:
        raise RidgeFillError(f"--target must be {' or '.join(TARGETS)}, got {chosen['target']!r}")


def _check_output(output: Path, overwrite: bool) -> None:
    from ridgefill.core import artefact

    artefact.check_target(output, overwrite)
    check_writable(output)


def _texts(
    paths: list[Path] | None, dataset: str | None, bundled: bool, split: str, column: str
) -> Iterable[str]:
    from ridgefill import text

    if (bool(paths) + (dataset is not None) + bundled) != 1:
        raise RidgeFillError("give the text by exactly one of --text, --dataset and --bundled")
    if dataset is not None:
        return text.read_dataset(dataset, split, column)
    if bundled:
        return text.bundled()
    return text.read_files(text.find_files(paths or []), column)


def _bundled(tokenizer: Any, tokens: int) -> list[str]:
    """The first part of every bundled document, rather than the first documents only."""
    from ridgefill import text

    return text.bundled(share=text.bundled_share(tokenizer, tokens))


def _fit(
    model: Any, tokenizer: Any, texts: Iterable[str], output: Path, progress: bool, **chosen: Any
) -> "FillMaps":
    from ridgefill.engines import transformers

    partial = output.absolute().with_name(output.absolute().name + ".partial")
    if partial.is_dir():
        say(f"going on from {partial}", quiet=not progress)
    try:
        return transformers.fit(
            model, tokenizer, texts, output=output, checkpoint=partial, progress=progress, **chosen
        )
    except KeyboardInterrupt:
        if not partial.is_dir():
            raise
        raise KeyboardInterrupt(
            f"what was read is kept in {partial}; repeat the command to go on"
        ) from None


@contextmanager
def _processes() -> Iterator[int]:
    """This process's rank; joins the others when started by torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield 0
        return
    import torch
    from torch import distributed

    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield distributed.get_rank()
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def _report(maps: "FillMaps", output: Path, seconds: float, as_json: bool) -> None:
    from ridgefill.bench.record import environment

    config, provenance = maps.config, maps.config.provenance
    rows = sum(provenance["rows"].values())
    tokens = rows // (provenance["window"] - config.sinks) * provenance["window"]
    layers = [
        {"layer": layer, "penalty": provenance["penalties"][str(layer)], "held_out_r2": r2}
        for layer, r2 in maps.r2.items()
    ]
    if as_json:
        print_json(
            {
                "output": str(output),
                "base_model": config.base_model.name,
                "split": config.split,
                "sources": list(config.sources),
                "target": config.target,
                "tokens": tokens,
                "rows": provenance["rows"],
                "seed": provenance["seed"],
                "seconds": seconds,
                "layers": layers,
                **environment(),
            }
        )
        return
    cells = [[row["layer"], f"{row['penalty']:g}", f"{row['held_out_r2']:.4f}"] for row in layers]
    typer.echo(table(["layer", "penalty", "held-out R2"], cells))
    typer.echo(f"{tokens} tokens in {seconds:.1f} s; maps written to {output}")
