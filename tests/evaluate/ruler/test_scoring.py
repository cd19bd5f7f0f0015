"""The published scoring rules on cases made by hand, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.evaluate import ruler
from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler.scoring import clean, string_match_all, string_match_part


@pytest.mark.parametrize(
    ("answer", "references", "score", "each"),
    [
        ("The numbers are 12, 34 and 56.", ["12", "34", "56", "78"], 0.75, [1, 1, 1, 0]),
        ("it is QUIET-River", ["quiet-river"], 1.0, [1]),
        ("Paris", ["PARIS"], 1.0, [1]),
        ("123456", ["1234567"], 0.0, [0]),
        ("x1234567y", ["1234567"], 1.0, [1]),  # a substring is enough, as published
        ("", ["a"], 0.0, [0]),
        ("b a", ["a", "b"], 1.0, [1, 1]),
    ],
)
def test_every_reference(answer: str, references: list[str], score: float, each: list[int]) -> None:
    found, by_reference = string_match_all(answer, references)
    assert (found, list(by_reference)) == (score, each)


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("in the year 1912", ["1912", "the year 1912"], 1.0),
        ("1912", ["1912", "the year 1912"], 1.0),
        ("in 1913", ["1912", "the year 1912"], 0.0),
        ("the Eiffel tower.", ["Eiffel Tower"], 1.0),
    ],
)
def test_any_reference(answer: str, references: list[str], score: float) -> None:
    found, by_reference = string_match_part(answer, references)
    assert found == score
    assert list(by_reference) == [score] * len(references)


def test_control_characters_are_line_breaks() -> None:
    assert clean("\n a\x00b\tc \n") == "a\nb\nc"


def test_only_the_questions_are_scored_in_part(tokenizer: PreTrainedTokenizerFast) -> None:
    (several,) = ruler.make_tasks(["niah_multivalue"], Prompter(tokenizer))
    sample = several.sample(1500, 0)
    assert several.score(" and ".join(sample.references), sample)[0] == 1.0
    assert several.score(sample.references[2], sample) == (0.25, [0, 0, 1, 0])


def refuse(says: str, tokenizer: PreTrainedTokenizerFast, *names: str, **options: Any) -> None:
    with pytest.raises(RidgeFillError, match=says):
        ruler.make_tasks(names, Prompter(tokenizer), **options)


def test_refusals(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    refuse("unknown RULER task 'niah': use niah_single_1", tokenizer, "niah")
    refuse("qa_1 needs the file of SQuAD.*--squad", tokenizer, "qa_1")
    refuse("qa_2 needs the file of HotpotQA.*--hotpotqa", tokenizer, "qa_2")
    refuse("data.json is no JSON", tokenizer, "qa_1", squad=file)
    file.write_text("{")
    refuse("data.json is no JSON", tokenizer, "qa_2", hotpotqa=file)
    file.write_bytes(b"\xff\xfe{}")
    refuse("data.json is not UTF-8", tokenizer, "qa_1", squad=file)
    for layout in ({"data": [{"paragraphs": [{}]}]}, [1], {"x": 1}):
        file.write_text(json.dumps(layout))
        refuse("data.json is not laid out as SQuAD", tokenizer, "qa_1", squad=file)
        refuse("data.json is not laid out as HotpotQA", tokenizer, "qa_2", hotpotqa=file)
    file.write_text(json.dumps({"data": []}))
    refuse("holds no question with an answer", tokenizer, "qa_1", squad=file)


def test_essays_without_words(tokenizer: PreTrainedTokenizerFast) -> None:
    (task,) = ruler.make_tasks(["niah_single_2"], Prompter(tokenizer), essay_texts=[" \n "])
    with pytest.raises(NotEnoughTextError, match="the essay texts hold no words"):
        task.sample(1500, 0)


def test_labels_of_haystacks(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "One day it rained. Then it did not. " * 400
    prompter = Prompter(tokenizer)
    (own,) = ruler.make_tasks(["niah_single_2"], prompter, essay_texts=[text])
    (bundled,) = ruler.make_tasks(["niah_single_2"], prompter)
    (noise,) = ruler.make_tasks(["niah_single_1"], prompter)
    labels = [task.sample(1200, 0).facts["haystack"] for task in (own, bundled, noise)]
    assert labels == ["own text", "bundled text", "noise"]
