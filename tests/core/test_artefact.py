"""The artefact on disk: it comes back as it was, and damage never goes unnoticed."""

import errno
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from ridgefill.core import artefact
from ridgefill.core.errors import ArtefactError
from ridgefill.core.maps import FillMaps
from tests.core.builders import MAPPED, config, random_maps

CONFIG, TENSORS = artefact.CONFIG_NAME, artefact.TENSORS_NAME


def assert_equal(ours: FillMaps, theirs: FillMaps) -> None:
    assert ours.config == theirs.config
    for name, tensor in theirs.tensors().items():
        mine = ours.tensors()[name]
        assert (mine is None) == (tensor is None)
        if tensor is not None:
            assert mine.dtype == tensor.dtype
            assert torch.equal(mine, tensor)


@pytest.fixture
def saved(seed: int, tmp_path: Path) -> Path:
    random_maps("normed", key_scale=True).save_pretrained(tmp_path / "maps")
    return tmp_path / "maps"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("key_scale", [True, False])
def test_round_trip(key_scale: bool, dtype: torch.dtype, seed: int, tmp_path: Path) -> None:
    """To the bit, in any dtype, and r2 by integer layer."""
    maps = random_maps("normed", key_scale).to(dtype=dtype)
    maps.save_pretrained(tmp_path / "deep" / "maps")
    loaded = FillMaps.from_pretrained(tmp_path / "deep" / "maps")
    assert_equal(loaded, maps)
    assert loaded.r2 == {layer: 0.5 + layer / 100 for layer in MAPPED}


def test_identity_round_trip(tmp_path: Path) -> None:
    maps = FillMaps(config(kind="identity", sources=(2,), provenance={}))
    maps.save_pretrained(tmp_path / "maps")
    assert_equal(FillMaps.from_pretrained(str(tmp_path / "maps")), maps)


def test_views_and_gradients_are_saved(seed: int, tmp_path: Path) -> None:
    maps = random_maps("input")
    wide = torch.randn(*maps.weight.shape[:2], 2 * maps.weight.shape[2], requires_grad=True)
    maps = FillMaps(maps.config, wide[..., ::2], maps.bias)
    maps.save_pretrained(tmp_path / "maps")
    assert torch.equal(FillMaps.from_pretrained(tmp_path / "maps").weight, wide[..., ::2])


