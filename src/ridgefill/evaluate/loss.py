"""Loss on a document's tail, whose context lies in the filled region."""

import torch
from torch import Tensor

from ridgefill.core.engine import Engine, Method


def tail_losses(engine: Engine, method: Method, input_ids: Tensor, tail: int) -> Tensor:
    """Negative log-likelihood in nats of the last ``tail`` tokens, fp32 ``[tail]``.

    input_ids int64 ``[1, seq]``. The rows that predict them run exact: the document without its
    last token is prefilled with a tail of ``tail``, and each tail row predicts the token after it.
    """
    _, logits = engine.prefill(input_ids[:, :-1], method, keep=tail)
    targets = input_ids[0, -tail:].to(logits.device)
    losses = torch.nn.functional.cross_entropy(logits[0].float(), targets, reduction="none")
    return losses.cpu()


def tail_loss(engine: Engine, method: Method, input_ids: Tensor, tail: int) -> float:
    """Mean of `tail_losses`, in nats per token."""
    return float(tail_losses(engine, method, input_ids, tail).mean())
