"""Fitting a prompt to its budget, and what gives way where the published rules do not fit."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate import ruler
from ridgefill.evaluate.prompting import Encoded, Prompter
from ridgefill.evaluate.ruler.fitting import Draft, Plan, fit, generator
from ridgefill.evaluate.ruler.lexicon import words
from ridgefill.evaluate.ruler.tracking import chain
from tests.evaluate.ruler import files


class Counting(Prompter):
    """A prompt of n units has ``tokens(n)`` tokens."""

    def __init__(self, tokens: Callable[[int], int]) -> None:
        self.tokens, self.calls = tokens, 0

    def encode(self, text: str, answer_prefix: str = "") -> Encoded:
        self.calls += 1
        return Encoded(text, torch.zeros(1, self.tokens(int(text)), dtype=torch.long), (), 0)


@pytest.mark.parametrize(
    ("tokens", "calls"),
    [
        (lambda n: 50 + n, 6),
        (lambda n: 50 + 21 * n, 6),
        (lambda n: 50 + 3 * n // 7, 6),
        (lambda n: int(40 * math.sqrt(n)), 24),
        (lambda n: 50 + n // 90 * 100, 24),
        (lambda n: 50 + n * n // 400, 24),
        (lambda n: 60 if n < 700 else 5000, 24),
    ],
)
def test_the_largest_draft_that_fits(tokens: Callable[[int], int], calls: int) -> None:
    most = 8000
    plan = Plan(lambda draw, units: Draft(str(units), "", ()), 1, most)
    for room in (59, 60, 61, 700, 2000, 4999):
        prompter = Counting(tokens)
        if tokens(1) > room:
            continue
        found = fit(prompter, [plan], lambda: generator(0), room, "x")
        assert tokens(found.units) <= room
        assert found.units == most or tokens(found.units + 1) > room
        assert prompter.calls <= calls


def characters() -> PreTrainedTokenizerFast:
    """One token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_common_words_give_way_to_the_budget(seed: int) -> None:
    """With a token per character the published list of 4096 tokens has no room for its words."""
    (task,) = ruler.make_tasks(["cwe"], Prompter(characters()), seed=seed)
    facts = [task.sample(length, 0).facts for length in (1600, 4096, 8192)]
    assert [(f["often"], f["seldom"]) for f in facts] == [(3, 1), (6, 1), (30, 3)]


@pytest.mark.parametrize("name", ruler.TASKS[:10])
def test_a_token_per_character(name: str, seed: int) -> None:
    (task,) = ruler.make_tasks([name], Prompter(characters()), seed=seed)
    sample = task.sample(3000, 0)
    assert 2600 < sample.input_ids.shape[1] + sample.new_tokens <= 3000


def test_essays_that_end_too_soon(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int
) -> None:
    text = "One day it rained. Then it did not. " * 100
    (task,) = ruler.make_tasks(
        ["niah_single_2"], Prompter(tokenizers["bytes"]), seed=seed, essay_texts=[text, text]
    )
    task.sample(1024, 0)
    with pytest.raises(NotEnoughTextError, match="niah_single_2/8000/0: the essay texts end after"):
        task.sample(8000, 0)


@pytest.mark.parametrize("name", ["qa_1", "qa_2"])
def test_questions_whose_documents_do_not_fit_are_passed_over(
    name: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    """They come back at a larger length."""
    file = {"qa_1": files.squad, "qa_2": files.hotpotqa}[name](tmp_path / "data.json", seed)
    data = json.loads(file.read_text())
    if name == "qa_1":
        data["data"] = data["data"][:1]
        data["data"][0]["paragraphs"][2]["context"] += " far too long" * 500
    else:
        data = data[:4]
        data[2]["context"][0][1].append(" far too long" * 500)
    total = 4
    file.write_text(json.dumps(data))
    key = {"qa_1": "squad", "qa_2": "hotpotqa"}[name]
    prompter = Prompter(tokenizers["bytes"])
    (task,) = ruler.make_tasks([name], prompter, seed=seed, **{key: file})  # type: ignore[arg-type]
    short = {task.sample(1024, index).references for index in range(total - 1)}
    assert len(short) == total - 1
    with pytest.raises(NotEnoughTextError, match=f"of {total} questions.* {total - 1} fit"):
        task.sample(1024, total - 1)
    (again,) = ruler.make_tasks([name], prompter, seed=seed, **{key: file})  # type: ignore[arg-type]
    late, first = again.sample(1024, 2), task.sample(1024, 2)
    assert late.input_ids.tolist() == first.input_ids.tolist()
    everything = {task.sample(8000, index).references for index in range(total)}
    assert len(everything) == total


def test_hotpotqa_keeps_the_supporting_documents(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    """With room for two of a question's four documents, they are the ones it is about."""
    file = files.hotpotqa(tmp_path / "data.json", seed)
    tokenizer = tokenizers["bytes"]
    (task,) = ruler.make_tasks(["qa_2"], Prompter(tokenizer), seed=seed, hotpotqa=file)
    for index in range(4):
        whole = task.sample(1500, index)
        gold = sum(span.stop - span.start for span in whole.spans)
        sample = task.sample(gold + 200, index)
        text = tokenizer.decode(sample.input_ids[0])
        assert sample.facts["documents"] < 4
        number = sample.references[0].removeprefix("answer")
        assert f"Title {number} 0\n" in text
        assert f"Title {number} 2\n" in text
        assert len(sample.spans) == 2


def test_the_example_never_shows_the_value_asked_for(seed: int) -> None:
    shown = " ".join(str(value) for value in range(20_000, 100_000))
    for index in range(5):
        _, _, value = chain(generator(seed, index), 5, shown)
        assert 10_000 <= int(value) < 20_000


def test_words_differ_whatever_their_case() -> None:
    found = words("noun", "adjective", "verb")
    assert len({word.casefold() for word in found}) == len(found) > 8000
