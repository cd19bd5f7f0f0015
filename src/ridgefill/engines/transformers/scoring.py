"""Log-likelihoods of continuations behind filled prompts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Request = tuple[tuple[str, str] | None, list[int], list[int]]
"""Texts, context ids and continuation ids, as lm-evaluation-harness passes them on."""


class Scored(NamedTuple):
    """A prompt whose last rows are scored.

    ``ids`` are context and continuation without its last token; the last ``keep`` rows predict the
    longest continuation among ``requests``, the indices of those the prompt answers.
    """

    ids: list[int]
    keep: int
    requests: list[int]


def group(requests: Mapping[int, Request], max_length: int, share: bool) -> list[Scored]:
    """The prompts of requests by index, cut on the left to ``max_length``, longest first.

    With ``share`` requests that differ in their last token alone are answered by one prompt.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (_, context, continuation) in requests.items():
        key = (*context, *continuation[:-1]) if share else (index,)
        groups.setdefault(key, []).append(index)
    prompts = []
    for indices in groups.values():
        _, context, continuation = requests[indices[0]]
        ids = [*context, *continuation[:-1]][-max_length:]
        keep = max(len(requests[index][2]) for index in indices)
        prompts.append(Scored(ids, keep, indices))
    return sorted(prompts, key=lambda prompt: (-len(prompt.ids), prompt.ids))


def left_pad(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids int64 ``[batch, longest]``, padded with 0 on the left, and their mask of 0 and 1."""
    longest = max(len(ids) for ids in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def log_likelihood(rows: Tensor, continuation: Sequence[int]) -> tuple[float, bool]:
    """Log-likelihood of a continuation, and whether it is what greedy decoding gives.

    ``rows`` log-probabilities ``[rows, vocab]``; the last ones predict the continuation.
    """
    tokens = torch.tensor(continuation, device=rows.device)
    rows = rows[-len(tokens) :]
    found = rows.gather(1, tokens[:, None]).sum()
    return float(found), bool((rows.argmax(-1) == tokens).all())
