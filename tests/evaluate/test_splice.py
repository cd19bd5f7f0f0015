"""Splices: everything exact is the exact prefill, nothing is the filled one, parts compose."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ridgefill.core.engine import Method
from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.splice import ALL, SWAPS, Splice, Splicer, splices
from tests.engines.transformers.families import LAYERS, SPLIT
from tests.evaluate.builders import EXACT, TAIL, engine, fills, random_document

FAMILIES = ("llama", "mistral", "qwen3")  # plain, sliding window, key norm
PLANS = ({}, {"chosen": [9, 17, 30]}, {"every": 5, "sinks": 0})


@pytest.fixture(params=FAMILIES)
def session(request: pytest.FixtureRequest, seed: int) -> Any:
    return engine(seed, request.param)


@pytest.mark.parametrize("rows", PLANS)
def test_everything_exact_is_the_exact_prefill(session: Any, rows: dict[str, Any]) -> None:
    ids = random_document(60)
    _, whole = session.prefill(ids, EXACT, keep=TAIL)
    for method in fills(session, **rows):
        splicer = Splicer(session, method, ids, TAIL)
        _, exact = splicer.exact_logits()
        _, spliced = splicer.logits(Splice(ALL, SPLIT, LAYERS - 1))
        assert torch.equal(spliced, exact)
        torch.testing.assert_close(exact, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", PLANS)
def test_nothing_spliced_is_the_filled_prefill(session: Any, rows: dict[str, Any]) -> None:
    ids = random_document(60)
    for method in fills(session, **rows):
        _, filled = session.prefill(ids, method, keep=TAIL)
        splicer = Splicer(session, method, ids, TAIL)
        assert torch.equal(splicer.logits(None)[1], filled)
        assert not torch.allclose(filled, splicer.exact_logits()[1], atol=1e-3)


def test_keys_and_values_are_everything(session: Any) -> None:
    method = fills(session)[1]
    splicer = Splicer(session, method, random_document(60), TAIL)
    assert splicer.components(range(SPLIT, LAYERS)) == (
        "keys",
        "key-scale",
        "key-direction",
        "values",
    )
    keys = _cache(splicer, session, "keys")
    exact, filled = splicer.exact, splicer.filled
    for layer in range(SPLIT, LAYERS):
        assert torch.equal(keys[layer]["keys"], session.layer_states(exact, layer)["keys"])
        assert torch.equal(keys[layer]["values"], session.layer_states(filled, layer)["values"])
    values = _cache(splicer, session, "values")
    for layer in range(SPLIT, LAYERS):
        assert torch.equal(values[layer]["values"], session.layer_states(exact, layer)["values"])
        assert torch.equal(values[layer]["keys"], session.layer_states(filled, layer)["keys"])


def test_scale_and_direction_compose_to_the_keys(session: Any) -> None:
    splicer = Splicer(session, fills(session)[1], random_document(60), TAIL)
    for layer in range(SPLIT + 1, LAYERS):
        exact = session.layer_states(splicer.exact, layer)["keys"]
        filled = session.layer_states(splicer.filled, layer)["keys"]
        scale, direction = SWAPS["key-scale"][1], SWAPS["key-direction"][1]
        for first, second in ((scale, direction), (direction, scale)):
            torch.testing.assert_close(second(first(filled, exact), exact), exact)
        lengths = scale(filled, exact).norm(dim=-1)
        torch.testing.assert_close(lengths, exact.norm(dim=-1))
        cosines = torch.cosine_similarity(direction(filled, exact), exact, dim=-1)
        torch.testing.assert_close(cosines, torch.ones_like(cosines))
        torch.testing.assert_close(direction(filled, exact).norm(dim=-1), filled.norm(dim=-1))


def test_only_the_named_layers_change(session: Any) -> None:
    splicer = Splicer(session, fills(session)[1], random_document(60), TAIL)
    changed = _cache(splicer, session, ALL, SPLIT + 1, SPLIT + 1)
    for layer in range(LAYERS):
        donor = splicer.exact if layer == SPLIT + 1 else splicer.filled
        for name, state in session.layer_states(donor, layer).items():
            assert torch.equal(changed[layer][name], state), (layer, name)


def test_a_splice_leaves_both_caches_alone(session: Any) -> None:
    splicer = Splicer(session, fills(session)[1], random_document(60), TAIL)
    before = splicer.logits(None)[1]
    splicer.logits(Splice(ALL, SPLIT, LAYERS - 1))
    assert torch.equal(splicer.logits(None)[1], before)


def _cache(
    splicer: Splicer, session: Any, component: str, first: int = SPLIT, last: int = LAYERS - 1
) -> list[dict[str, Tensor]]:
    """Per layer, the states before the tail that a splice made."""
    kept: dict[str, Any] = {}
    forward = session.forward

    def spy(rows: Tensor, cache: Any, keep: int | None = None) -> Tensor:
        kept["states"] = [
            {name: state.clone() for name, state in session.layer_states(cache, layer).items()}
            for layer in range(LAYERS)
        ]
        return forward(rows, cache, keep)

    session.forward = spy
    try:
        splicer.logits(Splice(component, first, last))
    finally:
        session.forward = forward
    return kept["states"]


class _LinearEngine:
    """Caches of one attention layer and one linear-attention layer with two conv states."""

    def before_tail(self, input_ids: Tensor, method: Method, tail: int) -> Any:
        fill = 0.0 if method.maps is None else 1.0
        names = ("conv_state", "conv_state.1", "recurrent_state")
        return [
            {"keys": torch.full((1, 1, 4, 2), fill), "values": torch.full((1, 1, 4, 2), fill)},
            {name: torch.full((1, 3, 2), fill) for name in names},
        ]

    def layer_states(self, cache: Any, layer: int) -> dict[str, Tensor]:
        return cache[layer]

    def forward(self, input_ids: Tensor, cache: Any, keep: int | None = None) -> Tensor:
        return torch.tensor([[[float(s.mean()) for layer in cache for s in layer.values()]]])


@pytest.mark.parametrize(
    ("component", "left"),
    [
        ("recurrent-state", [1, 1, 1, 1, 0]),
        ("conv-state", [1, 1, 0, 0, 1]),
        ("values", [1, 0, 1, 1, 1]),
        (ALL, [0, 0, 0, 0, 0]),
    ],
)
def test_linear_attention_states(component: str, left: list[int], seed: int) -> None:
    """Engine-free: a part is swapped in every layer that has it, and in no other place."""
    session: Any = _LinearEngine()
    method = fills(engine(seed))[0]
    splicer = Splicer(session, method, random_document(8), 2)
    assert splicer.components([1]) == ("conv-state", "recurrent-state")
    assert splicer.logits(Splice(component, 0, 1))[1].flatten().tolist() == left


def test_order_of_splices() -> None:
    found = list(splices(("keys", "key-scale", "values"), 3, 6, by_layer=True))
    assert found[0] is None
    ranges = [Splice(name, 3, 5) for name in (ALL, "keys", "key-scale", "values")]
    assert found[1:5] == ranges
    layers = [Splice(name, i, i) for name in (ALL, "keys", "values") for i in (3, 4, 5)]
    assert found[5:] == layers
    assert len(list(splices(("keys",), 3, 6, by_layer=False))) == 3


def test_refusals(seed: int) -> None:
    with pytest.raises(RidgeFillError, match="unknown component 'queries'"):
        Splice("queries", 0, 1)
    with pytest.raises(RidgeFillError, match="layers 3 to 2 are no range"):
        Splice("keys", 3, 2)
    session = engine(seed)
    with pytest.raises(RidgeFillError, match="fills nothing of 14 tokens"):
        Splicer(session, fills(session)[0], random_document(14), TAIL)
