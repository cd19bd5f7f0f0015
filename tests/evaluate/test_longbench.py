"""LongBench v2 read back from its prompts: template, cuts, order, answers and groups."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.longbench import (
    NEW_TOKENS,
    LongBench,
    extract_answer,
    make_task,
    prompt,
    summary,
)
from ridgefill.evaluate.longbenchrecords import Record
from ridgefill.evaluate.prompting import Prompter
from tests.evaluate.longbench_files import entry, write

PUBLISHED = """Please read the following text and answer the question below.

<text>
{context}
</text>

What is the correct answer to this question: {question}
Choices:
(A) {choice_A}
(B) {choice_B}
(C) {choice_C}
(D) {choice_D}

Format your response as follows: "The correct answer is (insert answer here)"."""
TURN = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}<|assistant|>"
KINDS = ("bare", "bos", "chat")


def make_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """One token a byte, so that every text comes back as it was."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    if kind == "bos":
        tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        chat_template=TURN if kind == "chat" else None,
    )


@pytest.fixture(scope="module")
def prompters() -> dict[str, Prompter]:
    return {kind: Prompter(make_tokenizer(kind)) for kind in KINDS}


@pytest.fixture(params=KINDS)
def prompter(request: pytest.FixtureRequest, prompters: dict[str, Prompter]) -> Prompter:
    return prompters[request.param]


def one(prompter: Prompter, tmp_path: Path, **fields: Any) -> LongBench:
    return make_task(write(tmp_path / "one.json", [entry(0, **fields)]), prompter)


def bare(fields: dict[str, Any]) -> dict[str, str]:
    return {name: text.strip() for name, text in fields.items()}


def wrapped(prompter: Prompter, text: str) -> str:
    """The text that the prompt's tokens stand for, beginning token included."""
    if prompter.chat:
        return f"<|user|>\n{text}\n<|assistant|>"
    return "<s>" + text if prompter.tokenizer("")["input_ids"] else text


def test_prompts_are_as_published(prompter: Prompter, tmp_path: Path) -> None:
    """Placeholders in a document, and braces, are text."""
    context = entry(0)["context"] + "$Q$ {question} {0} $C_A$"
    sample = one(prompter, tmp_path, context=context).sample(6000, 0)
    published = PUBLISHED.replace("{context}", "CONTEXT").format(**bare(entry(0)))
    text = prompter.tokenizer.decode(sample.input_ids[0])
    assert text == wrapped(prompter, published.replace("CONTEXT", context))
    assert sample.references == ("A",)
    assert (sample.task, sample.new_tokens, sample.spans) == ("longbench_v2", 128, ())


@pytest.mark.parametrize("length", [1024, 1025, 2047])
def test_cuts_are_exact_and_in_the_middle(prompter: Prompter, tmp_path: Path, length: int) -> None:
    task = one(prompter, tmp_path)
    whole = task.sample(100_000, 0).input_ids[0].tolist()
    sample = task.sample(length, 0)
    room = length - NEW_TOKENS
    front = room // 2
    assert sample.input_ids[0].tolist() == whole[:front] + whole[len(whole) - (room - front) :]
    assert sample.input_ids.shape == (1, room)
    assert sample.facts["truncated"] is True


def test_a_prompt_that_fits_is_not_cut(prompter: Prompter, tmp_path: Path) -> None:
    task = one(prompter, tmp_path, words=100)
    whole = task.sample(100_000, 0)
    tokens = whole.input_ids.shape[1]
    for length, cut in ((tokens + NEW_TOKENS, False), (tokens + NEW_TOKENS - 1, True)):
        sample = task.sample(length, 0)
        assert sample.facts["truncated"] is cut
        assert sample.input_ids.shape[1] + sample.new_tokens == length
        assert sample.facts["document_tokens"] == len(
            entry(0, words=100)["context"].strip().encode()
        )


def test_the_cut_moves_off_the_question(prompter: Prompter, tmp_path: Path) -> None:
    """Half of the budget would not hold the choices, so only the document gives way."""
    task = one(prompter, tmp_path, choice_A="a" * 600)
    overhead = task.sample(100_000, 0)
    fixed = overhead.input_ids.shape[1] - overhead.facts["document_tokens"]
    sample = task.sample(fixed + NEW_TOKENS + 10, 0)
    text = prompter.tokenizer.decode(sample.input_ids[0])
    kept = entry(0)["context"].encode()[:10].decode()
    fields = {**bare(entry(0)), "choice_A": "a" * 600, "context": kept}
    assert text == wrapped(prompter, PUBLISHED.format(**fields))
    with pytest.raises(NotEnoughTextError, match=r"longbench_v2/\d+/0: .* larger length"):
        task.sample(fixed + NEW_TOKENS - 1, 0)


