"""Log-likelihoods of lm-evaluation-harness: those of the filled model, or exact and counted."""

import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from transformers import PreTrainedModel

from ridgefill import FillMaps, identity_maps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.filler import Filler
from ridgefill.engines.transformers.harness import WAYS
from tests.engines.transformers.families import SPLIT
from tests.engines.transformers.harness_builders import (
    IDENTITY,
    SINKS,
    TAIL,
    Reference,
    ask,
    close,
    encode,
    filled,
    make_model,
    requests,
    save_maps,
    stock,
)
from tests.engines.transformers.reference import BruteForce
from tests.harness_tasks import text


@pytest.fixture
def model(seed: int) -> PreTrainedModel:
    return make_model(seed)


@pytest.fixture
def maps(model: PreTrainedModel, tmp_path: Path) -> str:
    return save_maps(model, tmp_path)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_log_likelihoods_are_those_of_the_filled_model(
    model: PreTrainedModel, maps: str, seed: int, batch_size: int
) -> None:
    """In the order of the requests, whatever their lengths."""
    asked = requests(seed, [(40, 1), (30, TAIL), (52, 3), (25, 2), (40, 5)])
    lm = filled(model, maps=maps, batch_size=batch_size)
    reference = Reference(model, FillMaps.from_pretrained(maps), RowPlan(TAIL, SINKS))
    close(lm.loglikelihood(asked), [reference.score(request) for request in asked])
    assert lm.fill_counts["filled"] == len(asked)


def test_identity_fill_and_plan_options(model: PreTrainedModel, seed: int) -> None:
    asked = requests(seed, [(40, 2), (33, 4)])
    lm = filled(model, tail=5, sinks=1, **IDENTITY)
    reference = Reference(model, identity_maps(model, SPLIT), RowPlan(5, 1))
    close(lm.loglikelihood(asked), [reference.score(request) for request in asked])
    assert lm.fill_info()["requests"]["filled"] == 2
    assert [lm.fill_info()[name] for name in ("fill", "split", "tail", "sinks")] == [
        *("identity", SPLIT, 5, 1)
    ]


def test_greedy_continuations_are_told_from_others(model: PreTrainedModel, maps: str) -> None:
    context = text(random.Random(1), 50)
    ids = torch.tensor([encode(context)])
    reference = Reference(model, FillMaps.from_pretrained(maps), RowPlan(TAIL, SINKS))
    exact = reference.plan.exact_mask(torch.ones_like(ids, dtype=torch.bool))[0]
    best = int(BruteForce(model, reference.maps, exact).logits(ids[0])[3:].argmax()) + 3
    asked = [ask(context, f" w{best}"), ask(context, f" w{best % 90 + 3}")]
    found = filled(model, maps=maps).loglikelihood(asked)
    assert found == [
        (pytest.approx(value), greedy) for value, greedy in map(reference.score, asked)
    ]
    assert not found[1][1]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_requests_that_cannot_be_filled_run_exact(
    model: PreTrainedModel, maps: str, seed: int, batch_size: int
) -> None:
    """A continuation of one token more than the tail, and prompts within sinks + tail."""
    sizes = [(60, TAIL + 1), (5, 4), (TAIL + SINKS - 1, 1), (TAIL + SINKS, 1), (3, TAIL + 1)]
    asked = requests(seed, sizes)
    lm = filled(model, maps=maps, batch_size=batch_size)
    ours, theirs = lm.loglikelihood(asked), stock(model).loglikelihood(asked)
    close(ours[:3], theirs[:3])
    assert ours[3] != theirs[3]
    counts = {"filled": 1, "exact_short": 2, "exact_scored": 2, "exact_rolling": 0}
    assert lm.fill_counts == counts


def test_rolling_likelihoods_run_exact(model: PreTrainedModel, maps: str, seed: int) -> None:
    """Also windows of which only the last tokens are scored."""
    draw = random.Random(seed)
    asked = [Instance("loglikelihood_rolling", {}, (text(draw, n),), 0) for n in (70, 4)]
    lm = filled(model, maps=maps, max_length=48, batch_size=2)
    exact = stock(model, max_length=48, batch_size=2).loglikelihood_rolling(asked)
    assert lm.loglikelihood_rolling(asked) == exact
    assert lm.fill_counts == {**dict.fromkeys(WAYS, 0), "exact_rolling": 2}


def test_long_prompts_lose_their_first_tokens_as_in_hflm(
    model: PreTrainedModel, maps: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    asked = requests(seed, [(60, 2), (12, 3), (60, TAIL + 2)])
    lm = filled(model, maps=maps, max_length=30)
    reference = Reference(model, FillMaps.from_pretrained(maps), RowPlan(TAIL, SINKS))
    with caplog.at_level(logging.WARNING, "ridgefill"):
        found = lm.loglikelihood(asked)
    close(found[:2], [reference.score(request, 30) for request in asked[:2]])
    close(found[2:], stock(model, max_length=30).loglikelihood(asked)[2:])
    assert "1 prompts are longer than the model's maximum of 30 tokens" in caplog.text


def test_one_prompt_answers_all_that_differ_in_their_last_token(
    model: PreTrainedModel, maps: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    context = text(draw, 40)
    asked = [ask(context, f" {word}") for word in ("w11", "w12", "w13")]
    asked += [ask(context, f" w11 {word}") for word in ("w20", "w21")]
    asked.append(ask(context + " w11", " w20"))
    found, prefills = [], []
    inner = Filler.prefill

    def counted(*arguments: Any, **options: Any) -> Any:
        prefills.append(1)
        return inner(*arguments, **options)

    monkeypatch.setattr(Filler, "prefill", counted)
    for share in (True, False):
        found.append(filled(model, maps=maps, logits_cache=share).loglikelihood(asked))
        prefills.append(0)
    assert prefills == [1] * 2 + [0] + [1] * 6 + [0]
    close(*found)


def test_answers_go_to_the_cache_of_the_harness(
    model: PreTrainedModel, maps: str, seed: int
) -> None:
    asked = requests(seed, [(40, 1), (40, TAIL + 1), (4, 1)])
    lm, kept = filled(model, maps=maps), {}

    class Hook:
        def add_partial(self, kind: str, texts: tuple[str, str], answer: Any) -> None:
            kept[kind, texts] = answer

    lm.set_cache_hook(Hook())
    found = lm.loglikelihood(asked)
    assert kept == {
        ("loglikelihood", request.args): answer
        for request, answer in zip(asked, found, strict=True)
    }
