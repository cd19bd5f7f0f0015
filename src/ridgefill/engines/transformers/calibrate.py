"""Fit fill maps from calibration text: one pass, sufficient statistics only."""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ridgefill.core import artefact, ridge
from ridgefill.core.errors import RidgeFillError, UnsupportedError
from ridgefill.core.maps import (
    FillMaps,
    MapsConfig,
    check_sources,
    check_split,
    default_sources,
)
from ridgefill.core.statistics import Statistics
from ridgefill.engines.transformers.decoder import Decoder, Wrapper, device_of
from ridgefill.engines.transformers.families import Family, ProjectedFamily, family_of
from ridgefill.engines.transformers.families.base import Layer
from ridgefill.engines.transformers.filler import Filler
from ridgefill.engines.transformers.fingerprint import fingerprint
from ridgefill.engines.transformers.fitrun import FitRun, Process
from ridgefill.engines.transformers.identity import identity_maps
from ridgefill.engines.transformers.windows import Windows, pack


@dataclass(frozen=True)
class FitOptions:
    """How maps are fitted.

    Args:
        split: first late layer; default half the layers.
        sources: residual states the maps read; default `default_sources`.
        target: what they predict, ``input`` or ``normed``; default ``normed`` where the family
            has projections to fold it through, else ``input``.
        window: tokens per calibration window.
        batch_tokens: tokens per forward pass.
        held_out: share of windows kept for choosing penalties and for R2.
        seed: order of the windows.
        max_tokens: use at most this many tokens of the text; default all.
        sinks: first tokens of each window left out of the fit; also the default plan's.
        tail: tail of the default plan.
        penalties: ridge penalties to choose from, per layer.
    """

    split: int | None = None
    sources: tuple[int, ...] | None = None
    target: str | None = None
    window: int = 1024
    batch_tokens: int = 4096
    held_out: float = 0.1
    seed: int = 0
    max_tokens: int | None = None
    sinks: int = 4
    tail: int = 256
    penalties: Sequence[float] = ridge.PENALTIES

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RidgeFillError(f"{name} must be 1 or more, got {value!r}")
        if self.sinks >= self.window:
            raise RidgeFillError(
                f"{self.sinks} sinks leave no row of a window of {self.window} to fit on: give "
                "fewer sinks or a longer window"
            )
        if not self.penalties or min(self.penalties) <= 0:
            raise RidgeFillError(
                f"penalties must be positive and at least one, got {tuple(self.penalties)}"
            )

    def windows(self, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> Windows:
        """``texts`` packed as these options say. Raises NotEnoughTextError."""
        return pack(
            texts,
            tokenizer,
            length=self.window,
            held_out=self.held_out,
            seed=self.seed,
            max_tokens=self.max_tokens,
        )


def fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    output: str | Path | None = None,
    overwrite: bool = False,
    checkpoint: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> FillMaps:
    """Fit the maps of every late layer in one pass over ``texts``.

    Args:
        model: a causal language model; its weights are only read. Any float dtype, quantised
            bases and ``device_map`` included.
        tokenizer: the model's tokenizer.
        texts: documents.
        output: directory to save the maps in (by the first process), before the checkpoint goes.
        overwrite: whether ``output`` may hold older maps.
        checkpoint: directory for resuming: written every few minutes and on Ctrl-C, read when it
            holds a run of the same fit, removed at the end. Default: none is kept.
        progress: show a bar on stderr with tokens/s and time left.
        options: see `FitOptions`.

    Under ``torchrun`` (an initialised ``torch.distributed`` group) every process reads its share
    of the windows and the statistics are summed, so each process returns the same maps.

    Raises RidgeFillError before any work starts when an option or the text does not fit, and
    NonFiniteError when the residual stream overflows.
    """
    opts = FitOptions(**options)
    if output is not None:
        artefact.check_target(Path(output), overwrite)
    collector = Collector(model, opts)
    windows = opts.windows(texts, tokenizer)
    run = FitRun(windows, opts, collector, Process.current(), checkpoint, progress)
    train, held_out = run.collect()
    maps = _solve(collector, windows, opts, train, held_out)
    if output is not None and run.process.rank == 0:
        maps.save_pretrained(output, overwrite)
    run.clear()
    return maps


class Collector:
    """Runs windows through the model and adds what its layers see to the statistics."""

    def __init__(self, model: PreTrainedModel, opts: FitOptions) -> None:
        self.decoder = Decoder(model)
        self.decoder.check_can_fill()
        count = self.decoder.config.num_hidden_layers
        self.split = count // 2 if opts.split is None else opts.split
        check_split(self.split, count)
        self.sources = default_sources(self.split) if opts.sources is None else opts.sources
        check_sources(self.sources, self.split)
        self.family = family_of(self.decoder.config)
        target = opts.target or self.family.targets[-1]
        self.projected = _projected(self.family, target)
        if self.family.needs_self_check:
            Filler(model, identity_maps(model, self.split))  # refuses what no map could fill
        self.config = MapsConfig(
            base_model=fingerprint(model),
            split=self.split,
            num_layers=count,
            hidden_size=self.decoder.config.hidden_size,
            sources=tuple(self.sources),
            target=target,
            tail=opts.tail,
            sinks=opts.sinks,
        )
        self.device = model.device
        self._states: dict[int, Tensor] = {}
        self._x = torch.empty(0)
        self._statistics = self.statistics()
        self._shell = self.decoder.with_layers(
            [_Collecting(layer, index, self) for index, layer in enumerate(self.decoder.layers)]
        )

    @property
    def scales_keys(self) -> bool:
        """Whether keys need the scale correction: folded, and not normalised afterwards."""
        layers = self.decoder.layers
        return self.projected is not None and not self.projected.has_key_norm(layers[self.split])

    def statistics(self) -> Statistics:
        """Empty statistics of the right shapes, where fp64 is at hand."""
        split_device = device_of(self.decoder.layers[self.split], self.device)
        device = split_device if split_device.type == "cuda" else torch.device("cpu")
        config = self.config
        width = 0
        if self.projected is not None and self.scales_keys:
            width = self.projected.projections(self.decoder.layers[self.split])[0].out_features
        return Statistics(
            config.features, list(config.mapped_layers), config.hidden_size, width, device
        )

    @torch.no_grad()
    def add(self, ids: Tensor, statistics: Statistics) -> None:
        """Run ``ids`` ``[batch, window]`` and add their rows after the sinks."""
        self._statistics = statistics
        self._shell(input_ids=ids.to(self.device), use_cache=False)
        self._x = torch.empty(0)

    def see(self, index: int, layer: nn.Module, hidden: Tensor) -> None:
        """Take layer ``index``'s input ``[batch, window, hidden]``."""
        rows = hidden[:, self.config.sinks :].flatten(0, 1)
        if index in self.sources:
            self._states[index] = rows
        if index == self.split:
            parts = [self._states[source].to(rows.device) for source in self.sources]
            self._x = torch.cat(parts, dim=-1).to(self._statistics.xtx.device).float()
            self._states.clear()
            self._statistics.add_sources(self._x)
        elif index > self.split:
            keys = None
            if self.projected is not None:
                rows = self.projected.norm(layer, rows)
                if self.scales_keys:
                    keys = self.projected.projections(layer)[0](rows)
            self._statistics.add_target(index, self._x.to(rows.device), rows, keys)


class _Collecting(Wrapper):
    """Shows a layer's input to the collector, then runs the layer; the last one need not run."""

    def __init__(self, layer: nn.Module, index: int, collector: Collector) -> None:
        super().__init__(layer)
        self.index = index
        self.see = collector.see
        self.is_last = index == collector.config.num_layers - 1

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.see(self.index, self.layer, hidden)
        return hidden if self.is_last else self.layer(hidden, *args, **kwargs)


def _projected(family: Family, target: str) -> ProjectedFamily | None:
    """The family for target ``normed``, which needs its projections; None for ``input``."""
    if target == "input":
        return None
    if not isinstance(family, ProjectedFamily):
        raise UnsupportedError(
            f"the {family.name} family supports target 'input' only, got {target!r}"
        )
    return family


def _solve(
    collector: Collector,
    windows: Windows,
    opts: FitOptions,
    train: Statistics,
    held_out: Statistics,
) -> FillMaps:
    solution = ridge.solve(train, held_out, opts.penalties)
    scale = None
    if collector.projected is not None and collector.scales_keys:
        scale = _key_scale(collector.decoder.layers, collector.projected, train, solution)
    provenance = _provenance(windows, opts, solution, train, held_out)
    config = replace(collector.config, provenance=provenance)
    return FillMaps(config, solution.weight.float().cpu(), solution.bias.float().cpu(), scale)


def _key_scale(
    layers: Sequence[Layer],
    family: ProjectedFamily,
    train: Statistics,
    solution: ridge.RidgeSolution,
) -> Tensor:
    """Per layer and KV head: root mean square of true keys over that of regressed ones."""
    factors = []
    for row, index in enumerate(solution.layers):
        project = family.projections(layers[index])[0]
        matrix, offset = (part.to(solution.weight.device) for part in affine_of(project))
        weight, bias = solution.weight[row] @ matrix.T, solution.bias[row] @ matrix.T + offset
        _, predicted = ridge.predicted_moments(train, weight, bias)
        true = train.k_sq[row] / train.count
        heads = (-1, layers[index].self_attn.head_dim)
        ratio = true.view(heads).sum(1) / predicted.view(heads).sum(1).clamp_min(1e-30)
        factors.append(ratio.sqrt())
    return torch.stack(factors).float().cpu()


def affine_of(project: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight ``[out, in]`` and bias ``[out]`` of a linear module in fp64.

    Found by probing, so that quantised and offloaded modules work too.
    """
    dtype = next((p.dtype for p in project.parameters() if p.is_floating_point()), torch.float32)
    device = device_of(project, torch.device("cpu"))
    probe = torch.eye(int(project.in_features), dtype=dtype, device=device)  # type: ignore[arg-type]
    with torch.no_grad():
        bias = project(torch.zeros_like(probe[:1]))[0].double()
        return (project(probe).double() - bias).T, bias


def _provenance(
    windows: Windows,
    opts: FitOptions,
    solution: ridge.RidgeSolution,
    train: Statistics,
    held_out: Statistics,
) -> dict[str, Any]:
    by_layer = dict(zip(map(str, solution.layers), solution.r2, strict=True))
    return {
        "text_sha256": windows.sha256,
        "documents": windows.documents,
        "rows": {"train": int(train.count), "held_out": int(held_out.count)},
        "window": opts.window,
        "seed": opts.seed,
        "penalties": dict(zip(map(str, solution.layers), solution.penalties, strict=True)),
        "held_out_r2": by_layer,
        "versions": {
            "ridgefill": version("ridgefill"),
            "torch": torch.__version__,
            "transformers": version("transformers"),
            "python": platform.python_version(),
        },
    }