def test_files(saved: Path) -> None:
    """Three files, readable as the umask says, a card that names the base model, no litter."""
    assert sorted(path.name for path in saved.iterdir()) == ["README.md", TENSORS, CONFIG]
    assert [path.name for path in saved.parent.iterdir()] == ["maps"]
    mask = os.umask(0)
    os.umask(mask)
    assert saved.stat().st_mode & 0o777 == 0o777 & ~mask
    for path in saved.iterdir():
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    card = (saved / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: ridgefill\nbase_model: "org/base"\n')
    assert "| 3 | 0.5300 |" in card


def test_existing_directories(seed: int, tmp_path: Path) -> None:
    """Only an empty one is written to, and only maps are overwritten, when told to."""
    first, second = random_maps("input"), random_maps("input")
    folder = tmp_path / "maps"
    folder.mkdir()
    first.save_pretrained(folder)
    with pytest.raises(ArtefactError, match=r"not empty.*overwrite"):
        second.save_pretrained(folder)
    assert_equal(FillMaps.from_pretrained(folder), first)
    second.save_pretrained(folder, overwrite=True)
    assert_equal(FillMaps.from_pretrained(folder), second)
    assert [path.name for path in tmp_path.iterdir()] == ["maps"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_not_ours_is_never_overwritten(overwrite: bool, seed: int, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    for name in ("thesis", "file"):
        with pytest.raises(ArtefactError, match=name):
            random_maps("input").save_pretrained(tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "a file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "thesis"]


FAILURES = [(call, when) for call in ("fsync", "replace") for when in (1, 2, 3)] + [
    ("rename", 1),
    ("rename", 2),
]


@pytest.mark.parametrize(("call", "when"), FAILURES)
def test_disk_full(call: str, when: int, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever step fails, the old artefact loads and nothing is left beside it."""
    old, real, calls = FillMaps.from_pretrained(saved), getattr(os, call), iter(range(1, 99))

    def fail(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == when:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space"):
            random_maps("normed").save_pretrained(saved, overwrite=True)
    assert_equal(FillMaps.from_pretrained(saved), old)
    assert [path.name for path in saved.parent.iterdir()] == ["maps"]


def test_disk_full_at_first(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        random_maps("input").save_pretrained(tmp_path / "maps")
    assert not list(tmp_path.iterdir())


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None], sign: bool = True) -> None:
    """Change the config, and make its checksum right again when ``sign``."""
    values = json.loads((folder / CONFIG).read_text())
    change(values)
    if sign:
        rest = {k: v for k, v in values.items() if k not in ("format_version", "config_sha256")}
        digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        values["config_sha256"] = digest
    (folder / CONFIG).write_text(json.dumps(values))


def refused(folder: Path, match: str) -> None:
    with pytest.raises(ArtefactError, match=match) as caught:
        FillMaps.from_pretrained(folder)
    assert str(folder) in str(caught.value)


def test_damaged_tensors(saved: Path) -> None:
    """Cut short at any place, or with any one bit turned."""
    content = (saved / TENSORS).read_bytes()
    for _ in range(20):
        place = int(torch.randint(len(content), ()))
        (saved / TENSORS).write_bytes(content[:place])
        refused(saved, "truncated or was changed")
        turned = bytearray(content)
        turned[place] ^= 1 << int(torch.randint(8, ()))
        (saved / TENSORS).write_bytes(turned)
        refused(saved, "truncated or was changed")


@pytest.mark.parametrize("name", [CONFIG, TENSORS])
def test_missing_files(name: str, saved: Path) -> None:
    (saved / name).unlink()
    refused(saved, name)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(split=3),
        lambda values: values["base_model"].update(weights="other"),
        lambda values: values["provenance"].update(rows={}),
        lambda values: values.pop("target"),
        lambda values: values.pop("config_sha256"),
    ],
)
def test_tampered_config(change: Callable[[dict[str, Any]], None], saved: Path) -> None:
    rewrite(saved, change, sign=False)
    refused(saved, "changed after it was written")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\x00\x01", '{"split": 2'])
def test_config_that_is_no_json_object(text: str, saved: Path) -> None:
    (saved / CONFIG).write_text(text)
    refused(saved, CONFIG)


@pytest.mark.parametrize("version", [0, 2, 99, "1", None])
def test_unknown_format_version(version: Any, saved: Path) -> None:
    rewrite(saved, lambda values: values.update(format_version=version))
    refused(saved, "format_version.*upgrade ridgefill")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda values: values.update(hidden_size=9), "shape"),
        (lambda values: values.update(num_layers=7), "shape"),
        (lambda values: values.update(sources=[2, 1, 0]), "shape"),
        (lambda values: values.update(target="input"), "key_scale"),
        (lambda values: values.update(split=50), "out of range"),
        (lambda values: values.update(tail=-1), "tail"),
        (lambda values: values.update(novelty=1), "novelty"),
        (lambda values: values.pop("base_model"), "base_model"),
        (lambda values: values.update(base_model={"name": "x"}), "revision"),
    ],
)
def test_config_that_does_not_fit(
    change: Callable[[dict[str, Any]], None], match: str, saved: Path
) -> None:
    """Even with a right checksum."""
    rewrite(saved, change)
    refused(saved, match)


def replace_tensors(folder: Path, data: bytes) -> None:
    """Put ``data`` in place of the tensors, with right checksums."""
    (folder / TENSORS).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    rewrite(folder, lambda values: values.update(tensors_sha256=digest))


def test_wrong_tensors_with_right_checksums(saved: Path) -> None:
    tensors = load_file(saved / TENSORS)
    for bad in (
        tensors | {"weight": tensors["weight"][:-1].clone()},
        tensors | {"bias": tensors["bias"][:, :-1].clone()},
        tensors | {"extra": torch.zeros(1)},
        {name: tensor for name, tensor in tensors.items() if name != "weight"},
    ):
        replace_tensors(saved, save(bad))
        refused(saved, "weight|bias|extra")


class Trap:
    """Pickles to something that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_pickle_in_its_place(saved: Path) -> None:
    """Never unpickled: neither with the old checksum nor with one made to fit."""
    sprung = saved.parent / "sprung"
    data = pickle.dumps(Trap(sprung))
    (saved / TENSORS).write_bytes(data)
    refused(saved, "changed")
    replace_tensors(saved, data)
    refused(saved, "not a safetensors file")
    torch.save({"weight": torch.zeros(1)}, saved / TENSORS)
    replace_tensors(saved, (saved / TENSORS).read_bytes())
    refused(saved, "not a safetensors file")
    assert not sprung.exists()
