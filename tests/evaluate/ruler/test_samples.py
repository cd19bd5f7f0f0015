"""Every task, three tokenizers: budgets, places of the answers, seeds, distractors."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate import ruler
from ridgefill.evaluate.prompting import Prompter
from ridgefill.evaluate.ruler import lexicon
from ridgefill.evaluate.tasks import Sample
from tests.evaluate.ruler import files

NEW_TOKENS = {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}
LENGTHS = (1024, 4500)


@pytest.fixture(params=ruler.TASKS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(
    names: Any, tokenizer: PreTrainedTokenizerFast, folder: Path, seed: int, chat: str = "auto"
) -> list[Any]:
    return ruler.make_tasks(
        names,
        Prompter(tokenizer, chat),
        seed=seed,
        squad=files.squad(folder / "squad.json", seed),
        hotpotqa=files.hotpotqa(folder / "hotpot.json", seed),
    )


def text_of(tokenizer: PreTrainedTokenizerFast, sample: Sample) -> str:
    return str(tokenizer.decode(sample.input_ids[0]))


def bare(text: str) -> str:
    """Without what a tokenizer may change: case and white space."""
    return re.sub(r"\s", "", text).lower()


def most_left(name: str, tokenizer: PreTrainedTokenizerFast) -> int:
    """Tokens of the largest unit that a task's haystack grows by."""
    uuid = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    unit = {
        "niah_single_1": "The grass is green. The sky is blue. The sun is yellow. Here we go. "
        "There and back again.\n",
        "niah_multikey_2": "One of the special magic numbers for x-x is: 1234567.\n"
        + "extra word ",
        "niah_multikey_3": f"One of the special magic uuids for {uuid} is: {uuid}.\n"
        + "extra word ",
        "cwe": "1234. extraordinary " * 4,
        "fwe": "abcdef " * 16,  # another count is another order, so other tokens
        "qa_1": files.longest_document(),
        "qa_2": files.longest_document(),
    }
    unit["vt"] = unit["niah_single_1"]
    return len(tokenizer(unit.get(name, "extraordinary-words "))["input_ids"]) + 10


@pytest.mark.parametrize("length", LENGTHS)
def test_within_the_budget_and_near_it(
    name: str, length: int, tokenizer: PreTrainedTokenizerFast, seed: int, tmp_path: Path
) -> None:
    (task,) = make([name], tokenizer, tmp_path, seed)
    for index in range(3):
        sample = task.sample(length, index)
        rows = sample.input_ids.shape
        assert rows[0] == 1
        assert sample.new_tokens == NEW_TOKENS.get(name, 128)
        left = length - rows[1] - sample.new_tokens
        assert 0 <= left <= most_left(name, tokenizer)
        assert sample.id == f"{name}/{length}/{index}"


def test_answers_lie_where_the_record_says(
    name: str, tokenizer: PreTrainedTokenizerFast, seed: int, tmp_path: Path
) -> None:
    (task,) = make([name], tokenizer, tmp_path, seed)
    sample = task.sample(2500, 1)
    for span in sample.spans:
        held = tokenizer.decode(sample.input_ids[0, span.start : span.stop])
        told = bare(sample.references[span.reference]) in bare(held)
        assert told or name == "qa_2", (span, held)
        most = 1500 if name.startswith("qa_") else 220 if name.startswith("niah_") else 40
        assert len(held) < most
    if name in ("cwe", "fwe"):
        assert sample.spans == ()
    elif name != "qa_2":
        assert {span.reference for span in sample.spans} == set(range(len(sample.references)))
    else:
        held = "".join(
            tokenizer.decode(sample.input_ids[0, span.start : span.stop]) for span in sample.spans
        )
        assert bare(sample.references[0]) in bare(held)
    assert len(sample.facts["depths"]) == len(sample.spans)
    assert all(0 <= depth < 1 for depth in sample.facts["depths"])


def test_one_seed_one_sample(
    name: str, tokenizer: PreTrainedTokenizerFast, seed: int, tmp_path: Path
) -> None:
    (task,) = make([name], tokenizer, tmp_path, seed)
    (again,) = make([name], tokenizer, tmp_path, seed)
    first = again.sample(1500, 2)
    again.sample(1800, 0)
    for other in (again.sample(1500, 2), task.sample(1500, 2)):
        assert other.input_ids.tolist() == first.input_ids.tolist()
        assert other.references == first.references
        assert (other.spans, other.facts) == (first.spans, first.facts)
    assert task.sample(1500, 3).input_ids.tolist() != first.input_ids.tolist()
    (reseeded,) = make([name], tokenizer, tmp_path, seed + 1)
    assert reseeded.sample(1500, 2).input_ids.tolist() != first.input_ids.tolist()


