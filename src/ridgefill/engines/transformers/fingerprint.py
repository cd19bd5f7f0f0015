"""Telling whether a model is the one that maps were fitted on."""

import hashlib
import json
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ridgefill.core.maps import BaseModel
from ridgefill.engines.transformers.decoder import Decoder

_ARCHITECTURE = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "rope_parameters",
)
_BLOCK = 1 << 20

_known: "weakref.WeakKeyDictionary[PreTrainedModel, tuple[Any, BaseModel]]" = (
    weakref.WeakKeyDictionary()
)


def fingerprint(model: PreTrainedModel) -> BaseModel:
    """Name, revision, architecture hash and weight checksum of a model's decoder.

    The checksum reads every decoder parameter once, rounded to bfloat16, so loading the same
    checkpoint in another float dtype usually keeps it and any edit above rounding changes it. It
    is remembered until a parameter is written to.
    """
    decoder = Decoder(model)
    state = tuple((p.data_ptr(), p._version) for p in decoder.module.parameters())
    known = _known.get(model)
    if known is None or known[0] != state:
        known = (state, _base_model(model, decoder))
        _known[model] = known
    return known[1]


def _base_model(model: PreTrainedModel, decoder: Decoder) -> BaseModel:
    digest = hashlib.sha256()
    for name, parameter in sorted(decoder.module.named_parameters()):
        sums = _checksum(parameter.detach())
        digest.update(f"{name} {tuple(parameter.shape)} {sums}\n".encode())
    return BaseModel(
        name=model_name(model),
        revision=getattr(model.config, "_commit_hash", None),
        config_hash=_config_hash(decoder.config),
        weights=digest.hexdigest(),
    )


def model_name(model: PreTrainedModel) -> str:
    """The hub name of a model; only the last part of a local path, which is private."""
    name = model.name_or_path or model.config.model_type
    return Path(name).name if Path(name).exists() else name


def _config_hash(config: Any) -> str:
    values = {name: getattr(config, name, None) for name in _ARCHITECTURE}
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def _checksum(tensor: Tensor) -> tuple[int, int]:
    """A plain and a position-weighted sum of the values' 16-bit (or 8-bit) patterns."""
    if tensor.device.type == "meta":
        return (0, 0)
    plain = weighted = 0
    flat = tensor.reshape(-1)
    weights = torch.arange(1, _BLOCK + 1, device=tensor.device)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        if block.is_floating_point():
            block = block.to(torch.bfloat16).view(torch.int16)
        bits = block.to(torch.int64)
        plain += int(bits.sum())
        weighted += int((bits * (weights[: len(bits)] + start % 65521)).sum())
    return plain, weighted
