"""TTFT against an engine whose costs are known."""

import time
from types import SimpleNamespace

import pytest
import torch

from ridgefill.bench import timing, ttft
from ridgefill.bench.prompts import Prompts, stream
from ridgefill.bench.timing import Stopwatch, median_ratio, ratio_of_medians, rotated
from ridgefill.core.engine import Method
from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.core.maps import BaseModel, FillMaps, MapsConfig
from ridgefill.core.rows import RowPlan

SECONDS = {"exact": 0.06, "fast": 0.02, "other": 0.03}


class FakeEngine:
    """Moves a clock by a known time per prefill; ``other`` gets every first token wrong."""

    def __init__(self):
        self.calls = []
        self.now = 0.0

    def prefill(self, input_ids, method, keep=1):
        self.calls.append((method.name, input_ids.shape[1], input_ids.tolist()))
        self.now += SECONDS[method.name]
        logits = torch.zeros(1, 1, 7)
        logits[0, 0, 5 if method.name == "other" else 3] = 1
        return None, logits

    def forward(self, input_ids, cache):
        raise AssertionError("TTFT decodes nothing")

    def ideal(self, method, length):
        return 1.0 if method.maps is None else 4.0


def method(name):
    config = MapsConfig(BaseModel("m", None, "c", "w"), 2, 6, 8, (2,), kind="identity")
    return Method(name, FillMaps(config), RowPlan(tail=5, sinks=1))


METHODS = [Method("exact"), method("fast"), method("other")]
PROMPTS = Prompts(torch.arange(5000), seed=7)


@pytest.fixture
def engine(monkeypatch):
    """An engine whose clock is the benchmark's: CPU time runs at half the wall time."""
    fake = FakeEngine()
    clocks = {"process_time": lambda: fake.now / 2, "perf_counter": lambda: fake.now}
    monkeypatch.setattr(timing, "time", SimpleNamespace(**clocks))
    return fake


def measure(repeats=3, lengths=(16, 32), methods=METHODS, prompts=PROMPTS, engine=None, **options):
    engine = engine or FakeEngine()
    rows = ttft.measure(engine, methods, lengths, prompts, repeats=repeats, **options)
    return engine, rows


def test_ratios_are_those_of_the_known_costs(engine):
    _, rows = measure(engine=engine)
    by_name = {row["method"]: row for row in rows if row["length"] == 32}
    for name, row in by_name.items():
        assert row["ttft_wall_s"] == pytest.approx(SECONDS[name])
        assert row["ttft_cpu_s"] == pytest.approx(SECONDS[name] / 2)
        expected = SECONDS["exact"] / SECONDS[name]
        for ratio in ("ratio_cpu", "ratio_wall", "round_ratio_cpu", "round_ratio_wall"):
            assert row[ratio] == pytest.approx(expected)
        assert row["measured_over_ideal"] == pytest.approx(row["ratio_cpu"] / row["ideal"])
        assert len(row["rounds_cpu_s"]) == len(row["rounds_wall_s"]) == row["repeats"] == 3
    assert by_name["exact"]["ratio_cpu"] == by_name["exact"]["ideal"] == 1.0


def test_first_tokens_are_compared_with_exact():
    _, rows = measure(repeats=1, lengths=(16,))
    assert [row["first_token_same"] for row in rows] == [1.0, 1.0, 0.0]


def test_rows_describe_the_plan():
    _, rows = measure(repeats=1, lengths=(16,))
    assert "tail" not in rows[0]
    assert (rows[1]["kind"], rows[1]["split"], rows[1]["tail"], rows[1]["sinks"]) == (
        "identity",
        2,
        5,
        1,
    )


def test_rounds_interleave_in_rotating_order_after_one_warm_up_each():
    engine, _ = measure(lengths=(16,))
    order = [call[0] for call in engine.calls]
    assert order == ["exact", "fast", "other"] * 2 + [
        *("fast", "other", "exact"),
        *("other", "exact", "fast"),
    ]
    assert len(order) == ttft.prefills(methods=3, lengths=1, repeats=3)


def test_a_round_shares_a_prompt_and_rounds_do_not():
    engine, _ = measure(lengths=(16,))
    prompts = [str(call[2]) for call in engine.calls]
    rounds = [set(prompts[start : start + 3]) for start in range(0, len(prompts), 3)]
    assert all(len(group) == 1 for group in rounds)
    assert len(set.union(*rounds)) == len(rounds)


def test_every_prefill_is_reported():
    told = []
    measure(repeats=1, lengths=(16,), report=lambda *done: told.append(done))
    assert told == [(16, name) for name in ("exact", "fast", "other")] * 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"methods": [method("fast")]}, "must be exact"),
        ({"methods": [Method("exact"), Method("exact2")]}, "must be exact"),
        ({"methods": [Method("exact"), method("fast"), method("fast")]}, "distinct names"),
        ({"repeats": 0}, "repeats"),
        ({"lengths": ()}, "lengths"),
        ({"lengths": (16, 1)}, "lengths"),
        ({"lengths": (16, 5001)}, "5001"),
    ],
)
def test_bad_arguments_are_refused_before_any_prefill(monkeypatch, options, says):
    def prefill(*arguments, **named):
        raise AssertionError("a prefill ran")

    monkeypatch.setattr(FakeEngine, "prefill", prefill)
    with pytest.raises(RidgeFillError, match=says):
        measure(**options)


def test_prompts_repeat_by_seed_and_are_slices(seed):
    ids = torch.randint(0, 50, (900,))
    one, same, other = Prompts(ids, seed), Prompts(ids, seed), Prompts(ids, seed + 1)
    assert one.take(100, 2).shape == (1, 100)
    assert torch.equal(one.take(100, 2), same.take(100, 2))
    assert any(not torch.equal(one.take(100, n), other.take(100, n)) for n in range(4))
    assert torch.equal(one.take(900, 0)[0], ids)
    with pytest.raises(NotEnoughTextError, match="900 tokens"):
        one.take(901, 0)


def test_stream_joins_token_ids():
    def tokenizer(text, **options):
        return {"input_ids": [len(word) for word in text.split()]}

    assert stream(tokenizer, ["a bb", "ccc"]).tolist() == [1, 2, 3]


def test_ratios_use_medians():
    assert ratio_of_medians([4.0, 100.0, 2.0], [1.0, 2.0, 3.0]) == 2.0
    assert median_ratio([4.0, 9.0, 2.0], [1.0, 3.0, 2.0]) == 3.0
    assert ratio_of_medians([1.0], [0.0]) == median_ratio([1.0], [0.0]) == 0.0


def test_rotation_puts_each_first_equally_often():
    names = ["a", "b", "c"]
    assert [rotated(names, number)[0] for number in range(6)] == names * 2
    assert all(sorted(rotated(names, number)) == names for number in range(6))


def test_stopwatch_tells_waiting_from_working():
    watch = Stopwatch()
    with watch:
        time.sleep(0.05)
    assert watch.wall[0] >= 0.05
    assert watch.cpu[0] < 0.04
