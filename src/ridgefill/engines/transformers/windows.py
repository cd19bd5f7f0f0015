"""Calibration text as shuffled windows of token ids."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError


@dataclass(frozen=True)
class Windows:
    """Token windows in the order they are read.

    ids int32 ``[windows, length]``; ``held_out`` bool ``[windows]`` marks the held-out ones.
    """

    ids: np.ndarray
    held_out: np.ndarray
    documents: int

    def __len__(self) -> int:
        return len(self.ids)

    def batches(self, size: int) -> list[tuple[int, ...]]:
        """Window indices in batches of at most ``size``, training and held-out apart."""
        result: list[tuple[int, ...]] = []
        for part in (self.held_out, ~self.held_out):
            index = part.nonzero()[0]
            result += [tuple(index[i : i + size].tolist()) for i in range(0, len(index), size)]
        return result

    def tensor(self, batch: tuple[int, ...]) -> Tensor:
        """int64 ``[batch, length]``."""
        return torch.from_numpy(self.ids[list(batch)].astype(np.int64))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.ids).tobytes()).hexdigest()


def pack(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    length: int,
    held_out: float,
    seed: int,
    max_tokens: int | None = None,
) -> Windows:
    """Tokenise documents, pack them end to end into windows and shuffle those by ``seed``.

    Documents are joined by the end-of-text token where the tokenizer has one, and each window
    starts with the beginning token where the tokenizer adds one. A rest shorter than a window is
    dropped. Keeps 4 bytes per token. Raises NotEnoughTextError below two windows.
    """
    if length < 16 or not 0 < held_out < 1:
        raise RidgeFillError(
            f"window length must be 16 or more and held_out between 0 and 1, got {length} and "
            f"{held_out}"
        )
    prefix = _prefix(tokenizer)
    body = length - len(prefix)
    stream, documents = _stream(texts, tokenizer, max_tokens)
    count = len(stream) // body
    if count < 2:
        raise NotEnoughTextError(
            f"the text has {len(stream)} tokens, which is less than two windows of {body}: give "
            "more text or a smaller window"
        )
    ids = stream[: count * body].reshape(count, body)
    ids = np.concatenate([np.tile(np.array(prefix, np.int32), (count, 1)), ids], axis=1)
    ids = ids[np.random.default_rng(seed).permutation(count)]
    number = min(max(round(count * held_out), 1), count - 1)
    return Windows(ids, np.arange(count) < number, documents)


def _prefix(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that the tokenizer puts before every text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    return full[: full.index(bare[0])] if bare and bare[0] in full else []


def _stream(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, max_tokens: int | None
) -> tuple[np.ndarray, int]:
    end = tokenizer.eos_token_id
    parts: list[np.ndarray] = []
    total = documents = 0
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if not ids:
            continue
        part = np.array(ids + ([] if end is None else [end]), dtype=np.int32)
        parts.append(part)
        total, documents = total + len(part), documents + 1
        if max_tokens is not None and total >= max_tokens:
            break
    stream = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    return stream[:max_tokens], documents
