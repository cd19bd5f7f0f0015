"""Processes that fit together return the maps that one process returns."""

from pathlib import Path

import torch

from ridgefill.core.maps import FillMaps
from tests.engines.transformers.families import build
from tests.engines.transformers.test_fit import fit_tiny, random_text

TARGETS = ("input", "normed")


def worker(rank: int, folder: str, seed: int, texts: list[str]) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    for target in TARGETS:
        maps = fit_tiny(
            build("llama", seed), texts, target=target, checkpoint=f"{folder}/run-{target}"
        )
        maps.save_pretrained(f"{folder}/{target}-{rank}")
    torch.distributed.destroy_process_group()


def test_two_processes(seed: int, tmp_path: Path) -> None:
    """Two gloo processes, an odd number of batches; only the order of summation differs."""
    texts = random_text(documents=4)
    torch.multiprocessing.spawn(worker, (str(tmp_path), seed, texts), nprocs=2)
    for target in TARGETS:
        one = fit_tiny(build("llama", seed), texts, target=target)
        first, second = (
            FillMaps.from_pretrained(tmp_path / f"{target}-{rank}") for rank in range(2)
        )
        assert first.config.provenance["rows"] == one.config.provenance["rows"]
        assert (one.key_scale is None) == (target == "input")
        for name, expected in one.tensors().items():
            if expected is not None:
                ours, theirs = first.tensors()[name], second.tensors()[name]
                assert torch.equal(ours, theirs)
                torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    assert not list(tmp_path.glob("run-*/*"))
