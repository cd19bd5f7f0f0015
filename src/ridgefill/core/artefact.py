"""The fill-maps directory on disk and on the hub: safetensors and JSON, written atomically."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from ridgefill.core.errors import ArtefactError

FORMAT_VERSION = 1
CONFIG_NAME = "ridgefill_config.json"
TENSORS_NAME = "ridgefill.safetensors"
CARD_NAME = "README.md"


def check_target(directory: Path, overwrite: bool = False) -> None:
    """Raise ArtefactError when writing to ``directory`` would lose what is there."""
    if directory.is_file():
        raise ArtefactError(f"{directory} is a file: name a directory for the maps")
    if directory.is_dir() and any(directory.iterdir()):
        if not overwrite:
            raise ArtefactError(
                f"{directory} exists and is not empty: name another directory or pass overwrite"
            )
        if not (directory / CONFIG_NAME).is_file():
            raise ArtefactError(
                f"{directory} holds no fill maps, so it is not overwritten: name another directory"
            )


def write(
    directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], overwrite: bool
) -> None:
    """Write an artefact beside ``directory`` and move it into place once it is complete."""
    directory = directory.absolute()
    check_target(directory, overwrite)
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{directory.name}.new-", dir=directory.parent))
    try:
        _write_files(new, config, tensors)
        new.chmod(0o777 & ~_umask())
        _swap(new, directory)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _swap(new: Path, directory: Path) -> None:
    """Move ``new`` to ``directory``; an old artefact there survives any failure."""
    if not directory.exists():
        os.rename(new, directory)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{directory.name}.old-", dir=directory.parent))
    try:
        os.rename(directory, old)  # onto an empty directory: atomic
    except BaseException:
        old.rmdir()
        raise
    try:
        os.rename(new, directory)
    except BaseException:
        os.rename(old, directory)
        raise
    shutil.rmtree(old)


def _write_files(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    data = save_tensors({name: t.detach().contiguous().cpu() for name, t in tensors.items()})
    values = {"tensors_sha256": hashlib.sha256(data).hexdigest(), **config}
    values = {"format_version": FORMAT_VERSION, "config_sha256": _digest(values), **values}
    write_file(directory / TENSORS_NAME, data)
    write_file(directory / CONFIG_NAME, (json.dumps(values, indent=2) + "\n").encode())
    write_file(directory / CARD_NAME, _card(config).encode())


def write_file(path: Path, data: bytes) -> None:
    """Write one file so that a reader sees the old content or all of the new."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str, revision: str | None, **hub: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read config values and tensors from a directory or a hub repository."""
    directory = Path(path)
    if not directory.is_dir():
        directory = _download(path, revision, **hub)
    values = _read_config(directory / CONFIG_NAME)
    file = directory / TENSORS_NAME
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{file}: {error.strerror}; the artefact is incomplete") from None
    if hashlib.sha256(data).hexdigest() != values.pop("tensors_sha256", None):
        raise ArtefactError(
            f"{file} is truncated or was changed after it was written: fetch or fit it again"
        )
    try:
        return values, load_tensors(data)
    except SafetensorError as error:
        raise ArtefactError(f"{file} is not a safetensors file ({error}): fit again") from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version, digest = values.pop("format_version", None), values.pop("config_sha256", None)
    except OSError as error:
        raise ArtefactError(
            f"{path}: {error.strerror}; give a directory that ridgefill fit wrote"
        ) from None
    except (ValueError, AttributeError, TypeError) as error:
        raise ArtefactError(f"{path} is no JSON object ({error}): fetch or fit it again") from None
    if version != FORMAT_VERSION:
        raise ArtefactError(
            f"{path}: format_version {version!r} is unknown, this version of ridgefill reads "
            f"{FORMAT_VERSION}: upgrade ridgefill or fit again"
        )
    if digest != _digest(values):
        raise ArtefactError(f"{path} was changed after it was written: fetch or fit it again")
    return values


def _download(repo_id: str, revision: str | None, **hub: Any) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    names = [CONFIG_NAME, TENSORS_NAME, CARD_NAME]
    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=names, **hub))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ArtefactError(
            f"{repo_id!r} is neither a directory nor a hub repository that can be read ({error})"
        ) from None


def push(repo_id: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], **hub: Any) -> str:
    """Upload an artefact to a hub model repository and return its address."""
    from huggingface_hub import HfApi

    api = HfApi(token=hub.pop("token", None))
    repo = api.create_repo(repo_id, private=hub.pop("private", None), exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _write_files(Path(folder), config, tensors)
        api.upload_folder(repo_id=repo.repo_id, folder_path=folder, **hub)
    return str(repo)


def _card(config: Mapping[str, Any]) -> str:
    """A model card: front matter the hub reads, then how to use the maps."""
    base = config["base_model"]
    scores = config["provenance"].get("held_out_r2", {})
    rows = "".join(f"| {layer} | {value:.4f} |\n" for layer, value in scores.items())
    table = f"\n| layer | held-out R2 |\n| --- | --- |\n{rows}" if rows else ""
    return (
        f"---\nlibrary_name: ridgefill\nbase_model: {json.dumps(base['name'])}\n"
        "tags:\n- ridgefill\n- prefill\n---\n\n"
        f"# Fill maps for {base['name']}\n\n"
        f"Split {config['split']} of {config['num_layers']} layers, sources "
        f"{list(config['sources'])}, target `{config['target']}`. Default row plan: "
        f"{config['sinks']} sinks, a tail of {config['tail']}.\n\n"
        "```python\nfrom ridgefill import FillMaps, attach\n\n"
        'maps = FillMaps.from_pretrained("THIS_REPOSITORY")\n'
        "with attach(model, maps):\n    model.generate(**inputs)\n```\n"
        f"{table}"
    )
