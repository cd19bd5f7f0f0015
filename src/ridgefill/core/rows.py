"""Which rows of a prompt are exact and which are filled."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ridgefill.core.errors import RidgeFillError

Chosen = Tensor | Sequence[int] | Sequence[Sequence[int]] | None


@dataclass(frozen=True)
class RowPlan:
    """Exact rows of a prompt: its first ``sinks`` tokens, the ``chosen`` rows, its last ``tail``.

    ``every`` adds evenly spaced rows: the baseline that any rule for choosing rows has to beat.

    Args:
        tail: number of last prompt tokens that run every layer.
        sinks: number of first real tokens (padding does not count) that run every layer.
        chosen: more exact rows: strictly ascending column indices ``[rows]`` or one such list per
            sequence, or a bool mask ``[seq]`` or ``[batch, seq]``, over the columns of the
            ``input_ids`` given with the plan.
        every: with n above 0, every n-th new token runs every layer too.

    Raises RidgeFillError on negative counts and on duplicated or unsorted indices.
    """

    tail: int = 256
    sinks: int = 4
    chosen: Chosen = field(default=None, compare=False)
    every: int = 0

    def __post_init__(self) -> None:
        for name in ("tail", "sinks", "every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise RidgeFillError(f"{name} must be an integer of 0 or more, got {value!r}")
        if self.tail == 0:
            raise RidgeFillError(
                "tail must be 1 or more: the last prompt token has to run every layer to give "
                "the first new token"
            )
        for rows in _index_lists(self.chosen):
            _check_ascending(rows)

    def exact_mask(self, real: Tensor, past: int = 0) -> Tensor:
        """Bool ``[batch, seq]``: the exact rows among new columns ``real`` ``[batch, seq]``.

        ``real`` is True where a column is a token and False where it is (left) padding; ``past``
        counts columns already in the cache: with any, the sinks are there and none are taken.
        Raises RidgeFillError when chosen rows do not fit ``real``.
        """
        batch, length = real.shape
        exact = torch.zeros_like(real)
        exact[:, max(length - self.tail, 0) :] = True
        if not past:
            exact |= (real.long().cumsum(1) <= self.sinks) & real
        if self.every:
            exact |= real.long().cumsum(1) % self.every == 0
        return (exact | self._chosen_mask(batch, length, real)) & real

    def _chosen_mask(self, batch: int, length: int, real: Tensor) -> Tensor:
        chosen = self.chosen
        if isinstance(chosen, Tensor) and chosen.dtype == torch.bool:
            return _broadcast_mask(chosen, batch, length).to(real.device)
        mask = torch.zeros_like(real)
        lists = _index_lists(chosen)
        if len(lists) not in (0, 1, batch):
            raise RidgeFillError(
                f"chosen has rows for {len(lists)} sequences but the batch has {batch}: give one "
                "list for all or one per sequence"
            )
        for row in range(batch if lists else 0):
            index = lists[row % len(lists)].to(real.device)
            _check_range(index, real[row])
            mask[row, index] = True
        return mask


def _broadcast_mask(mask: Tensor, batch: int, length: int) -> Tensor:
    if mask.shape[-1] != length or mask.dim() > 2 or (mask.dim() == 2 and len(mask) != batch):
        raise RidgeFillError(
            f"the chosen mask has shape {tuple(mask.shape)}; it must be [{length}] or "
            f"[{batch}, {length}], one entry per column of input_ids"
        )
    return mask.expand(batch, length)


def _index_lists(chosen: Chosen) -> list[Tensor]:
    """The chosen indices as one 1-D tensor per sequence; empty for masks and for None."""
    if chosen is None or (isinstance(chosen, Tensor) and chosen.dtype == torch.bool):
        return []
    nested = [chosen] if _is_flat(chosen) else list(chosen)
    tensors = [torch.as_tensor(rows) for rows in nested]
    for rows in tensors:
        if rows.dim() != 1 or (rows.numel() and not _is_integer(rows)):
            raise RidgeFillError(
                f"chosen must hold integer column indices, got {rows.tolist()!r}: pass indices, "
                "one list per sequence, or a bool tensor as a mask"
            )
    return [rows.long() for rows in tensors]


def _is_integer(rows: Tensor) -> bool:
    return not (rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool)


def _is_flat(chosen: Tensor | Sequence) -> bool:
    if isinstance(chosen, Tensor):
        return chosen.dim() == 1
    return len(chosen) == 0 or not hasattr(chosen[0], "__len__")


def _check_ascending(rows: Tensor) -> None:
    falls = (rows[1:] <= rows[:-1]).nonzero()
    if len(falls):
        at = int(falls[0])
        raise RidgeFillError(
            f"chosen rows must be strictly ascending, but {int(rows[at])} is followed by "
            f"{int(rows[at + 1])}: sort them and drop duplicates"
        )


def _check_range(rows: Tensor, real: Tensor) -> None:
    outside = rows[(rows < 0) | (rows >= len(real))]
    if len(outside):
        raise RidgeFillError(
            f"chosen row {int(outside[0])} is outside the prompt of {len(real)} columns: "
            f"use indices from 0 to {len(real) - 1}"
        )
    padded = rows[~real[rows]]
    if len(padded):
        raise RidgeFillError(
            f"chosen row {int(padded[0])} is padding: columns count from the left of the padded "
            "input_ids"
        )


@dataclass(frozen=True)
class ChunkRows:
    """Exact and filled columns of one chunk of the prompt.

    Args:
        start, stop: the chunk's cache positions.
        exact: int64 ``[1 or batch, rows]``, exact columns relative to ``start``, ascending;
            sequences with fewer of them repeat the chunk's last column.
        slots: int64, as ``exact``: the cache position each exact row is written to; repeats go
            to the scratch position ``scratch``.
        filled: int64 ``[columns]`` relative to ``start``, or None for every column.
    """

    start: int
    stop: int
    exact: Tensor
    slots: Tensor
    filled: Tensor | None

    @classmethod
    def of(cls, exact: Tensor, start: int, past: int, scratch: int) -> "ChunkRows":
        """Rows of a chunk whose mask is ``exact`` bool ``[batch, columns]``.

        ``start`` is the chunk's first column after the ``past`` cached ones.
        """
        columns = exact.shape[1]
        if bool((exact == exact[:1]).all()):
            index = exact[0].nonzero()[:, 0]
            filled = (~exact[0]).nonzero()[:, 0]
            slots = index + past + start
            filled_or_all = None if len(index) == 0 else filled
            return cls(
                past + start, past + start + columns, index[None], slots[None], filled_or_all
            )
        counts = exact.sum(1)
        width = int(counts.max())
        order = exact.int().argsort(dim=1, descending=True, stable=True)[:, :width]
        unused = torch.arange(width, device=exact.device)[None] >= counts[:, None]
        index = order.masked_fill(unused, columns - 1)
        slots = (index + past + start).masked_fill(unused, scratch)
        return cls(past + start, past + start + columns, index, slots, None)

    @property
    def has_exact(self) -> bool:
        return self.exact.shape[1] > 0

    @property
    def has_filled(self) -> bool:
        return self.filled is None or len(self.filled) > 0

    def take_exact(self, states: Tensor, dim: int = 1) -> Tensor:
        """Exact columns of ``states``, whose axis ``dim`` runs over the chunk; axis 0 is batch."""
        index = self.exact.to(states.device)
        if len(index) == 1:
            return states.index_select(dim, index[0])
        shape = [1] * states.dim()
        shape[0], shape[dim] = index.shape
        expanded = list(states.shape)
        expanded[0], expanded[dim] = index.shape
        states = states.expand(len(index), *states.shape[1:])
        return states.gather(dim, index.view(shape).expand(expanded))

    def take_filled(self, states: Tensor, dim: int = 1) -> Tensor:
        """Filled columns of ``states``, whose axis ``dim`` runs over the chunk."""
        if self.filled is None:
            return states
        return states.index_select(dim, self.filled.to(states.device))
