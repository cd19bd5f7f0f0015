"""The cost model on shapes counted by hand."""

import pytest
import torch

from ridgefill.core.cost import LayerCost, ModelCost
from ridgefill.core.rows import RowPlan

# A toy of 4 layers, hidden 8, 2 query heads and 1 KV head of width 4, MLP of 3 x 8 x 16:
#   q 64 + k 32 + v 32 + o 64 + MLP 384 = 576 a row, of which k and v are 64;
#   a pair costs 2 heads x 4 for its score and as much for its value: 16.
ROW, WRITE, PAIR, LOGITS = 576, 64, 16, 80
FULL = LayerCost(ROW, WRITE, PAIR)
WINDOWED = LayerCost(ROW, WRITE, PAIR, window=3)
MAP = 8 * 8 + WRITE  # one source, then the projections


def toy(*layers: LayerCost) -> ModelCost:
    return ModelCost(layers, LOGITS)


def exact_rows(plan: RowPlan, length: int) -> torch.Tensor:
    return plan.exact_mask(torch.ones(1, length, dtype=torch.bool))[0]


def test_pairs() -> None:
    """Row p sees p + 1 keys; with a window of 3 never more than 3."""
    positions = torch.tensor([0, 1, 2, 5])
    assert FULL.pairs(positions) == 1 + 2 + 3 + 6
    assert WINDOWED.pairs(positions) == 1 + 2 + 3 + 3
    assert FULL.run(positions) == 4 * 576 + 12 * 16
    assert FULL.run(positions[:0]) == 0


def test_exact_prefill() -> None:
    """Ten tokens: 55 pairs a layer, or 1 + 2 + 8 x 3 = 27 in a window of 3."""
    assert toy(FULL, FULL, FULL, FULL).exact(10) == 4 * (10 * 576 + 55 * 16) + 80
    mixed = 2 * (5760 + 880) + 2 * (5760 + 27 * 16) + 80
    assert toy(FULL, WINDOWED, FULL, WINDOWED).exact(10) == mixed


def test_tail_only() -> None:
    """Split 2, tail 3: rows 7, 8, 9 are exact and see 8 + 9 + 10 = 27 keys."""
    exact = exact_rows(RowPlan(tail=3, sinks=0), 10)
    lower = 2 * (10 * 576 + 55 * 16)
    split = 7 * 64 + 3 * 576 + 27 * 16
    last = 7 * 128 + 3 * 576 + 27 * 16
    cost = toy(FULL, FULL, FULL, FULL)
    assert MAP == 128
    assert cost.filled(exact, 2, [MAP], 3) == lower + split + last + 80
    assert cost.ideal(exact, 2, [MAP], 3) == pytest.approx(26_640 / 19_024)


def test_sinks_and_chosen_rows() -> None:
    """Split 1, rows 0, 1, 4 and the tail 8, 9: 1 + 2 + 5 + 9 + 10 = 27 keys, 5 rows filled.

    Of the last layer only the tail runs (19 keys); the other three exact rows write its cache.
    """
    exact = exact_rows(RowPlan(tail=2, sinks=2, chosen=[4]), 10)
    assert exact.nonzero()[:, 0].tolist() == [0, 1, 4, 8, 9]
    lower = 10 * 576 + 55 * 16
    split = 5 * 64 + 5 * 576 + 27 * 16
    middle = 5 * 100 + 5 * 576 + 27 * 16
    last = 5 * 200 + 2 * 576 + 19 * 16 + 3 * 64
    cost = toy(FULL, FULL, FULL, FULL)
    assert cost.filled(exact, 1, [100, 200], 2) == lower + split + middle + last + 80


def test_windows() -> None:
    """The same rows with a window of 3 in the late layers: 1 + 2 + 3 + 3 + 3 = 12 keys."""
    exact = exact_rows(RowPlan(tail=2, sinks=2, chosen=[4]), 10)
    lower = 10 * 576 + 55 * 16
    split = 5 * 64 + 5 * 576 + 12 * 16
    middle = 5 * 100 + 5 * 576 + 12 * 16
    last = 5 * 200 + 2 * 576 + 6 * 16 + 3 * 64
    cost = toy(FULL, WINDOWED, WINDOWED, WINDOWED)
    assert cost.filled(exact, 1, [100, 200], 2) == lower + split + middle + last + 80


def test_nothing_filled() -> None:
    """With every row exact the plan costs what stock costs, but for the last layer's output."""
    cost = toy(FULL, FULL, FULL, FULL)
    exact = torch.ones(10, dtype=torch.bool)
    assert cost.filled(exact, 2, [MAP], 10) == cost.exact(10)
    assert cost.ideal(exact, 2, [MAP], 10) == 1.0
    unread = 7 * (576 - 64) + 28 * 16  # rows 0..6 of the last layer write its cache only
    assert cost.filled(exact, 2, [MAP], 3) == cost.exact(10) - unread
