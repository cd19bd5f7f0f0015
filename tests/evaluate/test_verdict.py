"""Verdicts: safe, harmful or unsure, and how many more samples would decide."""

from typing import Any

import numpy as np
import pytest

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.bootstrap import mean_interval
from ridgefill.evaluate.summary import summarise
from ridgefill.evaluate.verdict import Limits, check_least, check_most

LIMITS = Limits(max_distant_loss=0.01, min_needle=0.9)


def loss_record(number: int, exact: float, filled: float) -> dict[str, Any]:
    def sums(distant: float) -> dict[str, Any]:
        loss = {"mean": 300.0, "distant": distant, "novel": 90.0}
        return {"loss": loss, "kl": 1.0, "agree": 90}

    return {
        "id": f"loss/{number}",
        "kind": "loss",
        "source": "text",
        "length": 1024,
        "tokens": {"mean": 100, "distant": 10, "novel": 30},
        "plans": {"exact": sums(exact), "filled": sums(filled)},
    }


def answer_record(number: int, exact: bool, filled: bool, region: str = "filled") -> dict[str, Any]:
    def plan(right: bool, place: str) -> dict[str, Any]:
        return {"score": float(right), "by_reference": [float(right)], "regions": [place]}

    return {
        "id": f"niah/{number}",
        "kind": "answer",
        "task": "niah",
        "length": 1024,
        "plans": {"exact": plan(exact, "exact"), "filled": plan(filled, region)},
    }


def verdict(records: list[dict[str, Any]]) -> dict[str, Any]:
    found = summarise(records, "exact", ["filled"], ["niah"], LIMITS)
    return found["verdicts"][0]


def losses(increase: float, seed: int, n: int = 40, noise: float = 0.002) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    exact = draw.uniform(20, 40, size=n)
    factor = 1 + increase + noise * draw.normal(size=n)
    return [loss_record(i, a, a * b) for i, (a, b) in enumerate(zip(exact, factor, strict=True))]


def answers(kept: int, n: int = 60) -> list[dict[str, Any]]:
    return [answer_record(i, True, i < kept) for i in range(n)]


def test_safe(seed: int) -> None:
    found = verdict(losses(0.001, seed) + answers(60))
    assert found["answer"] == "safe"
    assert [check["answer"] for check in found["checks"]] == ["safe", "safe"]


@pytest.mark.parametrize(("increase", "kept", "broken"), [(0.05, 60, 0), (0.001, 10, 1)])
def test_one_broken_limit_is_enough(increase: float, kept: int, broken: int, seed: int) -> None:
    found = verdict(losses(increase, seed) + answers(kept))
    assert found["answer"] == "harmful"
    assert found["checks"][broken]["answer"] == "harmful"
    assert found["checks"][1 - broken]["answer"] == "safe"


def test_unsure_says_how_many_more(seed: int) -> None:
    found = verdict(losses(0.001, seed) + answers(20, 20))
    (distant, needle) = found["checks"]
    assert (found["answer"], distant["answer"], needle["answer"]) == ("unsure", "safe", "unsure")
    more = verdict(losses(0.001, seed) + answers(20 + needle["more"], 20 + needle["more"]))
    assert more["answer"] == "safe"


def test_too_near_to_the_limit_for_any_number(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=30)
    values += 0.01 - values.mean()
    check = check_most(
        "x", 0.01, mean_interval(values), lambda k: mean_interval(list(values) * k, resamples=500)
    )
    assert (check.answer, check.more) == ("unsure", None)


def test_most_and_least_are_mirrored(seed: int) -> None:
    values = np.random.default_rng(seed).normal(loc=0.3, size=25)
    for limit in (-1.0, 0.0, 0.3, 0.6, 2.0):
        most = check_most("x", limit, mean_interval(values), lambda k: mean_interval(values))
        least = check_least("x", -limit, mean_interval(-values), lambda k: mean_interval(-values))
        assert most.answer == least.answer


def test_what_was_not_measured_is_never_safe(seed: int) -> None:
    found = verdict(losses(0.001, seed))
    assert (found["answer"], found["unmeasured"]) == ("unsure", ["needle"])
    found = verdict(answers(60))
    assert (found["answer"], found["unmeasured"]) == ("unsure", ["distant_loss"])
    assert verdict(answers(5))["answer"] == "harmful"


def test_only_right_answers_of_the_filled_region_count(seed: int) -> None:
    wrong = [answer_record(100 + i, False, False) for i in range(50)]
    elsewhere = [answer_record(200 + i, True, False, "exact") for i in range(50)]
    found = verdict(losses(0.001, seed) + answers(60) + wrong + elsewhere)
    assert found["answer"] == "safe"
    assert found["checks"][1]["interval"]["n"] == 60


@pytest.mark.parametrize(
    ("limits", "says"),
    [({"max_distant_loss": -0.1}, "got -0.1"), ({"min_needle": 1.5}, "from 0 to 1, got 1.5")],
)
def test_refusals(limits: dict[str, float], says: str) -> None:
    with pytest.raises(RidgeFillError, match=says):
        Limits(**limits)
