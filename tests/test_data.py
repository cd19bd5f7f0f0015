"""The bundled text sample: small, complete, and with disjoint parts."""

from importlib import resources

import pytest

from ridgefill import data

WINDOW = 200


def test_packed_files_fit_the_size_limit() -> None:
    folder = resources.files("ridgefill.data")
    sizes = [len((folder / f"{part}.json.xz").read_bytes()) for part in data.PARTS]
    assert min(sizes) > 0
    assert sum(sizes) <= 1_000_000


def test_licences_name_every_document() -> None:
    licences = (resources.files("ridgefill.data") / "LICENSES.md").read_text(encoding="utf-8")
    prefixes = {
        document.name.split("/")[0] for part in data.PARTS for document in data.sample(part)
    }
    assert all(f"`{prefix}/...`" in licences for prefix in prefixes)


@pytest.mark.parametrize("part", data.PARTS)
def test_every_kind_is_in_every_part(part: str) -> None:
    documents = data.sample(part)
    assert {document.kind for document in documents} == set(data.KINDS)
    assert all(len(document.text) > 1_000 for document in documents)
    assert len({document.name for document in documents}) == len(documents)


def test_held_out_novels_are_whole() -> None:
    texts = {document.name: document.text for document in data.sample("held_out")}
    persuasion = texts["austen/persuasion"]
    assert persuasion.startswith("Persuasion\n\nby\n\nJane Austen")
    assert persuasion.endswith("Finis\n")
    abbey = texts["austen/northangerabbey"]
    assert "CHAPTER 31" in abbey
    assert "reward filial disobedience" in abbey[-200:]


def test_parts_share_no_document() -> None:
    fit, held_out = ({document.name for document in data.sample(part)} for part in data.PARTS)
    assert not fit & held_out


def test_parts_share_no_long_passage() -> None:
    """No run of 2 * WINDOW characters is in both: it would hold an aligned window of fit."""
    fit = {
        document.text[at : at + WINDOW]
        for document in data.sample("fit")
        for at in range(0, len(document.text) - WINDOW + 1, WINDOW)
    }
    for document in data.sample("held_out"):
        text = document.text
        windows = (text[at : at + WINDOW] for at in range(len(text) - WINDOW + 1))
        assert fit.isdisjoint(windows), f"{document.name} shares a passage with the fit part"


@pytest.mark.parametrize("part", ["held-out", "test", ""])
def test_unknown_part_is_refused_with_a_remedy(part: str) -> None:
    with pytest.raises(ValueError, match="'fit', 'held_out'") as caught:
        data.sample(part)
    assert repr(part) in str(caught.value)


@pytest.mark.parametrize("part", data.PARTS)
def test_sample_is_deterministic_and_safe_to_change(part: str) -> None:
    first = data.sample(part)
    kept = list(first)
    first.clear()
    assert data.sample(part) == kept
    data._read.cache_clear()
    assert data.sample(part) == kept
