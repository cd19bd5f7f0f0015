"""Maps on the hub: what is uploaded is what ``from_pretrained`` downloads."""

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from ridgefill.core.errors import ArtefactError
from ridgefill.core.maps import FillMaps
from tests.core.builders import random_maps
from tests.core.test_artefact import assert_equal


class Hub:
    """Stands in for the hub: keeps uploaded folders below ``root`` and records the calls."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, []

    def create_repo(self, repo_id: str, **kwargs: Any) -> huggingface_hub.RepoUrl:
        self.calls.append(("create", repo_id, kwargs))
        name = repo_id if "/" in repo_id else f"me/{repo_id}"
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{name}")

    def upload_folder(self, repo_id: str, folder_path: str, **kwargs: Any) -> None:
        self.calls.append(("upload", repo_id, kwargs))
        shutil.copytree(folder_path, self.root / repo_id)

    def snapshot_download(self, repo_id: str, revision: str | None, **kwargs: Any) -> str:
        self.calls.append(("download", repo_id, {"revision": revision, **kwargs}))
        if not (self.root / repo_id).is_dir():
            raise LocalEntryNotFoundError(f"{repo_id} is not there")
        return str(self.root / repo_id)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Also moves to an empty directory, so that no repository name is a folder."""
    fake = Hub(tmp_path / "hub")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def api(token: str | None = None) -> Hub:
        fake.calls.append(("token", token, {}))
        return fake

    monkeypatch.setattr(huggingface_hub, "HfApi", api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    return fake


def test_push_and_load(hub: Hub, seed: int) -> None:
    maps = random_maps("normed", key_scale=True)
    address = maps.push_to_hub("me/maps", private=True, token="t", commit_message="New maps")
    assert address == "https://huggingface.co/me/maps"
    assert hub.calls == [
        ("token", "t", {}),
        ("create", "me/maps", {"private": True, "exist_ok": True}),
        ("upload", "me/maps", {"commit_message": "New maps"}),
    ]
    assert_equal(FillMaps.from_pretrained("me/maps", revision="v1"), maps)
    verb, name, options = hub.calls[-1]
    assert (verb, name, options["revision"]) == ("download", "me/maps", "v1")
    assert not any("*" in pattern for pattern in options["allow_patterns"])


def test_save_and_push(hub: Hub, seed: int, tmp_path: Path) -> None:
    """Under the directory's name unless another is given; the local copy is there too."""
    maps = random_maps("input")
    maps.save_pretrained(tmp_path / "first", push_to_hub=True)
    maps.save_pretrained(tmp_path / "second", push_to_hub=True, repo_id="me/other")
    assert [call[1] for call in hub.calls if call[0] == "upload"] == ["me/first", "me/other"]
    assert_equal(FillMaps.from_pretrained("me/other"), maps)
    assert_equal(FillMaps.from_pretrained(tmp_path / "first"), maps)


def test_what_is_nowhere(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtefactError, match="'me/nothing' is neither"):
        FillMaps.from_pretrained("me/nothing")
    monkeypatch.undo()
    with pytest.raises(ArtefactError, match="neither"):
        FillMaps.from_pretrained("not/a/repository/name")


def test_damaged_upload(hub: Hub, seed: int) -> None:
    random_maps("input").push_to_hub("me/maps")
    (hub.root / "me" / "maps" / "ridgefill.safetensors").write_bytes(b"short")
    with pytest.raises(ArtefactError, match="truncated or was changed"):
        FillMaps.from_pretrained("me/maps")
