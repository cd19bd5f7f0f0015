"""Windows of documents: their size, their independence of one another, and the draw."""

import pytest
import torch

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.evaluate.documents import Document, draw_windows, first_tokens
from tests.engines.transformers.builders import tiny_tokenizer


def named(texts: list[str]) -> list[Document]:
    """Documents of which every second one is of another source."""
    return [Document("ab"[number % 2], text) for number, text in enumerate(texts)]


def text(words: int) -> str:
    ids = torch.randint(3, 101, (words,)).tolist()
    return " ".join(f"w{i}" for i in ids)


def test_windows_are_disjoint_pieces_of_their_document(seed: int) -> None:
    tokenizer, texts = tiny_tokenizer(), [text(500), text(20), text(130)]
    found = draw_windows(tokenizer, named(texts), [40, 64], 100, seed)
    for length, windows in found.items():
        assert {window.length for window in windows} == {length}
        assert all(window.source == "ab"[window.document % 2] for window in windows)
        pieces = {}
        for window in windows:
            assert window.input_ids.shape == (1, length + 1)
            assert window.input_ids[0, 0] == 1  # the beginning token
            pieces[window.document, window.number] = window.input_ids[0, 1:].tolist()
        for (document, number), piece in pieces.items():
            ids = tokenizer(texts[document], add_special_tokens=False)["input_ids"]
            assert piece == ids[number * length : (number + 1) * length]
        expected = {(0, i) for i in range(500 // length)} | {(2, i) for i in range(130 // length)}
        assert set(pieces) == expected


def test_more_windows_keep_the_earlier_ones(seed: int) -> None:
    texts = [text(900) for _ in range(3)]
    few, many = (draw_windows(tiny_tokenizer(), named(texts), [50], n, seed)[50] for n in (5, 20))
    assert [w.id for w in many][:5] == [w.id for w in few]
    assert len({w.id for w in many}) == 20
    again = draw_windows(tiny_tokenizer(), iter(named(texts)), [50], 20, seed)[50]
    assert [w.id for w in again] == [w.id for w in many]
    other = draw_windows(tiny_tokenizer(), named(texts), [50], 20, seed + 1)[50]
    assert [w.id for w in other] != [w.id for w in many]


def test_the_draw_is_even(seed: int) -> None:
    """Over many seeds every one of ten windows is drawn about as often as the others."""
    texts = [text(100) for _ in range(10)]
    counts = [0] * 10
    for round_number in range(300):
        for window in draw_windows(tiny_tokenizer(), named(texts), [90], 3, seed + round_number)[
            90
        ]:
            counts[window.document] += 1
    assert sum(counts) == 900
    assert min(counts) > 50
    assert max(counts) < 135


@pytest.mark.parametrize(("texts", "longest"), [([], 0), ([""], 1), (["w5 w6 w7"], 4)])
def test_too_short(texts: list[str], longest: int) -> None:
    with pytest.raises(NotEnoughTextError, match=rf"the longest has {longest}\)"):
        draw_windows(tiny_tokenizer(), named(texts), [40], 2)


def test_tokens_before_and_after_a_text() -> None:
    tokenizer = tiny_tokenizer()
    assert first_tokens(tokenizer) == [1]
    tokenizer.backend_tokenizer.post_processor = None
    assert first_tokens(tokenizer) == []
