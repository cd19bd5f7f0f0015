"""Prompts against the published templates and rules, stated here once more."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from ridgefill.evaluate import ruler
from ridgefill.evaluate.prompting import Prompter
from tests.evaluate.ruler import files

KEY = r"(?P<key>\S.*?)"
ORDER = (
    "Answer the question based on the given documents. Only give me the answer and do not output "
    "any other words."
)


def single(kind: str) -> str:
    return (
        f"A special magic {kind} is hidden within the following text. Make sure to memorize it. I "
        f"will quiz you about the {kind} afterwards.\n.*\n"
        f"What is the special magic {kind} for {KEY} mentioned in the provided text\\? The special "
        f"magic {kind} for (?P=key) mentioned in the provided text is"
    )


SEVERAL = (
    "Some special magic numbers are hidden within the following text. Make sure to memorize it. I "
    "will quiz you about the numbers afterwards.\n.*\n"
    f"What are all the special magic numbers for {KEY} mentioned in the provided text\\? The "
    "special magic numbers for (?P=key) mentioned in the provided text are"
)
COMMON = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n1\\. .*\n"
    "Question: What are the 10 most common words in the above list\\? Answer: The top 10 words "
    "that appear most often in the list are:"
)
TRACKING = (
    "Memorize and track the chain\\(s\\) of variable assignment hidden in the following text.\n\n"
    ".*\nQuestion: Find all variables that are assigned the value (?P<v{0}>\\d{{5}}) in the text "
    "above. Answer: According to the chain\\(s\\) of variable assignment in the text above, 5 "
    "variables are assgined the value (?P=v{0}), they are:"
)
PUBLISHED = {
    **dict.fromkeys(("niah_single_1", "niah_single_2", "niah_multikey_1"), single("number")),
    "niah_multikey_2": single("number"),
    **dict.fromkeys(("niah_single_3", "niah_multikey_3"), single("uuid")),
    **dict.fromkeys(("niah_multivalue", "niah_multiquery"), SEVERAL),
    "vt": TRACKING.format(1) + "( [A-Z]{3}){5}\n\n" + TRACKING.format(2),
    "cwe": COMMON + "".join(rf" {n}\. \D+" for n in range(1, 11)) + "\n" + COMMON,
    "fwe": (
        "Read the following coded text and track the frequency of each coded word. Find the three "
        "most frequently appeared coded words. (\\.\\.\\.|[a-z]{6})( (\\.\\.\\.|[a-z]{6}))*\n"
        "Question: Do not provide any explanation. Please ignore the dots '....'. What are the "
        "three most frequently appeared words in the above coded text\\? Answer: According to the "
        "coded text above, the three most frequently appeared words are:"
    ),
    **dict.fromkeys(
        ("qa_1", "qa_2"),
        f"{ORDER}\n\nThe following are given documents.\n\nDocument 1:\n.*\n\nDocument 2:\n.*\n\n"
        f"{ORDER}\n\nQuestion: Wh.*\\? Answer:",
    ),
}


def sampled(
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    name: str,
    length: int,
    index: int,
    **more: Any,
) -> tuple[Any, str]:
    """A sample and its whole text."""
    seed = more.pop("seed")
    (task,) = ruler.make_tasks(
        [name],
        Prompter(tokenizer),
        seed=seed,
        squad=files.squad(folder / "squad.json", seed),
        hotpotqa=files.hotpotqa(folder / "hotpot.json", seed),
        **more,
    )
    sample = task.sample(length, index)
    return sample, str(tokenizer.decode(sample.input_ids[0]))


@pytest.mark.parametrize("name", ruler.TASKS)
def test_templates(
    name: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    _, text = sampled(tokenizers["bytes"], tmp_path, name, 4096, 0, seed=seed)
    assert re.fullmatch(PUBLISHED[name], text, re.S)


def test_four_keys_are_listed_with_an_and(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    sample, text = sampled(tokenizers["bytes"], tmp_path, "niah_multiquery", 2000, 0, seed=seed)
    first, second, third, last = sample.facts["queries"]
    assert f"for {first}, {second}, {third}, and {last} mentioned" in text


@pytest.mark.parametrize("name", ["niah_single_2", "niah_multikey_1"])
def test_essay_needles_go_to_forty_even_depths(
    name: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    essay = " ".join(f"It is day {day} of the year." for day in range(2000))
    for index in range(5):
        _, text = sampled(
            tokenizers["bytes"], tmp_path, name, 2500, index, seed=seed, essay_texts=[essay]
        )
        haystack = text.split("afterwards.\n")[1].rsplit("\nWhat is", 1)[0]
        parts = re.split(r"One of the special magic numbers for .*? is: \d{7}\.", haystack)
        sentences = [len([s for s in re.split(r"(?<=\.) ", p.strip()) if s]) for p in parts]
        allowed = {int(sum(sentences) * d / 100) for d in np.round(np.linspace(0, 100, num=40))}
        places = set(np.cumsum(sentences[:-1]).tolist())
        assert len(places) == (4 if name == "niah_multikey_1" else 1)
        assert places <= allowed


def test_noise_haystack_is_the_published_sentence(
    tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    noise = (
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    )
    _, text = sampled(tokenizers["bytes"], tmp_path, "niah_single_1", 2500, 0, seed=seed)
    lines = text.split("\n")[1:-1]
    assert sum(line != noise for line in lines) == 1
    assert len(lines) > 20
    sample, text = sampled(tokenizers["bytes"], tmp_path, "vt", 2500, 0, seed=seed)
    hidden = re.findall(r"VAR [A-Z]{5} = (?:VAR [A-Z]{5} |\d{5})", text)
    assert len(hidden) == 1 + sample.facts["hops"] == 5
    rest = text.rsplit("following text.\n\n")[-1].split("\nQuestion")[0]
    for statement in hidden:
        rest = rest.replace(statement, "", 1)
    assert " ".join(rest.split()) == " ".join([noise] * rest.count("grass"))


@pytest.mark.parametrize("name", ["qa_1", "qa_2"])
def test_documents_of_the_same_source_come_first(
    name: str, tokenizers: dict[str, PreTrainedTokenizerFast], seed: int, tmp_path: Path
) -> None:
    """SQuAD's other paragraphs of the article, HotpotQA's other paragraphs of the question."""
    sample, text = sampled(tokenizers["bytes"], tmp_path, name, 3000, 1, seed=seed)
    found = re.findall(r"code(\d+)x\d" if name == "qa_1" else r"Title (\d+) \d", text)
    own = re.search(r"\d+", sample.references[0])
    assert own is not None
    assert found.count(own[0]) == 4
    assert len(found) == sample.facts["documents"] > 4