def test_a_long_beginning_is_kept_too(prompters: dict[str, Prompter]) -> None:
    """The chat template's part before the document is longer than half of the budget."""
    tokenizer = make_tokenizer("chat")
    tokenizer.chat_template = "s" * 700 + TURN
    record = Record("1", "d", "s", "easy", "short", "q", ("1", "2", "3", "4"), "B", "c" * 900)
    sample = LongBench([record], Prompter(tokenizer)).sample(1200 + NEW_TOKENS, 0)
    text = tokenizer.decode(sample.input_ids[0])
    assert len(text) == 1200
    assert text.startswith("s" * 700 + "<|user|>\nPlease read")
    assert text.endswith("\n<|assistant|>")
    whole = prompt(replace(record, context="C"))
    assert all(part in text for part in whole.split("C", 1))


def test_facts_tell_the_groups(prompter: Prompter, tmp_path: Path) -> None:
    facts = one(prompter, tmp_path).sample(2048, 0).facts
    assert {name: facts[name] for name in ("id", "domain", "sub_domain")} == {
        **{"id": "id-000", "domain": "Single-Document QA", "sub_domain": "Financial"}
    }
    assert (facts["difficulty"], facts["length"]) == ("easy", "short")
    json.dumps(dict(facts))


def test_samples_are_a_seeded_order_of_the_records(
    prompters: dict[str, Prompter], tmp_path: Path
) -> None:
    """Each record once, the same in any process and for any order in the file."""
    entries = [entry(number, words=3) for number in range(24)]
    source = write(tmp_path / "a.json", entries)
    turned = write(tmp_path / "b.json", entries[::-1])

    def order(source: str, **options: int) -> list[str]:
        task = make_task(source, prompters["bare"], **options)
        return [task.sample(4096, index).facts["id"] for index in range(24)]

    assert sorted(order(source)) == [e["_id"] for e in entries]
    assert order(source) == order(turned) == order(source, seed=0) != order(source, seed=1)
    assert order(source)[:6] == ["id-001", "id-012", "id-022", "id-008", "id-003", "id-009"]


def test_there_are_only_so_many_samples(prompter: Prompter, tmp_path: Path) -> None:
    with pytest.raises(NotEnoughTextError, match=r"1 records, but sample 1 .* fewer samples"):
        one(prompter, tmp_path).sample(2048, 1)


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("The correct answer is (B).", "B"),
        ("The correct answer is B", "B"),
        ("**The correct answer is (C)**", "C"),
        ("The correct answer is **(C)**", "C"),
        ("The correct answer is: (C)", None),
        ("So:\n\nThe correct answer is (D) because of (A).", "D"),
        ("The correct answer is A. No, The correct answer is (B).", "B"),
        ("The correct answer is (A). The correct answer is (B).", "A"),
        ("The correct answer is (a)", None),
        ("the correct answer is (A)", None),
        ("The correct answer is (E)", None),
        ("The correct answer is Apples", "A"),
        ("(A)", None),
        ("", None),
    ],
)
def test_answers_are_found_by_the_published_rule(answer: str, letter: str | None) -> None:
    assert extract_answer(answer) == letter


def test_scores_are_one_or_nothing(prompter: Prompter, tmp_path: Path) -> None:
    task = one(prompter, tmp_path)
    sample = task.sample(2048, 0)
    for answer, score in (
        ("The correct answer is (A)", 1.0),
        ("The correct answer is (B)", 0.0),
        ("No idea", 0.0),
    ):
        assert task.score(answer, sample) == (score, [score])


def test_summary_by_difficulty_and_length() -> None:
    records = [
        {
            "task": "longbench_v2",
            "facts": {"difficulty": difficulty, "length": length},
            "plans": {"exact": {"score": exact}, "filled": {"score": filled}},
        }
        for difficulty, length, exact, filled in (
            ("easy", "short", 1.0, 1.0),
            ("hard", "short", 1.0, 0.0),
            ("hard", "medium", 0.0, 0.0),
            ("easy", "short", 1.0, 0.0),
        )
    ]
    other = {"task": "vt", "facts": {}, "plans": {"exact": {"score": 0.5}}}
    found = summary([*records, other, {"kind": "loss"}])
    assert found["exact"] == {
        "overall": {"accuracy": 0.75, "n": 4},
        "easy": {"accuracy": 1.0, "n": 2},
        "hard": {"accuracy": 0.5, "n": 2},
        "short": {"accuracy": 1.0, "n": 3},
        "medium": {"accuracy": 0.0, "n": 1},
        "long": {"accuracy": None, "n": 0},
    }
    assert found["filled"]["overall"] == {"accuracy": 0.25, "n": 4}
    assert summary([other]) == {}
