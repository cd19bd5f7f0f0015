"""Text to prompt tokens: chat templates, answer prefixes, and where a piece of text ends up."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ridgefill.core.errors import RidgeFillError

CHAT_MODES = ("auto", "on", "off")


@dataclass(frozen=True)
class Encoded:
    """A tokenised prompt.

    Args:
        text: what was tokenised.
        input_ids: int64 ``[1, seq]``.
        offsets: per column, the characters ``(start, stop)`` of ``text`` it came from; special
            tokens that the tokenizer added have an empty range.
        begin: where the user's own text starts in ``text``.
    """

    text: str
    input_ids: Tensor
    offsets: tuple[tuple[int, int], ...]
    begin: int

    def columns(self, start: int, stop: int) -> tuple[int, int]:
        """Columns ``(first, last + 1)`` that hold characters ``start`` to ``stop - 1`` of the
        user's own text."""
        start, stop = start + self.begin, stop + self.begin
        held = [i for i, (low, high) in enumerate(self.offsets) if low < stop and high > start]
        return held[0], held[-1] + 1


class Prompter:
    """Tokenises prompts as one string, so that a boundary between parts costs no extra token.

    Args:
        tokenizer: with or without a beginning token and a chat template.
        chat: ``on`` wraps the prompt as one user turn, ``off`` does not, ``auto`` does when the
            tokenizer has a chat template.

    Raises RidgeFillError for an unknown mode, for ``on`` without a chat template, and for a
    tokenizer without offsets.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, chat: str = "auto") -> None:
        if chat not in CHAT_MODES:
            raise RidgeFillError(f"chat must be one of {', '.join(CHAT_MODES)}, got {chat!r}")
        if not tokenizer.is_fast:
            raise RidgeFillError(
                f"{type(tokenizer).__name__} does not tell which characters a token came from: "
                "load the fast version of the tokenizer"
            )
        has_template = bool(tokenizer.chat_template)
        if chat == "on" and not has_template:
            raise RidgeFillError("the tokenizer has no chat template: use 'auto' or 'off'")
        self.tokenizer = tokenizer
        self.chat = chat == "on" or (chat == "auto" and has_template)

    def encode(self, text: str, answer_prefix: str = "") -> Encoded:
        """Tokenise a user's text and the first words of the answer to it.

        Special tokens that the tokenizer puts at the end are left out: they would end the answer.
        """
        whole, begin = self._wrap(text)
        whole += answer_prefix.lstrip() if self.chat else answer_prefix
        call = {"add_special_tokens": not self.chat, "verbose": False}
        found = self.tokenizer(
            whole, return_offsets_mapping=True, return_special_tokens_mask=True, **call
        )
        stop = len(found["input_ids"])
        while stop and not self.chat and found["special_tokens_mask"][stop - 1]:
            stop -= 1
        offsets = tuple((int(low), int(high)) for low, high in found["offset_mapping"][:stop])
        return Encoded(whole, torch.tensor([found["input_ids"][:stop]]), offsets, begin)

    def count(self, text: str, answer_prefix: str = "") -> int:
        """The tokens of `encode`."""
        return self.encode(text, answer_prefix).input_ids.shape[1]

    def _wrap(self, text: str) -> tuple[str, int]:
        """The text inside its turn, and where it starts there."""
        if not self.chat:
            return text, 0
        message = [{"role": "user", "content": text}]
        try:
            whole = self.tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is code of the tokenizer's author
            raise RidgeFillError(
                f"the tokenizer's chat template failed ({error}): use --chat-template off"
            ) from error
        begin = whole.find(text.strip())
        if begin < 0:
            raise RidgeFillError(
                "the tokenizer's chat template changes the user's text, so the place of a needle "
                "in it is unknown: use --chat-template off"
            )
        return whole, begin - (len(text) - len(text.lstrip()))
