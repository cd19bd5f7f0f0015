"""What a row plan costs in multiply-adds, and the ideal speed-up.

Counted: projections, attention scores and values of the rows that run (causal, within the
window), MLP or experts, maps, and one row of logits. Not counted: embeddings, norms, rotary
embedding, softmax, activation functions and copies. The formula stands in docs/cost.md; it is
never tuned to a measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerCost:
    """Multiply-adds of one decoder layer.

    Args:
        row: per row that runs in full: every projection and the MLP or active experts.
        write: per row whose cache entry is written: the part of ``row`` a filled row needs
            (the key and value projections).
        pair: per query-key pair: scores plus values over all query heads.
        window: keys a query sees, itself included; None for full attention.
    """

    row: int
    write: int
    pair: int
    window: int | None = None

    def pairs(self, positions: Tensor) -> int:
        """Query-key pairs of queries at int64 ``positions`` ``[rows]``."""
        seen = positions + 1
        if self.window is not None:
            seen = seen.clamp_max(self.window)
        return int(seen.sum())

    def run(self, positions: Tensor) -> int:
        """Multiply-adds of running rows at ``positions`` ``[rows]`` in full."""
        return len(positions) * self.row + self.pairs(positions) * self.pair


@dataclass(frozen=True)
class ModelCost:
    """Multiply-adds of a decoder: its layers in order, and one row of logits."""

    layers: tuple[LayerCost, ...]
    logits: int

    def exact(self, length: int) -> int:
        """A stock prefill of ``length`` tokens with one row of logits."""
        positions = torch.arange(length)
        return sum(layer.run(positions) for layer in self.layers) + self.logits

    def filled(self, exact: Tensor, split: int, fill: Sequence[int], tail: int) -> int:
        """A filled prefill.

        Args:
            exact: bool ``[seq]``, the exact rows of one prompt, the tail among them.
            split: first late layer.
            fill: per layer after the split, what filling one row costs: map plus projections,
                or one folded map.
            tail: length of the tail. Exact rows before it need no output of the last layer, so
                there they only write its cache.
        """
        length = len(exact)
        every = torch.arange(length)
        rows = exact.nonzero()[:, 0]
        filled_rows = length - len(rows)
        total = sum(layer.run(every) for layer in self.layers[:split]) + self.logits
        for index, layer in enumerate(self.layers[split:], start=split):
            per_row = layer.write if index == split else fill[index - split - 1]
            total += filled_rows * per_row
            if index < len(self.layers) - 1:
                total += layer.run(rows)
            else:
                last = rows[rows >= length - tail]
                total += layer.run(last) + (len(rows) - len(last)) * layer.write
        return total

    def ideal(self, exact: Tensor, split: int, fill: Sequence[int], tail: int) -> float:
        """The ideal speed-up: multiply-adds of the exact prefill over those of the plan."""
        return self.exact(len(exact)) / self.filled(exact, split, fill, tail)
