"""The rows of one chunk, against loops over its columns."""

import pytest
import torch
from torch import Tensor

from ridgefill.core.rows import ChunkRows

SCRATCH = 999


def random_mask(batch: int, columns: int, share: float, uniform: bool) -> Tensor:
    mask = torch.rand(1 if uniform else batch, columns) < share
    return mask.expand(batch, columns)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize(("batch", "columns"), [(1, 1), (1, 9), (4, 9), (3, 2)])
def test_rows(batch: int, columns: int, uniform: bool, share: float, seed: int) -> None:
    """Exact rows come back with their slots in order, filled ones are all there."""
    for _ in range(20):
        mask = random_mask(batch, columns, share, uniform)
        start, past = (int(value) for value in torch.randint(0, 50, (2,)))
        rows = ChunkRows.of(mask, start, past, SCRATCH)
        assert (rows.start, rows.stop) == (past + start, past + start + columns)
        assert rows.has_exact == bool(mask.any())
        check_exact(rows, mask, past + start)
        check_filled(rows, mask)


def check_exact(rows: ChunkRows, mask: Tensor, start: int) -> None:
    for row in range(len(mask)):
        goal = [column for column in range(mask.shape[1]) if mask[row, column]]
        exact, slots = (part[row % len(part)].tolist() for part in (rows.exact, rows.slots))
        assert exact[: len(goal)] == goal
        assert slots[: len(goal)] == [start + column for column in goal]
        assert exact[len(goal) :] == [mask.shape[1] - 1] * (len(exact) - len(goal))
        assert slots[len(goal) :] == [SCRATCH] * (len(exact) - len(goal))


def check_filled(rows: ChunkRows, mask: Tensor) -> None:
    """Every column that is filled in some sequence; with ragged exact rows, any more."""
    filled = range(mask.shape[1]) if rows.filled is None else rows.filled.tolist()
    needed = (~mask).any(0).nonzero()[:, 0].tolist()
    assert set(needed) <= set(filled)
    if bool((mask == mask[:1]).all()):
        assert list(filled) == needed
        assert rows.has_filled == bool(needed)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_taking_rows(uniform: bool, shared: bool, dim: int, seed: int) -> None:
    """Along either axis, of states per sequence or shared by all, such as rotary tables."""
    for _ in range(20):
        mask = random_mask(3, 7, 0.5, uniform)
        rows = ChunkRows.of(mask, 0, 0, SCRATCH)
        shape = [1 if shared else 3, 5, 5, 2]
        shape[dim] = 7
        states = torch.randn(shape)
        exact, filled = rows.take_exact(states, dim), rows.take_filled(states, dim)
        for row in range(3):
            index = rows.exact[row % len(rows.exact)]
            source = states[row % len(states)]
            goal = (
                torch.stack([source.select(dim - 1, int(i)) for i in index], dim - 1)
                if len(index)
                else source.narrow(dim - 1, 0, 0)
            )
            assert torch.equal(exact[row % len(exact)], goal)
        columns = range(7) if rows.filled is None else rows.filled.tolist()
        assert filled.shape[dim] == len(columns)
        for place, column in enumerate(columns):
            assert torch.equal(filled.select(dim, place), states.select(dim, column))
