"""Greedy decoding through the engine protocol."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ridgefill.core.engine import Engine


def greedy(
    engine: Engine, cache: Any, logits: Tensor, new_tokens: int, stop: Collection[int] = ()
) -> list[int]:
    """Token ids decoded from a prefilled cache, up to ``new_tokens`` or one of ``stop``.

    logits ``[1, keep, vocab]`` are the prefill's.
    """
    ids: list[int] = []
    while True:
        token = int(logits[0, -1].argmax())
        if token in stop:
            return ids
        ids.append(token)
        if len(ids) == new_tokens:
            return ids
        logits = engine.forward(torch.tensor([[token]]), cache)


def answer_log_probs(engine: Engine, cache: Any, logits: Tensor, answer: Tensor) -> Tensor:
    """Log-probabilities ``[tokens, vocab]`` at the tokens of ``answer`` int64 ``[tokens]``."""
    parts = [logits[:, -1:]]
    if len(answer) > 1:
        parts.append(engine.forward(answer[None, :-1], cache))
    return torch.cat(parts, dim=1)[0].float().log_softmax(-1).cpu()


def stop_tokens(tokenizer: PreTrainedTokenizerBase, listed: int | Sequence[int] | None) -> set[int]:
    """The ids that end an answer: the tokenizer's and those a generation config lists."""
    several = np.atleast_1d([] if listed is None else listed)
    return {int(token) for token in several} | {tokenizer.eos_token_id} - {None}
