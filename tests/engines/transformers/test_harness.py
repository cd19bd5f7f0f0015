"""lm-evaluation-harness: exact is its own HFLM, filled scores are those of the filled model."""

import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import PreTrainedModel

from ridgefill import FillMaps, attach, identity_maps
from ridgefill.core.errors import ModelMismatchError, RidgeFillError
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.filler import Filler
from ridgefill.engines.transformers.harness import WAYS, RidgeFillLM
from tests.engines.transformers.builders import random_maps, tiny_tokenizer
from tests.engines.transformers.families import SPLIT, build
from tests.engines.transformers.reference import BruteForce
from tests.harness_tasks import TASKS, text, write_tasks

TAIL, SINKS = 8, 2
IDENTITY = {"fill": "identity", "split": SPLIT}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("harness") / "tasks")


@pytest.fixture
def model(seed: int) -> PreTrainedModel:
    """In fp64, so that neither batches nor padding change a digit that is compared."""
    return build("llama", seed, torch.float64)


@pytest.fixture
def maps(model: PreTrainedModel, tmp_path: Path) -> str:
    random_maps(model, tail=TAIL, sinks=SINKS).save_pretrained(tmp_path / "maps")
    return str(tmp_path / "maps")


def filled(model: PreTrainedModel, **options: Any) -> RidgeFillLM:
    return RidgeFillLM(model, tokenizer=tiny_tokenizer(), **options)


def stock(model: PreTrainedModel, **options: Any) -> HFLM:
    return HFLM(model, tokenizer=tiny_tokenizer(), **options)


def samples(lm: HFLM, tasks: Path) -> dict[str, list[dict[str, Any]]]:
    """All logged samples of both tasks: documents, responses and metrics."""
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found = evaluator.evaluate(lm, task_dict=manager.load(list(TASKS)), bootstrap_iters=0)
    return found["samples"]


def ask(context: str, continuation: str) -> Instance:
    return Instance("loglikelihood", {}, (context, continuation), 0)


def requests(seed: int, sizes: list[tuple[int, int]]) -> list[Instance]:
    """Contexts and continuations of so many words."""
    draw = random.Random(seed)
    return [ask(text(draw, context), " " + text(draw, scored)) for context, scored in sizes]


