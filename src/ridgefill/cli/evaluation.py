"""What ``eval`` and ``verify`` share: texts, tasks, plans and the evaluation made of them."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import options
from ridgefill.cli.output import check_results
from ridgefill.data import sample
from ridgefill.text import find_files, read_files

if TYPE_CHECKING:
    from ridgefill.evaluate.documents import Document
    from ridgefill.evaluate.evaluation import Evaluation, Settings
    from ridgefill.evaluate.plans import PlanSpec
    from ridgefill.evaluate.tasks import Task

BUNDLED, OWN = "bundled text", "own text"
LONGBENCH = "longbench_v2"
FILES = (
    *("config.json", "samples.jsonl", "results.json", "times.json", "report.html", "tokens"),
    *("retrieval.png", "loss.png", "tasks.png", "splice-loss.png", "splice-retrieval.png"),
)
"""What an evaluation writes into its directory."""

Text = Annotated[
    list[Path] | None,
    typer.Option(
        help="Documents for the losses: a text file or a directory of them; may be given several "
        "times. Default: the bundled held-out text."
    ),
]
TextColumn = Annotated[str, typer.Option(help="Column that holds the text in .jsonl files.")]
Essays = Annotated[
    list[Path] | None,
    typer.Option(help="Text files or directories for haystacks. Default: bundled novels."),
]
Chat = Annotated[
    str, typer.Option("--chat-template", help="auto (where the tokenizer has one), on or off.")
]
MaxDistantLoss = Annotated[
    str,
    typer.Option(metavar="SHARE", help="Largest increase of the loss on distant tokens."),
]
MinNeedle = Annotated[
    str,
    typer.Option(
        metavar="SHARE",
        help="Smallest share of the exact prefill's right answers in the filled region to keep.",
    ),
]


@dataclass(frozen=True)
class Inputs:
    """Where the texts of an evaluation come from; None stands for the bundled text."""

    text: Sequence[Path] | None = None
    text_column: str = "text"
    essays: Sequence[Path] | None = None
    squad: Path | None = None
    hotpotqa: Path | None = None
    longbench: str | None = None
    chat: str = "auto"

    def check(self) -> None:
        """Raise RidgeFillError for a path that is not there."""
        for paths in (self.text, self.essays, self._file(self.squad), self._file(self.hotpotqa)):
            find_files(paths or ())

    def documents(self) -> "Iterator[Document]":
        """The documents for the losses, read one at a time; their source is what was named."""
        from ridgefill.evaluate.documents import Document

        if self.text is None:
            for bundled in sample("held_out"):
                yield Document(bundled.kind, bundled.text)
        for path in self.text or ():
            for text in read_files(find_files([path]), self.text_column):
                yield Document(path.name, text)

    def essay_texts(self) -> list[str] | None:
        """The texts of haystacks; None for the bundled ones."""
        if self.essays is None:
            return None
        return list(read_files(find_files(self.essays), self.text_column))

    def config(self) -> dict[str, Any]:
        """What samples depend on: labels and hashes of the texts."""
        given = {
            "documents": self.text,
            "essays": self.essays,
            "squad": self._file(self.squad),
            "hotpotqa": self._file(self.hotpotqa),
        }
        return {
            "texts": {
                name: OWN if paths is not None else BUNDLED
                for name, paths in given.items()
                if paths is not None or name in ("documents", "essays")
            },
            "text_sha256": {
                name: _digest(find_files(paths)) for name, paths in given.items() if paths
            },
            "text_column": self.text_column,
            "chat_template": self.chat,
            "longbench": self.longbench and _source_name(self.longbench),
        }

    @staticmethod
    def _file(path: Path | None) -> list[Path] | None:
        return None if path is None else [path]


def _source_name(source: str) -> str:
    """A file's hash; the name of a dataset."""
    path = Path(source)
    return _digest([path]) if path.is_file() else path.name


def _digest(files: Sequence[Path]) -> str:
    """A hash of the contents of files, in their order."""
    parts = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def make_tasks(names: Sequence[str], inputs: Inputs, tokenizer: Any, seed: int) -> "list[Task]":
    """The tasks by name, LongBench v2 among them where its data is given."""
    from ridgefill.evaluate import ruler
    from ridgefill.evaluate.prompting import Prompter

    prompter = Prompter(tokenizer, inputs.chat)
    tasks = ruler.make_tasks(
        [name for name in names if name != LONGBENCH],
        prompter,
        seed=seed,
        essay_texts=inputs.essay_texts(),
        squad=inputs.squad,
        hotpotqa=inputs.hotpotqa,
    )
    if inputs.longbench is not None:
        from ridgefill.evaluate import longbench

        tasks.append(longbench.make_task(inputs.longbench, prompter, seed=seed))
    return tasks


def check_output(output: Path | None, overwrite: bool) -> None:
    """Refuse a directory that holds anything but an evaluation. Nothing is touched."""
    goes_on = output is not None and (output / "config.json").is_file()
    check_results(output, FILES, overwrite or goes_on)


def clear_output(output: Path | None) -> None:
    """Remove an earlier evaluation, once the new one is known to be able to run."""
    for name in FILES if output is not None and output.exists() else ():
        path = output / name  # type: ignore[operator]
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def build(
    model: Any,
    tokenizer: Any,
    specs: "Sequence[PlanSpec]",
    names: Sequence[str],
    inputs: Inputs,
    settings: "Settings",
    *,
    tail: int | None,
    sinks: int | None,
    strict: bool,
    more: dict[str, Any] | None = None,
) -> "Evaluation":
    """The evaluation of a loaded model. Raises RidgeFillError for whatever does not fit."""
    from functools import partial

    from ridgefill.engines.transformers import TransformersEngine, identity_maps
    from ridgefill.engines.transformers.fingerprint import fingerprint
    from ridgefill.evaluate import ruler
    from ridgefill.evaluate.decoding import stop_tokens
    from ridgefill.evaluate.evaluation import Evaluation
    from ridgefill.evaluate.plans import build_methods

    identity: Any = partial(identity_maps, model)
    methods = build_methods(specs, identity, tail, sinks)
    engine = TransformersEngine(model, strict=strict)
    for method in methods:
        if method.maps is not None:
            engine.filler(method.maps)  # refuse maps of another model before anything runs
    base = fingerprint(model)
    config = {"model": base.name, "weights": base.weights, **inputs.config(), **(more or {})}
    generation = getattr(model, "generation_config", None)
    return Evaluation(
        engine,
        methods,
        tokenizer,
        make_tasks(names, inputs, tokenizer, settings.seed),
        inputs.documents(),
        settings,
        needles=ruler.NEEDLE_TASKS,
        stop=stop_tokens(tokenizer, getattr(generation, "eos_token_id", None)),
        config=config,
    )


def run(
    evaluation: "Evaluation", output: Path | None, quiet: bool, overwrite: bool
) -> tuple[dict, dict]:
    """Run an evaluation under a progress bar that tells the time left."""
    if overwrite:
        clear_output(output)
    total = sum(item.cost for item in evaluation.items)
    with options.progress_bar(total, "tok", "eval", quiet) as bar:

        def step(item: Any) -> None:
            bar.set_postfix_str(item.id, refresh=False)
            bar.update(item.cost)

        try:
            return evaluation.run(output, step)
        except KeyboardInterrupt:
            hint = "the same command goes on from here" if output else "nothing was kept"
            raise KeyboardInterrupt(hint) from None
