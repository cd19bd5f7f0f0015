"""Losses on a document's tail, whose context lies in the filled region.

Mean loss hides the damage of a fill, because most tokens are told by the few before them. Two
groups of tokens show it: *distant* tokens, which the exact model predicts better with the whole
document than with the tail alone, and *novel* tokens, which have not occurred before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ridgefill.core.engine import Engine, Method
from ridgefill.core.errors import RidgeFillError

GROUPS = ("mean", "distant", "novel")


@dataclass(frozen=True)
class LossOptions:
    """How tokens are grouped.

    Args:
        margin: a token is distant when its exact loss is lower by at least this many nats with
            the whole document as context than with the tail alone. Only the later half of the
            tail is considered, where the tail alone is context enough for most tokens.
        ngram: a token is novel when it has not followed its last ``ngram - 1`` tokens before.

    Raises RidgeFillError for values out of range.
    """

    margin: float = 0.5
    ngram: int = 1

    def __post_init__(self) -> None:
        if not self.margin > 0:
            raise RidgeFillError(f"margin must be above 0 nats, got {self.margin}")
        if self.ngram < 1:
            raise RidgeFillError(f"ngram must be 1 or more, got {self.ngram}")


@dataclass(frozen=True)
class TokenScores:
    """Scores of the last tokens of one document under one method.

    loss in nats, kl (of the exact distribution from this one) in nats, both fp32 ``[tail]``;
    agree bool ``[tail]``: whether the most likely token is the exact prefill's.
    """

    loss: Tensor
    kl: Tensor
    agree: Tensor


@dataclass(frozen=True)
class DocumentScores:
    """One document's scores by method name, and which of its tokens are distant and novel.

    token_ids int64 ``[tail]``; local_loss fp32 ``[tail]``: the exact loss with the tail alone as
    context; distant and novel bool ``[tail]``.
    """

    token_ids: Tensor
    local_loss: Tensor
    distant: Tensor
    novel: Tensor
    by_method: dict[str, TokenScores]

    def mask(self, group: str) -> Tensor:
        """The tokens of one of `GROUPS`, bool ``[tail]``."""
        every = torch.ones_like(self.distant)
        return {"mean": every, "distant": self.distant, "novel": self.novel}[group]


def score_document(
    engine: Engine,
    methods: Sequence[Method],
    input_ids: Tensor,
    tail: int,
    first: Sequence[int] = (),
    options: LossOptions | None = None,
) -> DocumentScores:
    """Score the last ``tail`` tokens of a document under every method.

    Args:
        engine: runs the model.
        methods: must hold an exact one; their plans' tails must be at least ``tail``.
        input_ids: int64 ``[1, seq]``.
        tail: how many tokens to score; the rows that predict them run exact in every method.
        first: the special tokens that the tokenizer puts before a text, for the tail alone.
        options: how tokens are grouped.
    """
    options = options or LossOptions()
    exact = next(method for method in methods if method.maps is None)
    ordered = [exact, *(method for method in methods if method is not exact)]
    targets = input_ids[0, -tail:]
    reference: Tensor | None = None
    by_method: dict[str, TokenScores] = {}
    for method in ordered:
        _, logits = engine.prefill(input_ids[:, :-1], method, keep=tail)
        log_probs = logits[0].float().log_softmax(-1)
        reference = log_probs if reference is None else reference
        by_method[method.name] = _token_scores(log_probs, reference, targets)
    local = local_losses(engine, exact, input_ids, tail, first)
    late = torch.arange(tail) >= tail // 2
    distant = (local - by_method[exact.name].loss >= options.margin) & late
    novel = novel_tokens(input_ids[0], tail, options.ngram)
    return DocumentScores(targets.cpu(), local, distant, novel, by_method)


def _token_scores(log_probs: Tensor, exact: Tensor, targets: Tensor) -> TokenScores:
    loss = F.nll_loss(log_probs, targets.to(log_probs.device), reduction="none")
    kl = F.kl_div(log_probs, exact, reduction="none", log_target=True).sum(-1)
    agree = log_probs.argmax(-1) == exact.argmax(-1)
    return TokenScores(loss.cpu(), kl.cpu(), agree.cpu())


def local_losses(
    engine: Engine, exact: Method, input_ids: Tensor, tail: int, first: Sequence[int] = ()
) -> Tensor:
    """Exact losses of the last ``tail`` tokens with no other context, fp32 ``[tail]``.

    The rows are those that predict the tail's tokens, behind the tokenizer's ``first`` ones.
    """
    rows = input_ids[:, -tail - 1 :]
    start = torch.tensor([list(first)], dtype=rows.dtype, device=rows.device)
    return tail_losses(engine, exact, torch.cat([start, rows], dim=1), tail)


def novel_tokens(ids: Tensor, tail: int, ngram: int = 1) -> Tensor:
    """Which of the last ``tail`` tokens of ``ids`` ``[seq]`` end an n-gram not seen before."""
    tokens = ids.tolist()
    seen: set[tuple[int, ...]] = set()
    novel = []
    for stop in range(1, len(tokens) + 1):
        gram = tuple(tokens[max(stop - ngram, 0) : stop])
        novel.append(gram not in seen)
        seen.add(gram)
    return torch.tensor(novel[-tail:])


def tail_losses(engine: Engine, method: Method, input_ids: Tensor, tail: int) -> Tensor:
    """Negative log-likelihood in nats of the last ``tail`` tokens, fp32 ``[tail]``.

    input_ids int64 ``[1, seq]``. The rows that predict them run exact: the document without its
    last token is prefilled with a tail of ``tail``, and each tail row predicts the token after it.
    """
    _, logits = engine.prefill(input_ids[:, :-1], method, keep=tail)
    targets = input_ids[0, -tail:].to(logits.device)
    losses = F.cross_entropy(logits[0].float(), targets, reduction="none")
    return losses.cpu()


def tail_loss(engine: Engine, method: Method, input_ids: Tensor, tail: int) -> float:
    """Mean of `tail_losses`, in nats per token."""
    return float(tail_losses(engine, method, input_ids, tail).mean())
