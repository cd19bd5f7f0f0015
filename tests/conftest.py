"""Fresh random inputs in every run, from one seed that a failing test shows."""

import os

import pytest
import torch

_VARIABLE = "RIDGEFILL_TEST_SEED"
_SEED = int(os.environ.get(_VARIABLE) or int.from_bytes(os.urandom(4), "little"))


def pytest_report_header() -> str:
    return f"{_VARIABLE}={_SEED}"


@pytest.fixture
def seed() -> int:
    """This run's seed, with torch's generator set to it; shown in the output of a failing test."""
    print(f"repeat with {_VARIABLE}={_SEED}")
    torch.manual_seed(_SEED)
    return _SEED
