"""Faster prefill: late layers' caches filled by fitted affine maps.

The package imports nothing heavy: the core and the transformers engine are loaded on first use, so
that ``ridgefill --help`` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from ridgefill.core.maps import FillMaps
    from ridgefill.core.rows import RowPlan
    from ridgefill.engines.transformers import Filler, attach, fit, identity_maps, prefill

__version__ = "0.1.0"

__all__ = [
    "FillMaps",
    "Filler",
    "RidgeFillError",
    "RowPlan",
    "attach",
    "fit",
    "identity_maps",
    "prefill",
]

_ENGINE = "ridgefill.engines.transformers"
_HOMES = {
    "FillMaps": "ridgefill.core.maps",
    "RowPlan": "ridgefill.core.rows",
    "Filler": _ENGINE,
    "attach": _ENGINE,
    "fit": _ENGINE,
    "identity_maps": _ENGINE,
    "prefill": _ENGINE,
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ridgefill' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
