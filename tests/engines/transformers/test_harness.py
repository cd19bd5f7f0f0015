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

from ridgefill import FillMaps, attach
from ridgefill.core.errors import ModelMismatchError, RidgeFillError
from ridgefill.engines.transformers.harness import WAYS, RidgeFillLM
from tests.engines.transformers.builders import tiny_tokenizer
from tests.engines.transformers.families import build
from tests.engines.transformers.harness_builders import (
    IDENTITY,
    TAIL,
    encode,
    filled,
    make_model,
    save_maps,
    stock,
)
from tests.harness_tasks import TASKS, text, write_tasks


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("harness") / "tasks")


@pytest.fixture
def model(seed: int) -> PreTrainedModel:
    return make_model(seed)


@pytest.fixture
def maps(model: PreTrainedModel, tmp_path: Path) -> str:
    return save_maps(model, tmp_path)


def samples(lm: HFLM, tasks: Path) -> dict[str, list[dict[str, Any]]]:
    """All logged samples of both tasks: documents, responses and metrics."""
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found = evaluator.evaluate(lm, task_dict=manager.load(list(TASKS)), bootstrap_iters=0)
    return found["samples"]


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
