"""Sufficient statistics equal sums over the rows themselves, however the rows arrive."""

import pytest
import torch
from torch import Tensor

from ridgefill.core.errors import NonFiniteError, RidgeFillError
from ridgefill.core.statistics import Statistics

FEATURES, HIDDEN, KEYS, LAYERS = 7, 5, 6, (3, 4, 9)


class Rows:
    """Random rows of sources, of a target per layer, and of keys."""

    def __init__(self, count: int) -> None:
        self.x = torch.randn(count, FEATURES) + 2
        self.y = {layer: torch.randn(count, HIDDEN) - layer for layer in LAYERS}
        self.k = {layer: torch.randn(count, KEYS) for layer in LAYERS}

    def add_to(self, statistics: Statistics, rows: slice = slice(None)) -> None:
        statistics.add_sources(self.x[rows])
        for layer in LAYERS:
            statistics.add_target(layer, self.x[rows], self.y[layer][rows], self.k[layer][rows])


def empty(features: int = FEATURES) -> Statistics:
    return Statistics(features, LAYERS, HIDDEN, KEYS)


def assert_close(ours: Statistics, theirs: dict[str, Tensor]) -> None:
    assert ours.tensors().keys() == theirs.keys()
    for name, tensor in ours.tensors().items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-5, atol=1e-4)


def test_sums(seed: int) -> None:
    rows, statistics = Rows(200), empty()
    rows.add_to(statistics)
    x = rows.x.double()
    y, k = (torch.stack([part[i] for i in LAYERS]).double() for part in (rows.y, rows.k))
    expected = {
        "count": torch.tensor(200.0, dtype=torch.float64),
        "x_sum": x.sum(0),
        "xtx": torch.einsum("ri,rj->ij", x, x),
        "y_sum": y.sum(1),
        "y_sq": (y * y).sum(1),
        "xty": torch.einsum("ri,lrj->lij", x, y),
        "k_sum": k.sum(1),
        "k_sq": (k * k).sum(1),
    }
    assert_close(statistics, expected)
    assert statistics.features == FEATURES


def test_parts_and_merging(seed: int) -> None:
    """Rows in batches, on two workers, in any order: the sums of one pass."""
    rows, whole = Rows(90), empty()
    rows.add_to(whole)
    first, second = empty(), empty()
    for start in range(0, 90, 10):
        rows.add_to(first if start % 20 else second, slice(start, start + 10))
    second.merge(first)
    assert_close(second, whole.tensors())
    assert int(second.count) == 90
    assert int(first.count) == 40


def test_accumulation_is_fp64(seed: int) -> None:
    """A hundred thousand small additions to a large sum are not lost, as they are in fp32."""
    statistics = Statistics(1, (1,), 1)
    statistics.add_sources(torch.tensor([[4096.0]]))
    for _ in range(2000):
        statistics.add_sources(torch.full((1, 1), 1.0))
    assert float(statistics.xtx) == 4096.0**2 + 2000
    tiny = torch.tensor(4096.0**2) + torch.tensor(0.5)
    assert float(tiny) == 4096.0**2


def test_half_precision_rows_do_not_overflow(seed: int) -> None:
    statistics = Statistics(1, (1,), 1)
    rows = torch.full((100, 1), 1000.0, dtype=torch.float16)
    statistics.add_sources(rows)
    statistics.add_target(1, rows, rows)
    assert float(statistics.x_sum) == 1e5
    assert float(statistics.xtx) == float(statistics.y_sq) == float(statistics.xty) == 1e8


def test_save_and_load(seed: int) -> None:
    rows, statistics, other = Rows(20), empty(), empty()
    rows.add_to(statistics)
    other.load_tensors(statistics.tensors())
    for name, tensor in statistics.tensors().items():
        assert torch.equal(other.tensors()[name], tensor)
        assert other.tensors()[name].data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_rows(value: float, seed: int) -> None:
    """Refused with the place, and the sums stay as they were."""
    rows, statistics = Rows(30), empty()
    rows.add_to(statistics)
    before = {name: tensor.clone() for name, tensor in statistics.tensors().items()}
    bad = rows.x.clone()
    bad[int(torch.randint(30, ())), int(torch.randint(FEATURES, ()))] = value
    with pytest.raises(NonFiniteError, match="sources"):
        statistics.add_sources(bad)
    target = rows.y[4].clone()
    target[int(torch.randint(30, ())), int(torch.randint(HIDDEN, ()))] = value
    with pytest.raises(NonFiniteError, match="layer 4"):
        statistics.add_target(4, rows.x, target)
    for name, tensor in statistics.tensors().items():
        assert torch.equal(tensor, before[name])


def test_statistics_of_other_fits(seed: int) -> None:
    statistics = empty()
    for other in (
        empty(FEATURES + 1),
        Statistics(FEATURES, (3, 4), HIDDEN, KEYS),
        Statistics(FEATURES, (3, 4, 10), HIDDEN, KEYS),
        Statistics(FEATURES, LAYERS, HIDDEN + 1, KEYS),
        Statistics(FEATURES, LAYERS, HIDDEN, KEYS + 1),
    ):
        with pytest.raises(RidgeFillError, match="cannot merge"):
            statistics.merge(other)
    with pytest.raises(RidgeFillError, match="another fit"):
        statistics.load_tensors(empty(FEATURES + 1).tensors())
    assert float(statistics.count) == 0
