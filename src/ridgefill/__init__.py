"""Faster prefill: late layers' caches filled by fitted affine maps.

The core is importable without loading an engine; the transformers engine's entry points are
loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from ridgefill.core.errors import RidgeFillError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan

if TYPE_CHECKING:
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

_ENGINE = frozenset({"Filler", "attach", "fit", "identity_maps", "prefill"})


def __getattr__(name: str) -> Any:
    if name not in _ENGINE:
        raise AttributeError(f"module 'ridgefill' has no attribute {name!r}")
    from ridgefill.engines import transformers

    return getattr(transformers, name)
