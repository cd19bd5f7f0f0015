"""Assisted decoding under attach gives plain greedy's tokens."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ridgefill.core.maps import FillMaps
from ridgefill.engines.transformers import attach
from tests.engines.transformers.builders import random_ids, random_maps
from tests.engines.transformers.families import build

PROMPTS = 6


def setup(family: str, seed: int, tail: int) -> tuple[PreTrainedModel, FillMaps]:
    model = build(family, seed, torch.float64)
    model.generation_config.eos_token_id = None
    return model, random_maps(model, tail=tail)


def repetitive_ids(length: int) -> Tensor:
    """A prompt in which n-grams recur, so that looking them up proposes something."""
    return random_ids(1, 7).repeat(1, length // 7 + 1)[:, :length]


@contextmanager
def call_lengths(model: PreTrainedModel) -> Iterator[list[int]]:
    """Columns of every call that reaches the first layer: the fill, the tail, decoding."""
    lengths: list[int] = []
    first = model.get_decoder().layers[0]
    handle = first.register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape[1]))
    try:
        yield lengths
    finally:
        handle.remove()


@pytest.mark.parametrize("tail", [1, 8])
@pytest.mark.parametrize("family", ["llama", "qwen3", "smollm3", "phi"])
def test_prompt_lookup(family: str, tail: int, seed: int) -> None:
    """Proposals looked up in the prompt, from the first call on, change nothing."""
    model, maps = setup(family, seed, tail)
    proposed = 0
    with attach(model, maps):
        for _ in range(PROMPTS):
            ids = repetitive_ids(int(torch.randint(30, 60, ())))
            plain = model.generate(ids, max_new_tokens=12, do_sample=False)
            with call_lengths(model) as lengths:
                looked_up = model.generate(
                    ids, max_new_tokens=12, do_sample=False, prompt_lookup_num_tokens=4
                )
            assert torch.equal(looked_up, plain)
            proposed += max(lengths[2:]) - 1
    assert proposed > 0


@pytest.mark.parametrize("same", [True, False], ids=["accepted", "rejected"])
@pytest.mark.parametrize("tail", [1, 8])
def test_assistant_model(tail: int, same: bool, seed: int) -> None:
    """A copy of the model proposes tokens of which many are taken; another model, few."""
    model, maps = setup("llama", seed, tail)
    assistant = copy.deepcopy(model) if same else build("llama", seed + 1, torch.float64)
    assistant.generation_config.eos_token_id = None
    proposed = 0
    with attach(model, maps):
        for _ in range(PROMPTS):
            ids = random_ids(1, int(torch.randint(30, 60, ())))
            plain = model.generate(ids, max_new_tokens=12, do_sample=False)
            with call_lengths(model) as lengths:
                assisted = model.generate(
                    ids, max_new_tokens=12, do_sample=False, assistant_model=assistant
                )
            assert torch.equal(assisted, plain)
            proposed += max(lengths[2:]) - 1
    assert proposed > 0
