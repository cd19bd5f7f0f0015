"""Any pre-norm decoder, through the layer's own forward.

The layer is called on the predicted input with a cache that takes the keys and values and stops
the call there. So a filled row runs the input norm and the q, k and v projections (often one fused
matrix), but never attention, the output projection or the MLP. Whether a layer really computes its
keys and values from its input alone is not assumed: the filler runs the oracle self-check first.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ridgefill.core.errors import UnsupportedError
from ridgefill.engines.transformers.compat import LAYER_CACHE_NAMES
from ridgefill.engines.transformers.families.base import Family, KeysValues, Layer


class _Captured(Exception):  # noqa: N818 - carries a result, signals no error
    """Carries keys and values out of a layer's forward."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys_values = (keys, values)


class _CaptureCache:
    """Looks like a cache to a layer; its first update ends the call."""

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        raise _Captured(keys, values)

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(
            f"the generic family cannot fill this layer: it asks its cache for {name!r}, so it is "
            "no plain attention layer"
        )


class Generic(Family):
    name = "generic"
    needs_self_check = True

    def from_input(self, layer: Layer, hidden: Tensor, kwargs: Mapping[str, Any]) -> KeysValues:
        capture = _CaptureCache()
        call = {name: capture if name in LAYER_CACHE_NAMES else kwargs[name] for name in kwargs}
        try:
            layer(hidden, **call)
        except _Captured as captured:
            return captured.keys_values
        raise UnsupportedError(
            "the generic family cannot fill this layer: it wrote no cache entry when called"
        )
