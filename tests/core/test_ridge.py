"""The closed form equals plain least squares on the rows, penalty by penalty."""

import pytest
import torch
from torch import Tensor

from ridgefill.core.errors import NotEnoughTextError
from ridgefill.core.ridge import PENALTIES, RidgeSolution, predicted_moments, solve
from ridgefill.core.statistics import Statistics
from tests.least_squares import r_squared, ridge_by_least_squares

HIDDEN, LAYERS, TIGHT = 4, (5, 6, 7), 1e-7


class Data:
    """Rows whose columns differ in mean and scale; each layer's target has its own noise."""

    def __init__(self, features: int, train: int, held_out: int) -> None:
        count = train + held_out
        spread = torch.logspace(-1, 1, features)
        mixed = torch.randn(count, features) @ (torch.eye(features) + 0.5 * torch.rand(features, 1))
        self.x = mixed * spread + 3 * torch.randn(features)
        self.train, self.held = slice(0, train), slice(train, count)
        self.y = []
        for noise in (0.05, 1.0, 30.0):
            clean = (self.x / spread) @ torch.randn(features, HIDDEN) + torch.randn(HIDDEN)
            self.y.append(clean + noise * torch.randn(count, HIDDEN))

    def statistics(self, rows: slice) -> Statistics:
        """Sums in fp64 throughout, so that what is compared is the solver's own error."""
        x, y = self.x[rows].double(), torch.stack(self.y)[:, rows].double()
        result = Statistics(x.shape[1], LAYERS, HIDDEN)
        sums = {
            "count": torch.tensor(float(len(x))),
            "x_sum": x.sum(0),
            "xtx": x.T @ x,
            "y_sum": y.sum(1),
            "y_sq": y.square().sum(1),
            "xty": x.T @ y,
        }
        result.load_tensors(result.tensors() | sums)
        return result


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def difference(
    data: Data, solution: RidgeSolution, row: int, weight: Tensor, bias: Tensor
) -> float:
    """Largest difference of predictions, relative to the largest prediction."""
    x = data.x.double()
    return relative(x @ solution.weight[row] + solution.bias[row], x @ weight + bias)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_each_penalty(penalty: float, seed: int) -> None:
    """Weights, unpenalised bias, and R2 on raw held-out rows."""
    data = Data(features=12, train=300, held_out=80)
    solution = solve(data.statistics(data.train), data.statistics(data.held), [penalty])
    for row, target in enumerate(data.y):
        weight, bias = ridge_by_least_squares(data.x[data.train], target[data.train], penalty)
        assert relative(solution.weight[row], weight) < TIGHT
        assert relative(solution.bias[row], bias) < TIGHT
        expected = r_squared(data.x[data.held], target[data.held], weight, bias)
        assert solution.r2[row] == pytest.approx(expected, abs=TIGHT)
    assert solution.penalties == [penalty] * 3


def test_choice_of_penalty(seed: int) -> None:
    """Per layer the one that is best on raw held-out rows; noise asks for more of it."""
    data = Data(features=40, train=60, held_out=60)
    solution = solve(data.statistics(data.train), data.statistics(data.held))
    for row, target in enumerate(data.y):
        scores = {
            penalty: r_squared(
                data.x[data.held],
                target[data.held],
                *ridge_by_least_squares(data.x[data.train], target[data.train], penalty),
            )
            for penalty in PENALTIES
        }
        assert scores[solution.penalties[row]] >= max(scores.values()) - TIGHT
        assert solution.r2[row] == pytest.approx(scores[solution.penalties[row]], abs=TIGHT)
    assert solution.penalties[0] < solution.penalties[2]
    assert solution.r2[0] > solution.r2[2]


def test_rank_deficient_gram(seed: int) -> None:
    """Ten copies of a few rows, far fewer than features: finite, and least squares' solution."""
    data = Data(features=30, train=8, held_out=8)
    copies = 10
    data.x = torch.cat([data.x[data.train]] * copies + [data.x[data.held]])
    data.y = [torch.cat([y[data.train]] * copies + [y[data.held]]) for y in data.y]
    data.train, data.held = slice(0, 80), slice(80, 88)
    for penalty in (1e-2, 1.0):
        solution = solve(data.statistics(data.train), data.statistics(data.held), [penalty])
        for row, target in enumerate(data.y):
            expected = ridge_by_least_squares(data.x[data.train], target[data.train], penalty)
            assert difference(data, solution, row, *expected) < TIGHT
    everything = solve(data.statistics(data.train), data.statistics(data.train))
    assert torch.isfinite(everything.weight).all()
    assert all(score > 0.9 for score in everything.r2)


def test_constant_column(seed: int) -> None:
    """A source that never changes gets no weight and breaks nothing."""
    data = Data(features=6, train=200, held_out=50)
    data.x[:, 2] = 1234.5
    solution = solve(data.statistics(data.train), data.statistics(data.held), [1e-3])
    others = [0, 1, 3, 4, 5]
    for row, target in enumerate(data.y):
        weight, bias = ridge_by_least_squares(
            data.x[data.train][:, others], target[data.train], 1e-3
        )
        full = torch.zeros(6, HIDDEN, dtype=torch.float64)
        full[others] = weight
        assert difference(data, solution, row, full, bias) < TIGHT
    assert torch.isfinite(solution.weight).all()


def test_scale_of_a_source_does_not_matter(seed: int) -> None:
    """One penalty means the same for every source: predictions do not depend on units."""
    data = Data(features=6, train=200, held_out=50)
    first = solve(data.statistics(data.train), data.statistics(data.held), [0.3])
    units = torch.tensor([1e-3, 1e3, 1.0, 10.0, 0.1, 100.0])
    plain = data.x.double() @ first.weight[0] + first.bias[0]
    data.x = data.x * units
    second = solve(data.statistics(data.train), data.statistics(data.held), [0.3])
    assert relative(data.x.double() @ second.weight[0] + second.bias[0], plain) < TIGHT


def test_too_few_rows(seed: int) -> None:
    data = Data(features=6, train=10, held_out=1)
    parts = data.statistics(data.train), data.statistics(data.held)
    with pytest.raises(NotEnoughTextError, match="held-out"):
        solve(*parts)
    with pytest.raises(NotEnoughTextError, match="training"):
        solve(parts[1], parts[0])


def test_predicted_moments(seed: int) -> None:
    """Mean and second moment of an affine map's output, without its rows."""
    data = Data(features=6, train=150, held_out=2)
    weight, bias = torch.randn(6, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    mean, second = predicted_moments(data.statistics(data.train), weight, bias)
    outputs = data.x[data.train].double() @ weight + bias
    torch.testing.assert_close(mean, outputs.mean(0), rtol=TIGHT, atol=TIGHT)
    torch.testing.assert_close(second, outputs.square().mean(0), rtol=TIGHT, atol=TIGHT)
