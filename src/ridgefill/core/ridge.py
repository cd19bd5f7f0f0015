"""Ridge regression in closed form from sufficient statistics.

One eigendecomposition of the standardised Gram matrix serves every layer and every penalty. The
penalty of each layer is the one with the least squared error on held-out statistics, computed from
Gram matrices alone. The bias is unpenalised (centring), columns are standardised so that one
penalty means the same for every source.

Source of the method: Hoerl and Kennard, "Ridge Regression: Biased Estimation for Nonorthogonal
Problems" (1970); the per-layer affine predictor is that of arXiv:2611.09709.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.core.statistics import Statistics

PENALTIES: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Penalties tried, in units of the variance of a (standardised) source column."""


@dataclass(frozen=True)
class RidgeSolution:
    """Affine maps ``y = x @ weight + bias``.

    weight ``[layers, p, hidden]``, bias ``[layers, hidden]`` fp64; ``penalties`` and ``r2``
    (held-out, pooled over the target's columns) one float per layer.
    """

    layers: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    penalties: list[float]
    r2: list[float]


def solve(
    train: Statistics, held_out: Statistics, penalties: Sequence[float] = PENALTIES
) -> RidgeSolution:
    """Fit one affine map per layer of ``train``, choosing each penalty on ``held_out``.

    Rank-deficient Gram matrices (repeated text, fewer rows than features) are fine: every penalty
    is positive. Raises NotEnoughTextError when either part has fewer than two rows.
    """
    for name, part in (("training", train), ("held-out", held_out)):
        if part.count < 2:
            raise NotEnoughTextError(
                f"only {int(part.count)} {name} rows after leaving out the sink tokens: "
                "give more calibration text"
            )
    x_mean, scale = train.x_sum / train.count, _column_scale(train)
    eigenvalues, basis = torch.linalg.eigh(_centred_gram(train, x_mean, scale))
    eigenvalues = eigenvalues.clamp_min(0)
    held_x_mean = held_out.x_sum / held_out.count
    held_gram = basis.T @ _centred_gram(held_out, held_x_mean, scale) @ basis
    shift = (held_x_mean - x_mean) / scale @ basis  # held-out mean in the training basis

    weights, biases, chosen, scores = [], [], [], []
    for row in range(len(train.layers)):
        y_mean = train.y_sum[row] / train.count
        moments = basis.T @ _centred_cross(train, row, x_mean, scale)
        error = _HeldOutError(held_out, row, held_gram, basis, scale, moments, y_mean, shift)
        shrink = [1.0 / (eigenvalues + penalty) for penalty in penalties]
        errors = torch.stack([error(factor) for factor in shrink])
        best = int(errors.argmin())
        weight = (basis / scale[:, None]) @ (shrink[best][:, None] * moments)
        weights.append(weight)
        biases.append(y_mean - x_mean @ weight)
        chosen.append(float(penalties[best]))
        scores.append(float(1.0 - errors[best] / error.total.clamp_min(1e-300)))
    return RidgeSolution(train.layers, torch.stack(weights), torch.stack(biases), chosen, scores)


def predicted_moments(part: Statistics, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and second moment over rows of ``x @ weight + bias``.

    weight ``[p, k]``, bias ``[k]``; returns two ``[k]`` tensors.
    """
    x_mean = part.x_sum / part.count
    mean = x_mean @ weight + bias
    gram = part.xtx / part.count - torch.outer(x_mean, x_mean)
    variance = ((gram @ weight) * weight).sum(0).clamp_min(0)
    return mean, variance + mean.square()


class _HeldOutError:
    """Mean squared held-out error of one layer as a quadratic form in the shrinkage factors.

    With ``W = basis diag(f) m``, the error is ``f' (G o mm') f - 2 f' c + const``; the Hadamard
    product is formed once, so trying a penalty costs ``p^2``.
    """

    def __init__(
        self,
        held_out: Statistics,
        row: int,
        held_gram: Tensor,
        basis: Tensor,
        scale: Tensor,
        moments: Tensor,
        y_mean: Tensor,
        shift: Tensor,
    ) -> None:
        held_x_mean = held_out.x_sum / held_out.count
        held_y_mean = held_out.y_sum[row] / held_out.count
        cross = basis.T @ _centred_cross(held_out, row, held_x_mean, scale)
        offset = held_y_mean - y_mean
        second = held_gram + torch.outer(shift, shift)
        self.quadratic = second * (moments @ moments.T)
        self.linear = ((cross + torch.outer(shift, offset)) * moments).sum(1)
        self.total = (held_out.y_sq[row] / held_out.count - held_y_mean.square()).sum()
        self.constant = self.total + offset.square().sum()

    def __call__(self, factor: Tensor) -> Tensor:
        return self.constant - 2 * factor @ self.linear + factor @ self.quadratic @ factor


def _column_scale(part: Statistics) -> Tensor:
    """Standard deviation of each source column; 1 for constant columns."""
    variance = part.xtx.diagonal() / part.count - (part.x_sum / part.count).square()
    floor = 1e-12 * part.xtx.diagonal() / part.count
    deviation = variance.clamp_min(0).sqrt()
    return torch.where(variance > floor, deviation, torch.ones_like(deviation))


def _centred_gram(part: Statistics, mean: Tensor, scale: Tensor) -> Tensor:
    gram = part.xtx / part.count - torch.outer(mean, mean)
    return gram / scale[:, None] / scale[None, :]


def _centred_cross(part: Statistics, row: int, mean: Tensor, scale: Tensor) -> Tensor:
    y_mean = part.y_sum[row] / part.count
    return (part.xty[row] / part.count - torch.outer(mean, y_mean)) / scale[:, None]
