"""Filled rows never run q, attention, the output projection or the MLP of a late layer."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers import Filler, attach, identity_maps
from tests.engines.transformers.builders import random_ids, random_maps
from tests.engines.transformers.families import FAMILIES, LAYERS, NAMED, SPLIT, build

LENGTH, TAIL, SINKS, CHOSEN = 50, 8, 3, [11, 20, 21]
EXACT = SINKS + len(CHOSEN) + TAIL

_PATHS = {
    "phi": ("self_attn.dense", "mlp"),
    "gpt_neox": ("attention.dense", "mlp"),
}


@contextmanager
def rows_run(model: PreTrainedModel, paths: tuple[str, ...]) -> Iterator[Counter[Any]]:
    """Rows that go through submodule ``path`` of layer ``index``, by ``(index, path)``."""
    counts: Counter[Any] = Counter()

    def count(key: tuple[int, str]) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            counts[key] += args[0].shape[0] * args[0].shape[1]

        return hook

    handles = [
        model.get_decoder()
        .layers[index]
        .get_submodule(path)
        .register_forward_hook(count((index, path)))
        for index in range(LAYERS)
        for path in paths
    ]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def expected(paths: tuple[str, ...]) -> dict[tuple[int, str], int]:
    """All rows below the split, exact ones after it; of the last layer, only the tail."""
    counts = {}
    for index in range(LAYERS):
        rows = LENGTH if index < SPLIT else EXACT if index < LAYERS - 1 else TAIL
        counts |= {(index, path): rows for path in paths}
    return counts


@pytest.mark.parametrize("chunk", [9, 1000])
@pytest.mark.parametrize("family", [family.id for family in FAMILIES])
def test_output_projection_and_mlp(family: str, chunk: int, seed: int) -> None:
    model = build(family, seed)
    paths = _PATHS.get(family, ("self_attn.o_proj", "mlp"))
    filler = Filler(model, random_maps(model), chunk_size=chunk)
    with rows_run(model, paths) as counts:
        filler.prefill(random_ids(1, LENGTH), plan=RowPlan(TAIL, SINKS, CHOSEN))
    assert dict(counts) == expected(paths)


@pytest.mark.parametrize("target", ["identity", "input", "normed"])
@pytest.mark.parametrize("family", [family.id for family in NAMED])
def test_queries_of_named_families(family: str, target: str, seed: int) -> None:
    """Named families leave out q as well, and folded maps the key and value projections too."""
    model = build(family, seed)
    maps = (
        identity_maps(model, SPLIT) if target == "identity" else random_maps(model, target=target)
    )
    filler = Filler(model, maps)
    paths = ("self_attn.q_proj", "self_attn.o_proj", "mlp")
    with rows_run(model, paths) as counts:
        filler.prefill(random_ids(1, LENGTH), plan=RowPlan(TAIL, SINKS, CHOSEN))
    assert dict(counts) == expected(paths)
    with rows_run(model, ("self_attn.k_proj",)) as counts:
        filler.prefill(random_ids(1, LENGTH), plan=RowPlan(TAIL, SINKS, CHOSEN))
    late = EXACT if target == "normed" else LENGTH
    assert [counts[index, "self_attn.k_proj"] for index in range(SPLIT + 1, LAYERS)] == [late] * (
        LAYERS - SPLIT - 1
    )


def test_under_attach(seed: int) -> None:
    """The same through ``generate``; every decoded token after the first runs all layers."""
    model = build("llama", seed)
    model.generation_config.eos_token_id = None
    paths = ("self_attn.q_proj", "mlp")
    with (
        attach(model, random_maps(model), tail=TAIL, sinks=SINKS, chosen=CHOSEN),
        rows_run(model, paths) as counts,
        torch.no_grad(),
    ):
        model.generate(random_ids(1, LENGTH), max_new_tokens=5, do_sample=False)
    assert dict(counts) == {key: rows + 4 for key, rows in expected(paths).items()}
