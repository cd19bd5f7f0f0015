"""Calibration text becomes windows that hold every token once, in an order the seed decides."""

import numpy as np
import pytest
import torch

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.engines.transformers.windows import Windows, pack
from tests.engines.transformers.builders import EOS, random_ids, tiny_tokenizer, words

LENGTH = 20


def documents(count: int = 6) -> list[list[int]]:
    return [random_ids(1, int(torch.randint(1, 90, ())))[0].tolist() for _ in range(count)]


def packed(texts: list[list[int]], **options: object) -> Windows:
    defaults = {"length": LENGTH, "held_out": 0.3, "seed": 0}
    texts_of_words = [words(torch.tensor(text)) for text in texts]
    return pack(texts_of_words, tiny_tokenizer(), **{**defaults, **options})


def test_every_token_once(seed: int) -> None:
    """Documents end to end, ended by the end token; each window begins with the beginning one."""
    texts = [*documents(), random_ids(1, 60)[0].tolist()]
    windows = packed(texts)
    stream = [token for text in texts for token in (*text, EOS)]
    body = LENGTH - 1
    whole = [stream[i : i + body] for i in range(0, len(stream) - body + 1, body)]
    assert (windows.ids[:, 0] == 1).all()
    assert sorted(windows.ids[:, 1:].tolist()) == sorted(whole)
    assert windows.documents == len(texts)
    assert len(windows) == len(whole)


def test_tokenizer_without_special_tokens(seed: int) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.eos_token = None
    ids = random_ids(1, 3 * LENGTH)[0]
    windows = pack([words(ids)], tokenizer, length=LENGTH, held_out=0.3, seed=0)
    assert sorted(windows.ids.tolist()) == sorted(ids.view(3, LENGTH).tolist())


def test_order_is_the_seeds(seed: int) -> None:
    texts = [random_ids(1, 400)[0].tolist()]
    first, again, other = (packed(texts, seed=s) for s in (1, 1, 2))
    assert first.sha256 == again.sha256 != other.sha256
    assert sorted(first.ids.tolist()) == sorted(other.ids.tolist())


@pytest.mark.parametrize(("share", "number"), [(0.001, 1), (0.3, 6), (0.5, 10), (0.999, 20)])
def test_held_out_share(share: float, number: int, seed: int) -> None:
    """Rounded, but one window at least on either side."""
    windows = packed([random_ids(1, 21 * (LENGTH - 1) - 1)[0].tolist()], held_out=share)
    assert len(windows) == 21
    assert int(windows.held_out.sum()) == number


@pytest.mark.parametrize("size", [1, 4, 100])
def test_batches(size: int, seed: int) -> None:
    """Every window once; held-out ones never share a batch with the others."""
    windows = packed([random_ids(1, 400)[0].tolist()])
    batches = windows.batches(size)
    assert sorted(i for batch in batches for i in batch) == list(range(len(windows)))
    for batch in batches:
        assert 1 <= len(batch) <= size
        assert len(set(windows.held_out[list(batch)])) == 1
        assert np.array_equal(windows.tensor(batch).numpy(), windows.ids[list(batch)])
        assert windows.tensor(batch).dtype == torch.int64


def test_token_limit(seed: int) -> None:
    texts = [random_ids(1, 200)[0].tolist() for _ in range(3)]
    windows = packed(texts, max_tokens=250)
    assert windows.ids.size <= 250 + len(windows)
    assert len(windows) == 250 // (LENGTH - 1)
    assert windows.documents == 2
    assert packed(texts, max_tokens=10**9).sha256 == packed(texts).sha256


def test_texts_are_read_lazily(seed: int) -> None:
    """A stream of documents is not read past the limit."""

    def stream() -> object:
        yield words(random_ids(1, 300)[0])
        pytest.fail("read past the limit")

    pack(stream(), tiny_tokenizer(), length=LENGTH, held_out=0.5, seed=0, max_tokens=100)  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [0, 1, LENGTH, 2 * (LENGTH - 1) - 2])
def test_too_short(tokens: int, seed: int) -> None:
    with pytest.raises(NotEnoughTextError, match="two windows"):
        packed([random_ids(1, tokens)[0].tolist()])


@pytest.mark.parametrize("options", [{"length": 15}, {"held_out": 0}, {"held_out": 1.0}])
def test_bad_options(options: dict[str, float], seed: int) -> None:
    with pytest.raises(RidgeFillError, match="window length"):
        packed(documents(), **options)
