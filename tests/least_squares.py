"""Ridge regression by plain least squares, independent of the package's closed form."""

import torch
from torch import Tensor


def ridge_by_least_squares(x: Tensor, y: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Weight ``[p, k]`` and unpenalised bias ``[k]`` in fp64.

    Minimises the mean squared error plus ``penalty`` times the squared weights of standardised
    columns of ``x`` ``[rows, p]``, as one augmented system solved by QR or SVD.
    """
    x, y = x.double(), y.double()
    rows, features = x.shape
    scale = x.std(0, unbiased=False)
    scale = torch.where(scale > 1e-6 * x.abs().amax(0), scale, torch.ones_like(scale))
    centred = (x - x.mean(0)) / scale / rows**0.5
    augmented = torch.cat([centred, penalty**0.5 * torch.eye(features, dtype=torch.float64)])
    goal = torch.cat([(y - y.mean(0)) / rows**0.5, y.new_zeros(features, y.shape[1])])
    weight = torch.linalg.lstsq(augmented, goal, driver="gelsd").solution / scale[:, None]
    return weight, y.mean(0) - x.mean(0) @ weight


def r_squared(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> float:
    """R2 pooled over the columns of ``y`` ``[rows, k]``, from the rows themselves."""
    y = y.double()
    error = (y - x.double() @ weight - bias).square().sum()
    return float(1 - error / (y - y.mean(0)).square().sum())
