"""The cache of a prompt being filled: who sees what, and rows in token order."""

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, MistralConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ridgefill.core.rows import ChunkRows
from ridgefill.engines.transformers.cache import FillLayer, causal_rows_mask
from tests.engines.transformers.families import BY_ID

WINDOW, HEADS, WIDTH, PAST, LENGTH = 5, 2, 3, 6, 12


def stock_layer(windowed: bool) -> DynamicLayer:
    config = BY_ID["mistral"].config()
    assert isinstance(config, MistralConfig)
    config.sliding_window = WINDOW if windowed else None
    layer = DynamicCache(config=config).layers[0]
    assert type(layer) is (DynamicSlidingWindowLayer if windowed else DynamicLayer)
    return layer


def states(batch: int, rows: int) -> Tensor:
    return torch.randn(batch, HEADS, rows, WIDTH)


def earlier_turn(windowed: bool, batch: int) -> tuple[DynamicLayer, FillLayer, Tensor]:
    """A stock layer with ``PAST`` rows, a fill layer for ``LENGTH`` more, and all rows' keys."""
    stock, keys = stock_layer(windowed), states(batch, PAST + LENGTH)
    stock.update(keys[:, :, :PAST], -keys[:, :, :PAST])
    return stock, FillLayer(stock, PAST, PAST + LENGTH), keys


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("windowed", [True, False])
def test_rows_in_token_order(windowed: bool, ragged: bool, seed: int) -> None:
    """Filled first, exact ones into their slots, chunk by chunk on top of an earlier turn."""
    stock, layer, keys = earlier_turn(windowed, batch=3)
    exact = torch.rand(3 if ragged else 1, LENGTH) < 0.4
    exact = exact.expand(3, LENGTH)
    wrong = states(3, LENGTH)  # what a map would write in exact rows' places
    for start in range(0, LENGTH, 4):
        chunk = slice(start, start + 4)
        rows = ChunkRows.of(exact[:, chunk], start, PAST, scratch=PAST + LENGTH)
        new = keys[:, :, PAST:][:, :, chunk]
        filled = torch.where(exact[:, None, chunk, None], wrong[:, :, chunk], new)
        given = rows.take_filled(filled, dim=2)
        layer.fill(rows, given, -given)
        if rows.has_exact:
            layer.rows = rows
            true = rows.take_exact(new, dim=2)
            seen, values = layer.update(true, -true)
            first = max(PAST + start - WINDOW + 1, 0) if windowed else 0
            assert torch.equal(seen, keys[:, :, first : PAST + start + 4])
            assert torch.equal(values, -seen)
            layer.rows = None
        layer.seen = rows.stop
        assert layer.get_seq_length() == PAST + start + 4
    layer.finish()
    kept = WINDOW - 1 if windowed else PAST + LENGTH
    assert torch.equal(stock.keys, keys[:, :, -kept:])
    assert torch.equal(stock.values, -keys[:, :, -kept:])
    assert stock.get_seq_length() == PAST + LENGTH


@pytest.mark.parametrize("windowed", [True, False])
def test_mask_of_exact_rows(windowed: bool, seed: int) -> None:
    """Each exact row sees the rows before it and itself, within its window."""
    _, layer, keys = earlier_turn(windowed, batch=2)
    rows = ChunkRows.of(torch.rand(2, LENGTH) < 0.5, 0, PAST, scratch=PAST + LENGTH)
    mask = causal_rows_mask(rows, layer, torch.device("cpu"))
    first = PAST - WINDOW + 1 if windowed else 0
    assert mask.shape == (len(rows.exact), 1, rows.exact.shape[1], keys.shape[2] - first)
    for row, columns in enumerate(rows.exact.tolist()):
        for place, column in enumerate(columns):
            for key in range(first, keys.shape[2]):
                distance = PAST + column - key
                sees = distance >= 0 and (not windowed or distance < WINDOW)
                assert bool(mask[row, 0, place, key - first]) == sees
