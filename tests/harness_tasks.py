"""Two small tasks of lm-evaluation-harness in local files, for words ``w3`` to ``w89``."""

import json
import random
from pathlib import Path

TASKS = ("local_choice", "local_answer")
WORDS = [f"w{number}" for number in range(3, 90)]

_CHOICE = """
task: local_choice
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
{shared}
"""
_ANSWER = """
task: local_answer
output_type: generate_until
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["w7", "w8"]
  do_sample: false
  max_gen_toks: 6
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
{shared}
"""
_SHARED = """
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
  cache_dir: {cache}
test_split: test
num_fewshot: 0
metadata: {{version: 1.0}}
"""


def write_tasks(folder: Path, lengths: tuple[int, ...] = (20, 200, 310, 260)) -> Path:
    """A directory with both tasks: one document per length of its prompt in words.

    Choices are one, two and twelve words long.
    """
    folder.mkdir(parents=True)
    for name, yaml, document in (
        (TASKS[0], _CHOICE, _choice),
        (TASKS[1], _ANSWER, _answer),
    ):
        draw = random.Random(name)
        lines = [json.dumps(document(draw, length)) for length in lengths]
        data = folder / f"{name}.jsonl"
        data.write_text("\n".join(lines) + "\n")
        shared = _SHARED.format(data=data, cache=folder / "cache")
        (folder / f"{name}.yaml").write_text(yaml.format(shared=shared))
    return folder


def text(draw: random.Random, count: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(count))


def _choice(draw: random.Random, length: int) -> dict[str, object]:
    choices = [text(draw, count) for count in (1, 1, 2, 12)]
    return {"context": text(draw, length), "choices": choices, "label": draw.randrange(4)}


def _answer(draw: random.Random, length: int) -> dict[str, object]:
    return {"context": text(draw, length), "answer": text(draw, 2)}
