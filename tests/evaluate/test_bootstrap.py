"""Intervals cover: in simulations they hold the true value about 95 times in 100."""

import numpy as np
import pytest

from ridgefill.evaluate.bootstrap import (
    Interval,
    mean_interval,
    paired_interval,
    ratio_interval,
)

ROUNDS = 1500
RESAMPLES = 800
SLACK = 2 * (0.95 * 0.05 / ROUNDS) ** 0.5
"""Two standard errors of a coverage estimated from this many rounds: about one point."""


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([found.low <= truth <= found.high for found in intervals]))


def check(found: float) -> None:
    assert 0.92 - SLACK <= found <= 0.98 + SLACK, found


# p_lost: exact right, filled wrong; p_won: the other way round.
@pytest.mark.parametrize(
    ("p_lost", "p_won", "n"),
    [(0.3, 0.1, 30), (0.5, 0.4, 30), (0.3, 0.05, 60), (0.1, 0.05, 60), (0.1, 0.02, 120)],
)
def test_paired_binary(p_lost: float, p_won: float, n: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    cells = draw.choice(4, p=_cells(p_lost, p_won), size=(ROUNDS, n))
    exact, filled = (cells % 2 == 0).astype(float), ((cells == 0) | (cells == 1)).astype(float)
    found = [
        paired_interval(b, a, bounds=(-1, 1), resamples=RESAMPLES)
        for a, b in zip(exact, filled, strict=True)
    ]
    check(coverage(found, p_won - p_lost))


def _cells(p_lost: float, p_won: float) -> list[float]:
    """Both right, filled alone right, exact alone right, both wrong."""
    rest = 1 - p_lost - p_won
    return [0.7 * rest, p_won, p_lost, 0.3 * rest]


def _student(draw: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    return draw.standard_t(3, size=shape) + 0.2, 0.2


def _spikes(draw: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    """A difference of losses: two exponentials with spikes in one of twenty documents."""
    size = np.where(draw.random(shape) < 0.05, 5.0, 1.0)
    values = size * (draw.exponential(size=shape) - draw.exponential(size=shape))
    return values + 0.3, 0.3


def _log_normal(draw: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    """Losses of two runs, both log-normal."""
    a, b = (np.exp(draw.normal(size=shape)) for _ in range(2))
    return 1.2 * a - b, 0.2 * np.exp(0.5)


@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize("law", [_student, _spikes, _log_normal])
def test_paired_heavy_tails(law, n: int, seed: int) -> None:  # type: ignore[no-untyped-def]
    values, truth = law(np.random.default_rng(seed), (ROUNDS, n))
    theirs = np.random.default_rng(seed + 1).normal(size=values.shape)
    found = [
        paired_interval(a + b, b, resamples=RESAMPLES) for a, b in zip(values, theirs, strict=True)
    ]
    check(coverage(found, truth))


@pytest.mark.parametrize("n", [20, 60])
def test_ratio_of_sums(n: int, seed: int) -> None:
    """Documents with different numbers of tokens, noisier where there are fewer."""
    draw = np.random.default_rng(seed)
    tokens = draw.integers(5, 60, size=(ROUNDS, n)).astype(float)
    per_token = 0.1 + draw.standard_t(4, size=(ROUNDS, n)) / np.sqrt(tokens)
    found = [
        ratio_interval(a * b, b, resamples=RESAMPLES)
        for a, b in zip(per_token, tokens, strict=True)
    ]
    check(coverage(found, 0.1))


def test_the_mean_is_that_of_the_values(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=33)
    bounded = np.random.default_rng(seed).integers(2, size=33)
    assert mean_interval(values).mean == pytest.approx(values.mean())
    assert mean_interval(bounded, (0, 1)).mean == pytest.approx(bounded.mean())
    weights = np.arange(1.0, 34.0)
    assert ratio_interval(values, weights).mean == pytest.approx(values.sum() / weights.sum())


def test_unanimous_answers_are_not_certain() -> None:
    """Sixteen right answers do not show that every answer is right; more of them say more."""
    few, many = mean_interval([1.0] * 16, (0, 1)), mean_interval([1.0] * 400, (0, 1))
    assert few.high == many.high == 1.0
    assert 0.75 < few.low < 0.95
    assert 0.985 < many.low < 1.0
    same = paired_interval([1.0] * 16, [1.0] * 16, (-1, 1))
    assert same.low < -0.05 < 0.05 < same.high


def test_one_or_two_values_tell_too_little() -> None:
    for values in ([2.0], [2.0, 2.0]):
        found = mean_interval(values)
        assert found.as_json() == {"mean": 2.0, "low": None, "high": None, "n": len(values)}


def test_one_outlier_among_a_few_does_not_blow_the_interval_up(seed: int) -> None:
    """Resamples without it have nearly no spread: unguarded, limits are a hundred spreads away."""
    values = [*(0.01 * np.random.default_rng(seed).random(5)), 2.0]
    found = mean_interval(values)
    error = np.std(values, ddof=1) / len(values) ** 0.5
    assert found.high - found.mean < 4 * error
    assert found.low < 0.01 < found.high


def test_documents_without_tokens_of_a_group_do_not_count() -> None:
    with_empty = ratio_interval([3.0, 0.0, 5.0, 2.0], [2, 0, 4, 1])
    assert with_empty == ratio_interval([3.0, 5.0, 2.0], [2, 4, 1])


def test_the_same_seed_gives_the_same_interval(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=30)
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_refuses_what_is_no_sample() -> None:
    with pytest.raises(ValueError, match="pairs must match, got 2 and 1"):
        paired_interval([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])
    with pytest.raises(ValueError, match="at least one value"):
        ratio_interval([1.0], [0.0])
