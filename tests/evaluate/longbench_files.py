"""Hand-made records of LongBench v2 and the files that hold them."""

import json
import random
from pathlib import Path
from typing import Any


def entry(number: int, words: int = 300, **fields: Any) -> dict[str, Any]:
    """A record as published, its fields and those of others all different."""
    draw = random.Random(number)
    context = " ".join(f"word{draw.randrange(10_000)}é" for _ in range(words))
    return {
        "_id": f"id-{number:03}",
        "domain": "Single-Document QA",
        "sub_domain": "Financial",
        "difficulty": ("easy", "hard")[number % 2],
        "length": ("short", "medium", "long")[number % 3],
        "question": f" What is said in {number}?\n",
        **{f"choice_{letter}": f"{letter} of {number}" for letter in "ABCD"},
        "answer": "ABCD"[number % 4],
        "context": context + "\n",
        **fields,
    }


def write(path: Path, entries: list[Any]) -> str:
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(e) for e in entries) + "\n", encoding="utf-8")
    else:
        path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    return str(path)
