"""One-pass sufficient statistics of an affine regression, mergeable across workers and runs.

Ridge regression needs only sums over rows (Hoerl and Kennard, 1970), so memory does not grow
with the calibration text. Products are taken in fp32 and accumulated in fp64.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ridgefill.core.errors import NonFiniteError, RidgeFillError

_PARTS = ("count", "x_sum", "xtx", "y_sum", "y_sq", "xty", "k_sum", "k_sq")


class Statistics:
    """Sums over rows of sources ``x`` and of one target ``y`` per mapped layer.

    Args:
        features: width of the concatenated sources, ``p``.
        layers: the mapped layer indices, in order.
        hidden: width of each target.
        key_width: width of the layers' keys (``kv_heads * head_dim``), or 0 when key moments
            are not collected. Key moments serve the per-head key-scale correction.
        device: where the sums live.

    Tensors (all fp64): ``count []``, ``x_sum [p]``, ``xtx [p, p]``, ``y_sum``, ``y_sq``
    ``[layers, hidden]``, ``xty [layers, p, hidden]``, ``k_sum``, ``k_sq`` ``[layers, key_width]``.
    """

    def __init__(
        self,
        features: int,
        layers: Sequence[int],
        hidden: int,
        key_width: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.layers = tuple(layers)
        self._row = {layer: row for row, layer in enumerate(self.layers)}
        n, p = len(self.layers), features

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.count, self.x_sum, self.xtx = zeros(), zeros(p), zeros(p, p)
        self.y_sum, self.y_sq, self.xty = zeros(n, hidden), zeros(n, hidden), zeros(n, p, hidden)
        self.k_sum, self.k_sq = zeros(n, key_width), zeros(n, key_width)

    @property
    def features(self) -> int:
        return self.x_sum.shape[0]

    def add_sources(self, x: Tensor) -> None:
        """Add rows of sources ``x`` ``[rows, p]``. Raises NonFiniteError on NaN or infinity."""
        x = x.float()
        total = _finite(x.sum(0), "the sources of the maps")
        self.count += x.shape[0]
        self.x_sum += total
        self.xtx += x.T @ x

    def add_target(self, layer: int, x: Tensor, y: Tensor, keys: Tensor | None = None) -> None:
        """Add rows of layer ``layer``'s target ``y`` ``[rows, hidden]``.

        ``x`` ``[rows, p]`` must be the rows given to `add_sources`; ``keys`` ``[rows, key_width]``
        are the layer's keys before rotary embedding. Raises NonFiniteError.
        """
        row = self._row[layer]
        x, y = x.float(), y.float()
        self.y_sum[row] += _finite(y.sum(0), f"the input of layer {layer}")
        self.y_sq[row] += y.square().sum(0)
        # A layer's device may differ from the first one's under a device map.
        self.xty[row] += (x.to(y.device).T @ y).to(self.xty.device)
        if keys is not None:
            keys = keys.float()
            self.k_sum[row] += keys.sum(0)
            self.k_sq[row] += keys.square().sum(0)

    def merge(self, other: "Statistics") -> None:
        """Add another worker's or run's sums in place. Raises RidgeFillError on other shapes."""
        shapes = ([part.shape for part in s.tensors().values()] for s in (self, other))
        if other.layers != self.layers or next(shapes) != next(shapes):
            raise RidgeFillError(
                f"cannot merge statistics of layers {other.layers} and {self.layers}: "
                "fit both with the same model, split, sources and target"
            )
        for name in _PARTS:
            getattr(self, name).add_(getattr(other, name).to(self.xtx.device))

    def all_reduce(self) -> None:
        """Sum over the processes of the default ``torch.distributed`` group, in place."""
        for name in _PARTS:
            torch.distributed.all_reduce(getattr(self, name))

    def tensors(self) -> dict[str, Tensor]:
        """The sums by name, for saving."""
        return {name: getattr(self, name) for name in _PARTS}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over saved sums. Raises RidgeFillError when a shape differs."""
        for name in _PARTS:
            ours, theirs = getattr(self, name), tensors[name]
            if ours.shape != theirs.shape:
                raise RidgeFillError(
                    f"saved statistics {name!r} have shape {tuple(theirs.shape)}, expected "
                    f"{tuple(ours.shape)}: they belong to another fit"
                )
            ours.copy_(theirs)


def _finite(sums: Tensor, what: str) -> Tensor:
    """Return ``sums`` unless they show that a summand was NaN or infinite."""
    if not bool(torch.isfinite(sums).all()):
        raise NonFiniteError(
            f"NaN or infinity in {what}: the model overflows in this dtype; load it in "
            "bfloat16 or float32 and fit again"
        )
    return sums
