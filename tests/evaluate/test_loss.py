"""Losses by token group against a plain call of the model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.loss import (
    LossOptions,
    novel_tokens,
    score_document,
    tail_losses,
)
from tests.evaluate.builders import EXACT, TAIL, engine, fills, random_document


@pytest.fixture
def session(seed: int) -> Any:
    return engine(seed)


def reference_losses(model: Any, ids: Tensor) -> Tensor:
    """Loss of every token but the first, from one call of the model."""
    with torch.no_grad():
        log_probs = model(ids).logits[0, :-1].double().log_softmax(-1)
    return -log_probs.gather(1, ids[0, 1:, None])[:, 0].float()


def test_exact_losses_are_the_models(session: Any) -> None:
    ids = random_document(50)
    scores = score_document(session, [EXACT, *fills(session)], ids, TAIL)
    expected = reference_losses(session.model, ids)[-TAIL:]
    torch.testing.assert_close(scores.by_method["exact"].loss, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tail_losses(session, EXACT, ids, TAIL), expected)
    assert scores.token_ids.tolist() == ids[0, -TAIL:].tolist()


def test_filled_losses_differ_and_are_those_of_the_fill(session: Any) -> None:
    ids = random_document(50)
    methods = fills(session)
    scores = score_document(session, [*methods, EXACT], ids, TAIL)
    for method in methods:
        filled = scores.by_method[method.name].loss
        torch.testing.assert_close(filled, tail_losses(session, method, ids, TAIL))
        assert not torch.allclose(filled, scores.by_method["exact"].loss, atol=1e-3)


def test_local_losses_have_the_tail_as_their_only_context(session: Any) -> None:
    """Changing the document before the tail changes no local loss; the first token is kept."""
    ids, other = random_document(50), random_document(50)
    other[:, -TAIL - 1 :] = ids[:, -TAIL - 1 :]
    for first in ([], [1]):
        a, b = (
            score_document(session, [EXACT, *fills(session)], x, TAIL, first).local_loss
            for x in (ids, other)
        )
        assert torch.equal(a, b)
        start = torch.tensor([first], dtype=torch.int64)
        alone = torch.cat([start, ids[:, -TAIL - 1 :]], dim=1)
        expected = reference_losses(session.model, alone)[-TAIL:]
        torch.testing.assert_close(a, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("margin", [1e-4, 0.02, 0.1])
def test_distant_tokens_gain_the_margin_from_the_document(session: Any, margin: float) -> None:
    ids = random_document(50)
    options = LossOptions(margin=margin)
    scores = score_document(session, [EXACT, *fills(session)], ids, TAIL, options=options)
    gain = scores.local_loss - scores.by_method["exact"].loss
    expected = [at >= TAIL // 2 and float(gain[at]) >= margin for at in range(TAIL)]
    assert scores.distant.tolist() == expected


def test_divergence_and_agreement(session: Any) -> None:
    ids = random_document(50)
    (method, _) = fills(session)
    scores = score_document(session, [EXACT, method], ids, TAIL)
    p, q = (
        session.prefill(ids[:, :-1], m, keep=TAIL)[1][0].double().softmax(-1)
        for m in (EXACT, method)
    )
    kl = (p * (p.log() - q.log())).sum(-1)
    torch.testing.assert_close(scores.by_method["identity"].kl.double(), kl, atol=1e-5, rtol=1e-4)
    agree = p.argmax(-1) == q.argmax(-1)
    assert torch.equal(scores.by_method["identity"].agree, agree)
    assert float(scores.by_method["exact"].kl.abs().max()) < 1e-6
    assert bool(scores.by_method["exact"].agree.all())


@pytest.mark.parametrize("ngram", [1, 2, 3])
def test_novel_tokens(ngram: int, seed: int) -> None:
    ids = torch.randint(0, 7, (60,))
    text = ids.tolist()
    expected = []
    for stop in range(41, 61):
        gram = text[stop - ngram : stop]
        earlier = any(text[i : i + ngram] == gram for i in range(stop - ngram))
        expected.append(not earlier)
    assert novel_tokens(ids, 20, ngram).tolist() == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [({"margin": 0.0}, "margin must be above 0 nats, got 0.0"), ({"ngram": 0}, "got 0")],
)
def test_refusals(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RidgeFillError, match=says):
        LossOptions(**options)
