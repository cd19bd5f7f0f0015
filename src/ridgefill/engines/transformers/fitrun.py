"""One pass over the calibration windows: progress, processes, interruption and resuming."""

import contextlib
import hashlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from tqdm.auto import tqdm

from ridgefill.core.artefact import write_file
from ridgefill.core.errors import ArtefactError
from ridgefill.core.statistics import Statistics
from ridgefill.engines.transformers.windows import Windows

if TYPE_CHECKING:
    from ridgefill.engines.transformers.calibrate import Collector, FitOptions

SAVE_SECONDS = 300.0
"""How often a running fit is saved for resuming."""


@dataclass(frozen=True)
class Process:
    """This process's place among those that fit together."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> "Process":
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())


class FitRun:
    """Collects training and held-out statistics over this process's share of the windows."""

    def __init__(
        self,
        windows: Windows,
        opts: "FitOptions",
        collector: "Collector",
        process: Process,
        checkpoint: str | Path | None,
        progress: bool,
    ) -> None:
        self.windows, self.collector, self.process = windows, collector, process
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.progress = progress and process.rank == 0
        size = max(opts.batch_tokens // opts.window, 1)
        self.batches = windows.batches(size)[process.rank :: process.count]
        self.parts = {"train": collector.statistics(), "held_out": collector.statistics()}
        self.done = 0
        self.key = _key(windows, opts, collector, process)

    def collect(self) -> tuple[Statistics, Statistics]:
        """Training and held-out statistics over all processes.

        Ctrl-C ends the run after the batch at hand, saves it where a checkpoint directory was
        given, and raises KeyboardInterrupt.
        """
        self._resume()
        saved = time.monotonic()
        with _deferred_interrupt() as interrupted, self._bar() as bar:
            for batch in self.batches[self.done :]:
                part = "held_out" if self.windows.held_out[batch[0]] else "train"
                ids = self.windows.tensor(batch)
                self.collector.add(ids, self.parts[part])
                self.done += 1
                bar.update(ids.numel() * self.process.count)
                if interrupted.is_set():
                    self._save()
                    raise KeyboardInterrupt
                if time.monotonic() - saved > SAVE_SECONDS:
                    self._save()
                    saved = time.monotonic()
        if self.process.count > 1:
            for statistics in self.parts.values():
                statistics.all_reduce()
        return self.parts["train"], self.parts["held_out"]

    def clear(self) -> None:
        """Remove the checkpoint of a finished run."""
        if self.checkpoint is not None and self._file.exists():
            self._file.unlink()
            with contextlib.suppress(OSError):  # other processes' files may still be there
                self.checkpoint.rmdir()

    @property
    def _file(self) -> Path:
        name = f"fit-{self.process.rank}-of-{self.process.count}.safetensors"
        return Path(self.checkpoint or ".") / name

    def _bar(self) -> Any:
        length = self.windows.ids.shape[1]
        return tqdm(
            total=len(self.windows) * length,
            initial=sum(map(len, self.batches[: self.done])) * length * self.process.count,
            unit="tok",
            unit_scale=True,
            desc="fit",
            disable=not self.progress,
        )

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{part}.{name}": tensor.cpu()
            for part, statistics in self.parts.items()
            for name, tensor in statistics.tensors().items()
        }
        metadata = {"key": self.key, "done": str(self.done)}
        write_file(self._file, save_tensors(tensors, metadata=metadata))

    def _resume(self) -> None:
        if self.checkpoint is None or not self._file.exists():
            return
        try:
            with safe_open(self._file, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("key") != self.key:
                    raise ArtefactError(
                        f"{self._file} belongs to a fit with another model, text or options: "
                        f"repeat that fit, or remove {self.checkpoint}"
                    )
                for part, statistics in self.parts.items():
                    names = statistics.tensors()
                    statistics.load_tensors({n: file.get_tensor(f"{part}.{n}") for n in names})
                self.done = int(metadata["done"])
        except SafetensorError as error:
            raise ArtefactError(
                f"{self._file} is damaged ({error}): remove it to start again"
            ) from None


def _key(windows: Windows, opts: "FitOptions", collector: "Collector", process: Process) -> str:
    """Identifies a fit: model, text, options and number of processes."""
    values = [windows.sha256, asdict(opts), asdict(collector.config), process.count]
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Turn a first Ctrl-C into an event, so that no batch is half counted; a second one raises."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.getsignal(signal.SIGINT)

    def first(signum: int, frame: Any) -> None:
        event.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, first)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
