"""Options that several verbs share, and how their values are read."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A directory, a hub id, a .gguf file, or smollm2-demo."),
]
Dtype = Annotated[str, typer.Option(help="auto (the checkpoint's), float32, bfloat16 or float16.")]
DeviceMap = Annotated[
    str | None,
    typer.Option(help="A device such as cpu or cuda:1, or auto. Default: CUDA if there is any."),
]
GgufFile = Annotated[str | None, typer.Option(help="Name of a GGUF file inside MODEL.")]
Revision = Annotated[str | None, typer.Option(help="Revision of MODEL on the hub.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with MODEL.")
]
Tail = Annotated[
    int | None,
    typer.Option(help="Last prompt tokens that run every layer. Default: the maps' own."),
]
Sinks = Annotated[
    int | None,
    typer.Option(help="First prompt tokens that run every layer. Default: the maps' own."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict/--no-strict",
        help="Whether the maps must have been fitted on exactly these weights.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything drawn at random.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout instead.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what OUTPUT holds.")]


def whole_numbers(text: str, option: str) -> list[int]:
    """The integers of a comma-separated option value. Raises RidgeFillError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RidgeFillError(
            f"{option} takes whole numbers with commas between them, such as 15,10,5,0; got "
            f"{text!r}"
        ) from None


def share(text: str, option: str) -> float:
    """A share given as ``1%`` or ``0.01``. Raises RidgeFillError."""
    number = text.strip()
    try:
        return float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        raise RidgeFillError(f"{option} takes a share such as 1% or 0.01, got {text!r}") from None


def at_least(least: int, **values: int | None) -> None:
    """Raise RidgeFillError for the first value below ``least``, by its option's name."""
    for name, value in values.items():
        if value is not None and value < least:
            option = "--" + name.replace("_", "-")
            raise RidgeFillError(f"{option} must be {least} or more, got {value}")


def read_file(path: Path, option: str) -> str:
    """The text of a file. Raises RidgeFillError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RidgeFillError(f"{path}: {reason}; check {option}") from None


def load_model(
    model: str, quiet: bool = False, **options: Any
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """`ridgefill.engines.transformers.loading.load`, with transformers' own chatter turned down."""
    from transformers.utils import logging

    from ridgefill.engines.transformers.loading import load

    logging.set_verbosity_error()
    if quiet:
        logging.disable_progress_bar()
    return load(model, **options)


def progress_bar(total: int | None, unit: str, label: str, quiet: bool) -> Any:
    """A tqdm bar on stderr."""
    from tqdm.auto import tqdm

    return tqdm(total=total, unit=unit, desc=label, disable=quiet)


def stepper(bar: Any) -> Callable[..., None]:
    """A report callback that moves ``bar`` one step and shows what was done."""

    def step(*done: object) -> None:
        bar.set_postfix_str(" ".join(map(str, done)), refresh=False)
        bar.update()

    return step
