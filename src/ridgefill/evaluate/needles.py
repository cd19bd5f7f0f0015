"""Needle retrieval: a number hidden in the filled region, asked for in the tail."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ridgefill.core.engine import Engine, Method
from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.decoding import answer_log_probs, greedy
from ridgefill.evaluate.documents import first_tokens

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
_NAMES = ("London", "Oslo", "Lima", "Cairo", "Madrid", "Tokyo", "Dublin", "Geneva", "Vienna")
_NEEDLE = " The special magic number for {name} is: {number}. "
_QUESTION = (
    "\n\nQuestion: What is the special magic number for {name}?"
    "\nAnswer: The special magic number for {name} is:"
)


@dataclass(frozen=True)
class NeedlePrompt:
    """A prompt, what it should be answered with, and where the needle lies.

    input_ids int64 ``[1, seq]``; answer_ids int64 ``[digits]``; the needle covers columns
    ``start`` to ``stop - 1``; depth is ``start`` over the haystack's length.
    """

    input_ids: Tensor
    answer_ids: Tensor
    answer: str
    start: int
    stop: int
    depth: float


@dataclass(frozen=True)
class Retrieval:
    """How a prompt was answered.

    ``right``: every answer token is the most likely one; ``log_prob``: mean log-probability of
    the answer's tokens, in nats.
    """

    right: bool
    log_prob: float


def make_prompt(
    tokenizer: PreTrainedTokenizerBase, haystack: str, length: int, depth: float, seed: int
) -> NeedlePrompt:
    """A prompt of exactly ``length`` tokens with a needle at ``depth`` (0 to 1).

    The haystack is cut to fit. A pure function of its arguments. Raises NotEnoughTextError when
    the haystack is too short.
    """
    draw = random.Random(seed)
    name, number = draw.choice(_NAMES), str(draw.randint(1_000_000, 9_999_999))
    encode = _encoder(tokenizer)
    needle, question = (
        encode(text.format(name=name, number=number)) for text in (_NEEDLE, _QUESTION)
    )
    start = first_tokens(tokenizer)
    room = length - len(start) - len(needle) - len(question)
    hay = encode(haystack)
    if room < 16 or len(hay) < room:
        raise NotEnoughTextError(
            f"a needle prompt of {length} tokens needs {room} tokens of haystack, at least 16, "
            f"but the text has {len(hay)}"
        )
    at = round(depth * room)
    ids = [*start, *hay[:at], *needle, *hay[at:room], *question]
    column = len(start) + at
    return NeedlePrompt(
        input_ids=torch.tensor([ids]),
        answer_ids=torch.tensor(encode(" " + number)),
        answer=number,
        start=column,
        stop=column + len(needle),
        depth=depth,
    )


def noise(length: int) -> str:
    """A haystack of repeated plain sentences, at least ``length`` tokens long."""
    return NOISE * (length // 20 + 1)


def retrieve(engine: Engine, method: Method, prompt: NeedlePrompt) -> Retrieval:
    """Prefill the prompt by a method and score its answer."""
    cache, logits = engine.prefill(prompt.input_ids, method)
    answer = prompt.answer_ids
    scores = answer_log_probs(engine, cache, logits, answer)
    log_probs = scores.gather(1, answer[:, None])[:, 0]
    right = bool((scores.argmax(-1) == answer).all())
    return Retrieval(right, float(log_probs.mean()))


def answer_text(
    engine: Engine,
    method: Method,
    prompt: NeedlePrompt,
    tokenizer: PreTrainedTokenizerBase,
    tokens: int = 12,
) -> str:
    """The greedy continuation of the prompt under a method, ``tokens`` long."""
    cache, logits = engine.prefill(prompt.input_ids, method)
    return str(tokenizer.decode(greedy(engine, cache, logits, tokens)))


def in_filled_region(prompt: NeedlePrompt, tail: int) -> bool:
    """Whether every token of the needle lies before the tail."""
    return prompt.stop <= prompt.input_ids.shape[1] - tail


def _encoder(tokenizer: PreTrainedTokenizerBase):  # type: ignore[no-untyped-def]
    def encode(text: str) -> Sequence[int]:
        return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    return encode
