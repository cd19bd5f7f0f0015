"""Which rows a plan keeps exact, against the definition written out row by row."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ridgefill.core.errors import RidgeFillError
from ridgefill.core.rows import RowPlan


def left_padded(batch: int, length: int) -> Tensor:
    """Bool ``[batch, seq]`` with random padding on the left; the first row has none."""
    real = torch.ones(batch, length, dtype=torch.bool)
    for row in range(1, batch):
        real[row, : int(torch.randint(0, length, ()))] = False
    return real


def expected(real: Tensor, tail: int, sinks: int, chosen: list[list[int]], past: int) -> Tensor:
    """Column by column, as the vocabulary of the design says."""
    exact = torch.zeros_like(real)
    for row in range(len(real)):
        columns = [c for c in range(real.shape[1]) if real[row, c]]
        first = columns[:sinks] if past == 0 else []
        for column in columns:
            in_tail = column >= real.shape[1] - tail
            exact[row, column] = in_tail or column in first or column in chosen[row]
    return exact


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("tail", [1, 4, 12, 40])
@pytest.mark.parametrize("sinks", [0, 1, 3, 40])
def test_exact_rows(sinks: int, tail: int, past: int, seed: int) -> None:
    """Sinks count real tokens and none of a later turn; padding is never exact."""
    real = left_padded(5, 12)
    chosen = [[c for c in range(12) if real[row, c] and torch.rand(()) < 0.3] for row in range(5)]
    goal = expected(real, tail, sinks, chosen, past)
    mask = torch.zeros_like(real)
    for row, columns in enumerate(chosen):
        mask[row, columns] = True
    for given in (chosen, [torch.tensor(c) for c in chosen], mask):
        assert torch.equal(RowPlan(tail, sinks, given).exact_mask(real, past), goal)
    nothing = expected(real, tail, sinks, [[]] * 5, past)
    for given in (None, [], [[]] * 5, torch.zeros(12, dtype=torch.bool)):
        assert torch.equal(RowPlan(tail, sinks, given).exact_mask(real, past), nothing)


def test_one_choice_for_all(seed: int) -> None:
    real = torch.ones(3, 12, dtype=torch.bool)
    goal = expected(real, 2, 1, [[3, 7]] * 3, 0)
    mask = torch.zeros(12, dtype=torch.bool)
    mask[[3, 7]] = True
    for given in ([3, 7], (3, 7), torch.tensor([3, 7]), [[3, 7]], torch.tensor([[3, 7]]), mask):
        assert torch.equal(RowPlan(2, 1, given).exact_mask(real), goal)


def test_a_mask_may_cover_padding(seed: int) -> None:
    real = left_padded(4, 12)
    plan = RowPlan(1, 0, torch.ones(4, 12, dtype=torch.bool))
    assert torch.equal(plan.exact_mask(real), real)


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, None])
@pytest.mark.parametrize("name", ["tail", "sinks"])
def test_bad_counts(name: str, value: Any) -> None:
    with pytest.raises(RidgeFillError, match=f"{name} must be an integer"):
        RowPlan(**{name: value})


def test_no_tail() -> None:
    with pytest.raises(RidgeFillError, match="tail must be 1 or more"):
        RowPlan(tail=0)


@pytest.mark.parametrize(
    ("chosen", "match"),
    [
        ([3, 3], "ascending.*3 is followed by 3"),
        ([4, 2], "ascending.*4 is followed by 2"),
        ([[1, 2], [5, 5]], "ascending"),
        (torch.tensor([9, 1]), "ascending"),
        ([1.5, 2.5], "integer"),
        (torch.tensor([1.0]), "integer"),
        ([[1], [2.5]], "integer"),
        (torch.zeros(1, 1, 2, dtype=torch.long), "integer"),
    ],
)
def test_bad_choices(chosen: Any, match: str) -> None:
    with pytest.raises(RidgeFillError, match=match):
        RowPlan(4, 2, chosen)


@pytest.mark.parametrize(
    ("chosen", "match"),
    [
        ([12], "12 is outside the prompt of 12"),
        ([-1], "-1 is outside"),
        ([[1], [2]], "2 sequences but the batch has 3"),
        ([[9], [2], [9]], "2 is padding"),
        (torch.zeros(11, dtype=torch.bool), r"shape \(11,\)"),
        (torch.zeros(2, 12, dtype=torch.bool), r"shape \(2, 12\)"),
        (torch.zeros(1, 3, 12, dtype=torch.bool), "shape"),
    ],
)
def test_choices_that_do_not_fit_the_prompt(chosen: Any, match: str) -> None:
    real = torch.ones(3, 12, dtype=torch.bool)
    real[1, :5] = False
    with pytest.raises(RidgeFillError, match=match):
        RowPlan(4, 2, chosen).exact_mask(real)


@pytest.mark.parametrize("chosen", [[True, False, True], [[True], [False], [True]]])
def test_lists_of_bools_are_no_indices(chosen: Any) -> None:
    """A mask given as a list would otherwise mean rows 0 and 1."""
    with pytest.raises(RidgeFillError, match="bool"):
        RowPlan(4, 2, chosen)


def test_every_nth_new_token_is_exact() -> None:
    """Counted in real tokens from the first, padding left out; on top of sinks and tail."""
    real = torch.ones(2, 20, dtype=torch.bool)
    real[1, :3] = False
    exact = RowPlan(tail=2, sinks=1, every=5).exact_mask(real)
    assert exact[0].nonzero()[:, 0].tolist() == [0, 4, 9, 14, 18, 19]
    assert exact[1].nonzero()[:, 0].tolist() == [3, 7, 12, 17, 18, 19]
    with pytest.raises(RidgeFillError, match="every must be an integer of 0 or more, got -1"):
        RowPlan(every=-1)
