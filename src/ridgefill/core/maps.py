"""FillMaps: the affine maps of the late layers, and which model they belong to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ridgefill.core import artefact
from ridgefill.core.errors import ArtefactError, ModelMismatchError, RidgeFillError
from ridgefill.core.rows import RowPlan

TARGETS = ("input", "normed")


def default_sources(split: int) -> tuple[int, ...]:
    """The split state and the states at 2s/3, s/3 and 0, without repeats, deepest first."""
    return tuple(sorted({split, 2 * split // 3, split // 3, 0}, reverse=True))


@dataclass(frozen=True)
class BaseModel:
    """The model that maps were fitted on.

    name and revision as given by the user or the hub, ``config_hash`` over the architecture,
    ``weights`` a checksum of every parameter (see ``fingerprint`` in the engine).
    """

    name: str
    revision: str | None
    config_hash: str
    weights: str


@dataclass(frozen=True)
class MapsConfig:
    """Everything about fill maps but the tensors. Written to ``ridgefill_config.json``.

    Args:
        base_model: what the maps were fitted on.
        split: first late layer.
        num_layers, hidden_size: of the base model.
        sources: residual states the maps read, as layer indices, ``split`` among them.
        target: ``input`` (a late layer's input) or ``normed`` (its input norm's output).
        kind: ``ridge`` or ``identity``.
        tail, sinks: default row plan.
        provenance: how the maps were fitted (text hashes, token counts, penalties, held-out
            R2 per layer, versions).
    """

    base_model: BaseModel
    split: int
    num_layers: int
    hidden_size: int
    sources: tuple[int, ...]
    target: str = "input"
    kind: str = "ridge"
    tail: int = 256
    sinks: int = 4
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_split(self.split, self.num_layers)
        if self.target not in TARGETS:
            raise RidgeFillError(f"target must be one of {TARGETS}, got {self.target!r}")
        if self.kind not in ("ridge", "identity"):
            raise RidgeFillError(f"kind must be 'ridge' or 'identity', got {self.kind!r}")
        check_sources(self.sources, self.split)
        RowPlan(tail=self.tail, sinks=self.sinks)  # refuses what is no plan

    @property
    def mapped_layers(self) -> range:
        """Late layers that need a map: all but the split layer, whose input is exact."""
        return range(self.split + 1, self.num_layers)

    @property
    def features(self) -> int:
        return len(self.sources) * self.hidden_size


def check_split(split: int, num_layers: int) -> None:
    """Raise RidgeFillError unless ``split`` leaves lower layers and a layer to fill."""
    if not 1 <= split <= num_layers - 2:
        raise RidgeFillError(
            f"split {split} is out of range: a model of {num_layers} layers can be split from 1 "
            f"to {num_layers - 2}"
        )


def check_sources(sources: Sequence[int], split: int) -> None:
    """Raise RidgeFillError unless ``sources`` are distinct, from 0 to ``split``, with it."""
    if split not in sources or len(set(sources)) != len(sources):
        raise RidgeFillError(f"sources {tuple(sources)} must be distinct and include {split=}")
    if min(sources) < 0 or max(sources) > split:
        raise RidgeFillError(
            f"sources {tuple(sources)} must lie between 0 and the split {split}: later states "
            "are not computed for filled rows"
        )


class FillMaps:
    """Affine maps from the sources to what each late layer reads.

    Args:
        config: description of the maps.
        weight: ``[mapped layers, len(sources) * hidden, hidden]``; empty for identity maps.
        bias: ``[mapped layers, hidden]``; empty for identity maps.
        key_scale: ``[mapped layers, kv_heads]`` factors that undo the shrinkage of regressed
            keys, or None.

    The sources are concatenated in the order of ``config.sources``.
    """

    def __init__(
        self,
        config: MapsConfig,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        key_scale: Tensor | None = None,
    ) -> None:
        self.config = config
        self.weight = weight
        self.bias = bias
        self.key_scale = key_scale
        _check_shapes(self)

    def __repr__(self) -> str:
        c = self.config
        return (
            f"FillMaps({c.kind}, base_model={c.base_model.name!r}, split={c.split}/{c.num_layers}, "
            f"sources={c.sources}, target={c.target!r})"
        )

    @property
    def is_identity(self) -> bool:
        return self.config.kind == "identity"

    @property
    def r2(self) -> dict[int, float]:
        """Held-out R2 by layer; empty for identity maps."""
        scores = self.config.provenance.get("held_out_r2", {})
        return {int(layer): float(value) for layer, value in scores.items()}

    def apply(self, layer: int, sources: Tensor) -> Tensor:
        """Predict what ``layer`` reads.

        sources ``[..., len(sources) * hidden]`` in any float dtype; the map runs in its own dtype
        and the result ``[..., hidden]`` comes back in that of ``sources``.
        """
        if self.is_identity:
            return sources
        row = layer - self.config.split - 1
        weight, bias = self.weight[row], self.bias[row]  # type: ignore[index]
        flat = sources.reshape(-1, sources.shape[-1]).to(weight.dtype)
        predicted = torch.addmm(bias, flat, weight)
        return predicted.to(sources.dtype).view(*sources.shape[:-1], weight.shape[-1])

    def fold(self, layer: int, projection: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Fold the map of ``layer`` through a linear projection of what it predicts.

        projection ``[out, hidden]`` and bias ``[out]`` as in ``torch.nn.Linear``. Returns weight
        ``[len(sources) * hidden, out]`` and bias ``[out]`` in the maps' dtype. Only maps with
        target ``normed`` fold: between input and projection stands the layer's norm.
        """
        if self.is_identity or self.config.target != "normed":
            raise RidgeFillError(
                f"{self!r} cannot be folded through a projection: fit with target 'normed'"
            )
        row = layer - self.config.split - 1
        weight, offset = self.weight[row], self.bias[row]  # type: ignore[index]
        matrix = projection.detach().to(weight.device, torch.float64)
        folded = weight.double() @ matrix.T
        folded_bias = offset.double() @ matrix.T
        if bias is not None:
            folded_bias = folded_bias + bias.detach().to(weight.device, torch.float64)
        return folded.to(weight.dtype), folded_bias.to(weight.dtype)

    def scale_keys(self, layer: int, keys: Tensor) -> Tensor:
        """Multiply regressed keys ``[..., kv_heads * head_dim]`` by their head's factor."""
        if self.key_scale is None:
            return keys
        factors = self.key_scale[layer - self.config.split - 1].to(keys.device, keys.dtype)
        return keys * factors.repeat_interleave(keys.shape[-1] // len(factors))

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "FillMaps":
        """A copy on another device or in another floating dtype."""
        moved = {
            name: None if tensor is None else tensor.to(device=device, dtype=dtype)
            for name, tensor in self.tensors().items()
        }
        return FillMaps(self.config, **moved)

    def with_plan(self, tail: int, sinks: int) -> "FillMaps":
        """The same maps with another default row plan."""
        return FillMaps(replace(self.config, tail=tail, sinks=sinks), **self.tensors())

    def tensors(self) -> dict[str, Tensor | None]:
        return {"weight": self.weight, "bias": self.bias, "key_scale": self.key_scale}

    def check_model(self, model: BaseModel, strict: bool = True) -> None:
        """Raise ModelMismatchError unless the maps belong to ``model``.

        Checked: architecture, then revision where both are known, then every weight.
        ``strict=False`` leaves out revision and weights, for quantised copies of the base model.
        """
        ours = self.config.base_model
        if ours.config_hash != model.config_hash:
            raise ModelMismatchError(
                f"the maps were fitted on {ours.name!r} but the model is {model.name!r} with "
                "another architecture: load the maps of this model or fit new ones"
            )
        if not strict:
            return
        if ours.revision and model.revision and ours.revision != model.revision:
            raise ModelMismatchError(
                f"the maps were fitted on revision {ours.revision!r} of {ours.name!r} but the "
                f"model is at {model.revision!r}: load that revision or fit again"
            )
        if ours.weights != model.weights:
            raise ModelMismatchError(
                f"the maps were fitted on {ours.name!r} with other weights than this model's "
                "(edited, fine-tuned, quantised or offloaded): fit again, or pass strict=False if "
                "you know the models to be equivalent"
            )

    def save_pretrained(
        self, directory: str | Path, overwrite: bool = False, push_to_hub: bool = False, **hub: Any
    ) -> None:
        """Write the artefact atomically: ``ridgefill_config.json``, tensors and a model card.

        Raises ArtefactError when ``directory`` exists and is not empty, unless ``overwrite``; an
        old artefact stays intact until the new one is complete.
        """
        tensors = {name: t for name, t in self.tensors().items() if t is not None}
        artefact.write(Path(directory), _to_json(self.config), tensors, overwrite)
        if push_to_hub:
            self.push_to_hub(hub.pop("repo_id", Path(directory).name), **hub)

    def push_to_hub(self, repo_id: str, **hub: Any) -> str:
        """Upload the artefact to a hub model repository; returns its address.

        ``hub`` goes to ``huggingface_hub``: ``private``, ``token``, ``revision``,
        ``commit_message``.
        """
        tensors = {name: t for name, t in self.tensors().items() if t is not None}
        return artefact.push(repo_id, _to_json(self.config), tensors, **hub)

    @classmethod
    def from_pretrained(
        cls, path: str | Path, revision: str | None = None, **hub: Any
    ) -> "FillMaps":
        """Load from a directory or a hub repository.

        Raises ArtefactError on a missing, truncated or altered file, an unknown format_version or
        wrong shapes. Nothing is ever unpickled.
        """
        values, tensors = artefact.read(str(path), revision, **hub)
        try:
            return cls(_from_json(values), **tensors)
        except (TypeError, KeyError, ValueError) as error:
            raise ArtefactError(f"{path}: {error}; fit again or fetch the artefact again") from None


def _check_shapes(maps: FillMaps) -> None:
    c = maps.config
    if c.kind == "identity":
        if c.sources != (c.split,) or c.target != "input" or maps.weight is not None:
            raise RidgeFillError("identity maps read the split state only and hold no tensors")
        return
    count = len(c.mapped_layers)
    expected = {"weight": (count, c.features, c.hidden_size), "bias": (count, c.hidden_size)}
    for name, shape in expected.items():
        tensor = getattr(maps, name)
        found = None if tensor is None else tuple(tensor.shape)
        if found != shape:
            raise RidgeFillError(f"the maps' {name} has shape {found}, expected {shape}")
    if maps.key_scale is not None and (
        maps.key_scale.dim() != 2 or len(maps.key_scale) != count or c.target != "normed"
    ):
        raise RidgeFillError(
            f"key_scale of shape {tuple(maps.key_scale.shape)} does not fit {count} mapped layers "
            "of target 'normed'"
        )


def _to_json(config: MapsConfig) -> dict[str, Any]:
    return asdict(config)


def _from_json(values: Mapping[str, Any]) -> MapsConfig:
    values = dict(values)
    values["base_model"] = BaseModel(**values["base_model"])
    values["sources"] = tuple(int(source) for source in values["sources"])
    return MapsConfig(**values)