def test_order_and_choice_of_tasks_do_not_matter(
    tokenizer: PreTrainedTokenizerFast, seed: int, tmp_path: Path
) -> None:
    names = list(ruler.TASKS)
    alone = {n: make([n], tokenizer, tmp_path, seed)[0].sample(1500, 0) for n in names}
    random.Random(seed).shuffle(names)
    for task in make(names, tokenizer, tmp_path, seed):
        assert task.sample(1500, 0).input_ids.tolist() == alone[task.name].input_ids.tolist()


@pytest.mark.parametrize("kind", [n for n in ruler.TASKS if n.startswith("niah")])
def test_needles_and_their_distractors(
    kind: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    """Read back from the text: each key has its own values, and no value is hidden twice."""
    tokenizer = tokenizers["bytes"]
    (task,) = make([kind], tokenizer, tmp_path, seed)
    for index in range(4):
        sample = task.sample(3000, index)
        text = text_of(tokenizer, sample)
        found = re.findall(r"special magic (?:numbers|uuids) for (.+?) is: (\S+)\.", text)
        values = [value for _, value in found]
        assert len(set(values)) == len(values)
        asked = sample.facts["queries"]
        answers = [value for key in asked for k, value in found if k == key]
        assert sorted(answers) == sorted(sample.references)
        counts = {
            "niah_multikey_1": (4, 1),
            "niah_multivalue": (4, 4),
            "niah_multiquery": (4, 4),
        }
        if kind in ("niah_multikey_2", "niah_multikey_3"):
            assert len(found) > 20
            assert len(sample.references) == 1
        else:
            assert (len(found), len(sample.references)) == counts.get(kind, (1, 1))
        pattern = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
        uuids = kind in ("niah_single_3", "niah_multikey_3")
        assert all(re.fullmatch(pattern if uuids else r"\d{7}", value) for value in values)


@pytest.mark.parametrize("kind", ["niah_multikey_1", "niah_multivalue"])
def test_keys_and_values_are_drawn_until_they_differ(
    kind: str,
    tokenizers: dict[str, PreTrainedTokenizerFast],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With five keys and five values to choose from, chance alone would often repeat one."""
    few = {
        "words": lambda draw: draw.choice(["a-b", "c-d", "e-f", "g-h", "i-j"]),
        "numbers": lambda draw: str(draw.randint(1_000_000, 1_000_004)),
    }
    monkeypatch.setattr(lexicon, "KINDS", few)
    (task,) = ruler.make_tasks([kind], Prompter(tokenizers["bytes"]), seed=seed)
    for index in range(8):
        text = text_of(tokenizers["bytes"], task.sample(1024, index))
        found = re.findall(r"special magic numbers for (\S+) is: (\d+)\.", text)
        assert len({value for _, value in found}) == 4
        assert len({key for key, _ in found}) == (4 if kind == "niah_multikey_1" else 1)


def test_needle_depths_cover_the_prompt(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    for kind in ("niah_single_1", "niah_single_2"):
        (task,) = make([kind], tokenizers["bytes"], tmp_path, seed)
        depths = [task.sample(1024, index).facts["depths"][0] for index in range(40)]
        assert min(depths) < 0.25
        assert max(depths) > 0.7
        assert 0.27 < sum(depths) / 40 < 0.7


def test_variables_form_one_chain(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    (task,) = make(["vt"], tokenizers["bytes"], tmp_path, seed)
    for index in range(4):
        sample = task.sample(2500, index)
        text = text_of(tokenizers["bytes"], sample)
        worked, question = text.split("\n\nMemorize and track")[0], text
        assert re.search(r"they are: ([A-Z]{3} ){4}[A-Z]{3}", worked)
        value = sample.facts["value"]
        first = re.findall(rf"VAR ([A-Z]{{5}}) = {value}", question)
        chain = list(first)
        statements = re.findall(r"VAR ([A-Z]{5}) = VAR ([A-Z]{5})", question)
        links = {old: new for new, old in statements}
        while chain[-1] in links:
            chain.append(links[chain[-1]])
        assert tuple(chain) == sample.references
        assert len(set(chain)) == 5
        starts = [span.start for span in sample.spans]
        assert starts == sorted(starts)
        assert text.endswith("they are:")


@pytest.mark.parametrize(("length", "often", "seldom"), [(2000, 6, 1), (6000, 30, 3)])
def test_common_words_are_the_most_common(
    length: int,
    often: int,
    seldom: int,
    tokenizers: dict[str, PreTrainedTokenizerFast],
    seed: int,
    tmp_path: Path,
) -> None:
    (task,) = make(["cwe"], tokenizers["bytes"], tmp_path, seed)
    sample = task.sample(length, 0)
    text = text_of(tokenizers["bytes"], sample)
    asked = text.split("Below is a numbered list")[2].split("\nQuestion")[0]
    listed = re.findall(r"\d+\. ([^\d]+?)(?= \d+\.|$)", asked.split("\n", 1)[1])
    counts = {word: listed.count(word) for word in set(listed)}
    common = {word for word, count in counts.items() if count == often}
    assert common == set(sample.references)
    assert len(common) == 10
    assert {count for word, count in counts.items() if word not in common} == {seldom}


def test_coded_words_have_unambiguous_ranks(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    (task,) = make(["fwe"], tokenizers["bytes"], tmp_path, seed)
    for index in range(4):
        sample = task.sample(2000, index)
        text = text_of(tokenizers["bytes"], sample)
        body = text.split("coded words. ", 1)[1].split("\nQuestion")[0].split()
        ranked = sorted({*body} - {"..."}, key=lambda word: -body.count(word))
        assert tuple(ranked[:3]) == sample.references
        counts = [body.count(word) for word in ranked[:4]]
        assert counts[0] > counts[1] > counts[2] > counts[3]
        assert body.count("...") > counts[0]


@pytest.mark.parametrize(("kind", "needed"), [("qa_1", 1), ("qa_2", 4)])
def test_questions_keep_their_documents(
    kind: str,
    needed: int,
    tokenizers: dict[str, PreTrainedTokenizerFast],
    seed: int,
    tmp_path: Path,
) -> None:
    (task,) = make([kind], tokenizers["bytes"], tmp_path, seed)
    seen = set()
    for index in range(5):
        sample = task.sample(1200, index)
        text = text_of(tokenizers["bytes"], sample)
        assert sample.references[0] in text
        assert sample.facts["documents"] == len(re.findall(r"Document \d+:\n", text)) >= needed
        seen.add(sample.references)
    assert len(seen) == 5


def test_more_samples_than_questions(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    (task,) = make(["qa_2"], tokenizers["bytes"], tmp_path, seed)
    with pytest.raises(NotEnoughTextError, match="qa_2 has 10 questions, but sample 10"):
        task.sample(1500, 10)


def test_too_small_a_budget(
    name: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    (task,) = make([name], tokenizers["bytes"], tmp_path, seed)
    with pytest.raises(NotEnoughTextError, match=rf"{name}/140/0.* a larger length"):
        task.sample(140, 0)


@pytest.mark.parametrize("chat", ["on", "off"])
def test_chat_template_or_none(
    chat: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    """The answer's first words open the assistant's turn; without a template they just follow."""
    tokenizer = tokenizers["metaspace"]
    (task,) = make(["niah_single_2"], tokenizer, tmp_path, seed, chat)
    text = text_of(tokenizer, task.sample(1500, 0))
    assert text.startswith("<|user|>" if chat == "on" else "<s>")
    opening = "<|assistant|>\nThe special magic" if chat == "on" else "text? The special magic"
    assert opening in text
    assert text.endswith("mentioned in the provided text is")


@pytest.mark.model
def test_the_real_tokenizer(seed: int, tmp_path: Path) -> None:
    from ridgefill.engines.transformers.loading import load

    _, tokenizer = load("smollm2-demo")
    for task in make(ruler.TASKS, tokenizer, tmp_path, seed):
        sample = task.sample(2048, 0)
        assert sample.input_ids.shape[1] + sample.new_tokens <= 2048
        for span in sample.spans:
            held = tokenizer.decode(sample.input_ids[0, span.start : span.stop])
            assert sample.references[span.reference] in held or task.name == "qa_2"
