"""Prompts for timing: random slices of real text, another one in every round."""

import numpy as np
import torch
from torch import Tensor

from ridgefill.core.errors import NotEnoughTextError


class Prompts:
    """Slices of one stream of token ids.

    Args:
        ids: int64 ``[tokens]``.
        seed: which slices are drawn.
    """

    def __init__(self, ids: Tensor, seed: int = 0) -> None:
        self.ids, self.seed = ids, seed

    def check(self, length: int) -> None:
        """Raise NotEnoughTextError when the text is shorter than a prompt of ``length``."""
        if len(self.ids) < length:
            raise NotEnoughTextError(
                f"the prompt text has {len(self.ids)} tokens but a prompt of {length} is asked "
                "for: give more text or smaller lengths"
            )

    def take(self, length: int, number: int) -> Tensor:
        """Prompt ``number`` of a length, int64 ``[1, length]``; a pure function of the seed."""
        self.check(length)
        draw = np.random.default_rng((self.seed, length, number))
        start = int(draw.integers(len(self.ids) - length + 1))
        return self.ids[None, start : start + length]


def stream(tokenizer: object, texts: list[str]) -> Tensor:
    """The token ids of ``texts`` one after the other, int64 ``[tokens]``."""
    parts = [
        tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]  # type: ignore[operator]
        for text in texts
    ]
    return torch.tensor([token for part in parts for token in part], dtype=torch.int64)
