"""Small question files in the published layouts."""

import json
import random
from pathlib import Path

_WORDS = [
    *("river", "stone", "market", "letter", "winter", "engine"),
    *("garden", "window", "candle", "summer", "bridge", "forest"),
]


def _sentence(draw: random.Random, count: int = 30) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(count)).capitalize() + "."


def longest_document() -> str:
    """About the longest that there can be, in the files below."""
    return f"Document 100:\nTitle 10 10\n{' '.join(['extraordinary'] * 60)} It was answer10.\n\n"


def squad(path: Path, seed: int, articles: int = 10) -> Path:
    """Every paragraph names a code word that its one question asks for; some have no answer."""
    draw, data = random.Random(seed), []
    for article in range(articles):
        paragraphs = []
        for number in range(4):
            word = f"code{article}x{number}"
            context = f"{_sentence(draw)} The word is {word}. {_sentence(draw)}"
            asked = {"question": f"What is word {article} {number}?", "id": word}
            answers = [{"text": word, "answer_start": 0}, {"text": f"is {word}", "answer_start": 0}]
            qas = [
                {**asked, "answers": answers, "is_impossible": False},
                {"question": "Unknown?", "id": "", "answers": [], "is_impossible": True},
            ]
            paragraphs.append({"context": context, "qas": qas})
        data.append({"title": f"Article {article}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"version": "v2.0", "data": data}))
    return path


def hotpotqa(path: Path, seed: int, questions: int = 10) -> Path:
    """Two supporting paragraphs among four; the answer stands in the second."""
    draw, data = random.Random(seed), []
    for number in range(questions):
        word = f"answer{number}"
        context = [[f"Title {number} {i}", [_sentence(draw), _sentence(draw)]] for i in range(4)]
        context[2][1].append(f" It was {word}.")  # type: ignore[union-attr]
        data.append(
            {
                "_id": str(number),
                "question": f"Which word belongs to {number}?",
                "answer": word,
                "context": context,
                "supporting_facts": [[f"Title {number} 0", 0], [f"Title {number} 2", 2]],
                "type": "bridge",
                "level": "hard",
            }
        )
    path.write_text(json.dumps(data))
    return path
