"""Peak memory of tensors is counted exactly."""

import torch

from ridgefill.bench.memory import TensorMemory


def test_counts_what_is_alive_at_once():
    before = torch.zeros(1000)
    with TensorMemory() as memory:
        first = before + 1  # 4000 bytes
        second = first * 2  # 8000
        first.add_(1)
        view = second.view(10, 100)[3:]
        before.mul_(2)
        del first  # 4000
        third = torch.cat([second, second])  # 12000
        del second, view  # 8000: the view held second
        torch.ones(500)  # 10000, at once freed
    assert memory.peak == 12000
    assert memory.alive == third.nbytes == 8000


def test_a_view_keeps_its_storage_alive():
    with TensorMemory() as memory:
        part = torch.ones(1000)[:1]
        assert memory.alive == 4000
        del part
    assert memory.alive == 0
