"""A fit that is stopped goes on where it was and gives the same maps to the bit."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ridgefill.core.errors import ArtefactError
from ridgefill.core.maps import FillMaps
from ridgefill.core.statistics import Statistics
from ridgefill.engines.transformers import fitrun
from ridgefill.engines.transformers.calibrate import Collector
from tests.engines.transformers.families import build
from tests.engines.transformers.test_fit import fit_tiny, random_text

BATCHES = 18  # 51 windows, 13 of them held out, at most 3 in a batch


def counting_adds(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None] = lambda _: None
) -> list[Tensor]:
    """Record the ids of every batch that is added; call ``then`` with their number."""
    seen: list[Tensor] = []
    add = Collector.add

    def recording(self: Collector, ids: Tensor, statistics: Statistics) -> None:
        add(self, ids, statistics)
        seen.append(ids)
        then(len(seen))

    monkeypatch.setattr(Collector, "add", recording)
    return seen


def interrupt_after(count: int) -> Callable[[int], None]:
    return lambda seen: os.kill(os.getpid(), signal.SIGINT) if seen == count else None


def assert_same(ours: FillMaps, theirs: FillMaps) -> None:
    assert ours.config == theirs.config
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


@pytest.mark.parametrize("count", [1, 6, BATCHES])
def test_interrupted_and_resumed(
    count: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during a batch ends the fit after it; the second call runs only the others."""
    model, texts, folder = build("llama", seed), random_text(), tmp_path / "run"
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        whole = counting_adds(patch)
        expected = fit_tiny(model, texts)
    assert len(whole) == BATCHES
    with monkeypatch.context() as patch:
        first = counting_adds(patch, interrupt_after(count))
        with pytest.raises(KeyboardInterrupt):
            fit_tiny(model, texts, checkpoint=folder)
    assert len(first) == count
    assert [path.name for path in folder.iterdir()] == ["fit-0-of-1.safetensors"]
    with monkeypatch.context() as patch:
        second = counting_adds(patch)
        assert_same(fit_tiny(model, texts, checkpoint=folder), expected)
    assert all(torch.equal(a, b) for a, b in zip(first + second, whole, strict=True))
    assert not folder.exists()
    assert signal.getsignal(signal.SIGINT) is handler


def test_interrupted_without_checkpoint(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counting_adds(monkeypatch, interrupt_after(2))
    with pytest.raises(KeyboardInterrupt):
        fit_tiny(build("llama", seed), random_text())
    assert not list(tmp_path.iterdir())


def test_killed_between_saves(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash loses at most the batches since the last periodic save."""
    model, texts, folder = build("llama", seed), random_text(), tmp_path / "run"
    expected = fit_tiny(model, texts)
    monkeypatch.setattr(fitrun, "SAVE_SECONDS", 0.0)

    def crash(seen: int) -> None:
        if seen == 5:
            raise MemoryError

    with monkeypatch.context() as patch:
        counting_adds(patch, crash)
        with pytest.raises(MemoryError):
            fit_tiny(model, texts, checkpoint=folder)
    seen = counting_adds(monkeypatch)
    assert_same(fit_tiny(model, texts, checkpoint=folder), expected)
    assert len(seen) == BATCHES - 4
    assert not folder.exists()


@pytest.fixture
def stopped(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[PreTrainedModel, list[str], Path]:
    """A model, its text, and the folder of a fit that was stopped after three batches."""
    model, texts, folder = build("llama", seed), random_text(), tmp_path / "run"
    with monkeypatch.context() as patch:
        counting_adds(patch, interrupt_after(3))
        with pytest.raises(KeyboardInterrupt):
            fit_tiny(model, texts, checkpoint=folder)
    return model, texts, folder


@pytest.mark.parametrize(
    "change", ["text", "model", "sources", "target", "window", "sinks", "batch_tokens", "penalties"]
)
def test_checkpoint_of_another_fit(
    change: str, stopped: tuple[PreTrainedModel, list[str], Path], seed: int
) -> None:
    model, texts, folder = stopped
    options: dict[str, dict[str, Any]] = {
        "sources": {"sources": (2,)},
        "target": {"target": "normed"},
        "window": {"window": 50},
        "sinks": {"sinks": 1},
        "batch_tokens": {"batch_tokens": 400},
        "penalties": {"penalties": (0.5,)},
    }
    if change == "text":
        texts = texts[1:]
    if change == "model":
        model = build("llama", seed + 1)
    content = (folder / "fit-0-of-1.safetensors").read_bytes()
    with pytest.raises(ArtefactError, match="another model, text or options"):
        fit_tiny(model, texts, checkpoint=folder, **options.get(change, {}))
    assert (folder / "fit-0-of-1.safetensors").read_bytes() == content


@pytest.mark.parametrize("damage", ["truncated", "emptied", "overwritten"])
def test_damaged_checkpoint(damage: str, stopped: tuple[PreTrainedModel, list[str], Path]) -> None:
    model, texts, folder = stopped
    file = folder / "fit-0-of-1.safetensors"
    content = file.read_bytes()
    damaged = {"truncated": content[: len(content) // 2], "emptied": b"", "overwritten": b"x" * 99}
    file.write_bytes(damaged[damage])
    with pytest.raises(ArtefactError, match="damaged"):
        fit_tiny(model, texts, checkpoint=folder)


def test_disk_full_while_saving_a_checkpoint(
    stopped: tuple[PreTrainedModel, list[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last good checkpoint survives a failed save, and no temporary file stays."""
    model, texts, folder = stopped
    expected = fit_tiny(model, texts)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fitrun, "SAVE_SECONDS", 0.0)
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            fit_tiny(model, texts, checkpoint=folder)
    assert [path.name for path in folder.iterdir()] == ["fit-0-of-1.safetensors"]
    seen = counting_adds(monkeypatch)
    assert_same(fit_tiny(model, texts, checkpoint=folder), expected)
    assert len(seen) == BATCHES - 3


def test_disk_full_while_saving_the_maps_keeps_the_checkpoint(
    stopped: tuple[PreTrainedModel, list[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint goes only once the maps are on disk."""
    model, texts, folder = stopped
    output = folder.parent / "maps"

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FillMaps, "save_pretrained", full)
        with pytest.raises(OSError, match="No space left"):
            fit_tiny(model, texts, output=output, checkpoint=folder)
    assert list(folder.iterdir())
    maps = fit_tiny(model, texts, output=output, checkpoint=folder)
    assert not folder.exists()
    assert_same(FillMaps.from_pretrained(output), maps)
