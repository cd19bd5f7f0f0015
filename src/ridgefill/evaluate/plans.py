"""Plans to compare: the exact prefill and fills under row plans, from a JSON file or options."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ridgefill.core.engine import Method
from ridgefill.core.errors import RidgeFillError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan

EXACT, IDENTITY, RIDGE = "exact", "identity", "ridge"


@dataclass(frozen=True)
class PlanSpec:
    """One plan as it is written down.

    Args:
        name: what tables and plots call it.
        fill: ``exact``, ``identity`` (needs ``split``) or ``ridge`` (needs ``maps``).
        maps: a directory or hub id of fill maps.
        split: split of an identity fill.
        tail, sinks: rows of the plan; default: the maps' own, or those of ``RowPlan``.
        every: every n-th row is exact as well; 0 for none.

    Raises RidgeFillError for a plan that is none.
    """

    name: str
    fill: str
    maps: str | None = None
    split: int | None = None
    tail: int | None = None
    sinks: int | None = None
    every: int = 0

    def __post_init__(self) -> None:
        if self.fill not in (EXACT, IDENTITY, RIDGE):
            raise RidgeFillError(
                f"plan {self.name!r}: fill must be {EXACT}, {IDENTITY} or {RIDGE}, got "
                f"{self.fill!r}"
            )
        needs = {EXACT: (), IDENTITY: ("split",), RIDGE: ("maps",)}[self.fill]
        takes = {EXACT: (), IDENTITY: ("split",), RIDGE: ("maps", "split")}[self.fill]
        for key in ("maps", "split"):
            value = getattr(self, key)
            if key in needs and value is None:
                raise RidgeFillError(f"plan {self.name!r}: fill {self.fill!r} needs {key!r}")
            if key not in takes and value is not None:
                raise RidgeFillError(f"plan {self.name!r}: fill {self.fill!r} takes no {key!r}")

    def as_json(self) -> dict[str, Any]:
        """What was written down, defaults left out."""
        return {key: value for key, value in asdict(self).items() if value not in (None, 0)}


def read_plans(path: Path) -> list[PlanSpec]:
    """The plans of a JSON file: a list of objects with the fields of `PlanSpec`.

    ``fill`` may be left out where ``maps`` or ``split`` tell; relative ``maps`` directories are
    those beside the file. Raises RidgeFillError, naming the file and the plan.
    """
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RidgeFillError(f"{path} is no JSON file of plans ({reason}): check --plans") from None
    if not isinstance(listed, list) or not listed:
        raise RidgeFillError(f"{path} must hold a list of plans, one object each")
    return check_plans([_read_plan(entry, path) for entry in listed])


def _read_plan(entry: Any, path: Path) -> PlanSpec:
    fields = PlanSpec.__dataclass_fields__
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise RidgeFillError(f"{path}: {entry!r} is no plan: give an object with a 'name'")
    unknown = sorted(set(entry) - set(fields))
    if unknown:
        raise RidgeFillError(
            f"{path}: plan {entry['name']!r} has an unknown field {unknown[0]!r}: use "
            f"{', '.join(fields)}"
        )
    for key in ("split", "tail", "sinks", "every"):
        if not isinstance(entry.get(key, 0), int):
            raise RidgeFillError(
                f"{path}: plan {entry['name']!r}: {key} must be a whole number, got {entry[key]!r}"
            )
    guess = RIDGE if "maps" in entry else IDENTITY if "split" in entry else EXACT
    spec = PlanSpec(**{"fill": guess, **entry})
    if spec.maps is not None and (path.parent / spec.maps).is_dir():
        spec = replace(spec, maps=str(path.parent / spec.maps))
    return spec


def check_plans(specs: Sequence[PlanSpec]) -> list[PlanSpec]:
    """The plans with the exact one first, added where it is missing.

    Raises RidgeFillError for names used twice, for two exact plans and for no fill at all.
    """
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RidgeFillError(f"two plans are named {twice!r}: give each a name of its own")
    exact = [spec for spec in specs if spec.fill == EXACT]
    fills = [spec for spec in specs if spec.fill != EXACT]
    if len(exact) > 1:
        raise RidgeFillError(f"{exact[0].name!r} and {exact[1].name!r} are both exact: keep one")
    if not fills:
        raise RidgeFillError("every plan is exact: name maps, or a split for an identity fill")
    if not exact and EXACT in names:
        raise RidgeFillError("a fill is named 'exact': give it another name")
    return [*(exact or [PlanSpec(EXACT, EXACT)]), *fills]


def plans_of_maps(folders: Sequence[str], splits: Mapping[str, int]) -> list[PlanSpec]:
    """Exact, an identity fill at each split among the maps, and the maps themselves."""
    if len(set(folders)) < len(folders):
        raise RidgeFillError(f"--maps names a directory twice: {', '.join(folders)}")
    short = [Path(folder).name for folder in folders]
    names = [
        name if name and short.count(name) == 1 else folder
        for folder, name in zip(folders, short, strict=True)
    ]
    identities = [
        PlanSpec(f"identity s={split}", IDENTITY, split=split)
        for split in sorted(set(splits.values()))
    ]
    ridge = [
        PlanSpec(name, RIDGE, maps=folder) for name, folder in zip(names, folders, strict=True)
    ]
    return check_plans([*identities, *ridge])


def build_methods(
    specs: Sequence[PlanSpec],
    identity: Callable[[int], FillMaps],
    tail: int | None = None,
    sinks: int | None = None,
) -> list[Method]:
    """Methods of the plans, their maps read; ``tail`` and ``sinks`` where a plan names none.

    Raises RidgeFillError (ArtefactError for maps that cannot be read).
    """
    methods = []
    for spec in specs:
        if spec.fill == EXACT:
            methods.append(Method(spec.name))
            continue
        maps = (
            identity(spec.split or 0) if spec.maps is None else FillMaps.from_pretrained(spec.maps)
        )
        _check_split(spec, maps)
        plan = RowPlan(
            tail=_first(spec.tail, tail, maps.config.tail),
            sinks=_first(spec.sinks, sinks, maps.config.sinks),
            every=spec.every,
        )
        methods.append(Method(spec.name, maps, plan))
    return methods


def _check_split(spec: PlanSpec, maps: FillMaps) -> None:
    if spec.split is not None and spec.split != maps.config.split:
        raise RidgeFillError(
            f"plan {spec.name!r} names split {spec.split}, but {spec.maps} was fitted at "
            f"{maps.config.split}: leave the split out or name other maps"
        )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def filled_mask(method: Method, length: int) -> torch.Tensor:
    """The filled rows of a prompt of ``length`` tokens, bool ``[length]``."""
    if method.plan is None:
        return torch.zeros(length, dtype=torch.bool)
    return ~method.plan.exact_mask(torch.ones(1, length, dtype=torch.bool))[0]


def check_fills(methods: Sequence[Method], length: int) -> None:
    """Raise RidgeFillError for a plan that fills nothing at this length.

    Its scores would be those of the exact prefill: a perfect result that says nothing.
    """
    for method in methods:
        if method.plan is not None and not bool(filled_mask(method, length).any()):
            raise RidgeFillError(
                f"plan {method.name!r} fills nothing of a prompt of {length} tokens (tail "
                f"{method.plan.tail}): use longer prompts or a shorter tail"
            )