def words(tokens: list[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


def encode(words: str) -> list[int]:
    return [1, *(int(word[1:]) for word in words.split())]


class Reference:
    """Log-probabilities of the filled model, computed row by row without a cache."""

    def __init__(self, model: PreTrainedModel, maps: FillMaps, plan: RowPlan) -> None:
        self.model, self.maps, self.plan = model, maps, plan

    def score(self, request: Instance, max_length: int = 10_000) -> tuple[float, bool]:
        context, continuation = (encode(part) for part in request.args)
        ids = torch.tensor([*context, *continuation[1:]][-max_length - 1 :])
        count = len(continuation) - 1
        exact = self.plan.exact_mask(torch.ones(1, len(ids) - 1, dtype=torch.bool))[0]
        total, greedy = 0.0, True
        for at in range(len(ids) - count, len(ids)):
            rows = BruteForce(self.model, self.maps, exact[:at]).logits(ids[:at])
            total += float(rows.log_softmax(-1)[ids[at]])
            greedy &= int(rows.argmax()) == int(ids[at])
        return total, greedy


def close(ours: list[Any], theirs: list[Any]) -> None:
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-9)


def test_it_is_registered_beside_the_harness_own_models() -> None:
    assert get_model("ridgefill") is RidgeFillLM
    assert get_model("hf") is HFLM


@pytest.mark.parametrize("batch_size", [1, 3])
def test_exact_is_hflm_sample_by_sample(
    model: PreTrainedModel, tasks: Path, batch_size: int
) -> None:
    lm = filled(model, batch_size=batch_size)
    assert samples(lm, tasks) == samples(stock(model, batch_size=batch_size), tasks)
    assert lm.fill_counts == {}
    assert lm.fill_info() == {"fill": "exact"}


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_tail_as_long_as_the_prompts_is_hflm_sample_by_sample(
    model: PreTrainedModel, maps: str, tasks: Path, batch_size: int
) -> None:
    exact = samples(stock(model, batch_size=batch_size), tasks)
    for fill in ({"maps": maps}, IDENTITY):
        lm = filled(model, tail=400, batch_size=batch_size, **fill)
        assert samples(lm, tasks) == exact
        assert lm.fill_counts == {**dict.fromkeys(WAYS, 0), "exact_short": 4 * 4 + 4}


def test_filled_samples_differ_where_they_are_filled(
    model: PreTrainedModel, maps: str, tasks: Path
) -> None:
    """Prompts of 20 words and more, so only continuations of twelve words run exact."""
    exact, lm = samples(stock(model), tasks), filled(model, maps=maps)
    found = samples(lm, tasks)
    assert lm.fill_counts == {
        "filled": 4 * 3 + 4,
        "exact_short": 0,
        "exact_scored": 4,
        "exact_rolling": 0,
    }
    for ours, theirs in zip(found["local_choice"], exact["local_choice"], strict=True):
        same = [a == b for a, b in zip(ours["resps"], theirs["resps"], strict=True)]
        assert same == [False, False, False, True]
    assert found["local_answer"] != exact["local_answer"]


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


@pytest.mark.parametrize("batch_size", [1, 3])
def test_generation_is_that_of_each_prompt_alone(
    model: PreTrainedModel, maps: str, seed: int, batch_size: int
) -> None:
    """A batch pads on the left; its short prompts run exact."""
    draw = random.Random(seed)
    contexts = [text(draw, count) for count in (60, 6, 45, 9, 33)]
    settings = {"until": ["w7"], "do_sample": False, "max_gen_toks": 5}
    asked = [Instance("generate_until", {}, (context, settings), 0) for context in contexts]
    lm, tokenizer = filled(model, maps=maps, batch_size=batch_size), tiny_tokenizer()
    expected = []
    for context in contexts:
        ids = torch.tensor([encode(context)])
        with attach(model, FillMaps.from_pretrained(maps)):
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False
            )
        expected.append(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))
    stops = [text.split("w7")[0] for text in expected]
    assert lm.generate_until(asked) == stops
    assert (lm.fill_counts["filled"], lm.fill_counts["exact_short"]) == (3, 2)
    exact = stock(model, batch_size=batch_size).generate_until(asked)
    assert (exact[1], exact[3]) == (stops[1], stops[3])


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


def test_the_results_say_how_requests_ran(
    model: PreTrainedModel, maps: str, tasks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lm = filled(model, maps=maps, batch_size=3)
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    with caplog.at_level(logging.WARNING, "ridgefill"):
        found = evaluator.simple_evaluate(lm, tasks=[TASKS[0]], task_manager=manager)
    told = found["config"]["ridgefill"]
    assert told["requests"] == lm.fill_counts
    assert (told["fill"], told["maps"], told["tail"]) == ("ridge", "maps", TAIL)
    lines = [record.message for record in caplog.records if record.name.startswith("ridgefill")]
    assert lines == [
        "ridgefill: 16 requests: 12 filled; 4 exact, more scored tokens than the tail holds"
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fill": "mean"}, "'mean'"),
        ({"fill": "identity"}, "needs a split"),
        ({"fill": "identity", "split": 2, "maps": "maps"}, "takes no maps"),
        ({"split": 2}, "split 2"),
        ({"tail": 4}, "tail and sinks"),
        ({"maps": "maps", "tail": 0}, "tail"),
        ({"maps": "maps", "sinks": -1}, "-1"),
        ({"maps": "no/such/maps"}, "no/such/maps"),
    ],
)
def test_bad_arguments_are_refused_before_a_model_is_loaded(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(RidgeFillError, match=says):
        RidgeFillLM("no/such/model", **options)


def test_maps_of_another_model_are_refused(maps: str, seed: int) -> None:
    other = build("llama", seed + 1, torch.float64)
    with pytest.raises(ModelMismatchError):
        filled(other, maps=maps)
    assert filled(other, maps=maps, strict=False).fill_counts == dict.fromkeys(WAYS, 0)
