"""The cache while a prompt is being filled, and the checks on the cache it ends in.

Exact and filled rows reach a layer's cache at different times but must stand in token order.
`FillLayer` preallocates the prompt's keys and values and takes rows at any position; when the
filled region is done, its tensors move into the stock `DynamicCache` and are never seen again.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import (
    CacheLayerMixin,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from ridgefill.core.errors import UnsupportedError
from ridgefill.core.rows import ChunkRows

_STOCK_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)


class FillLayer(CacheLayerMixin):
    """Preallocated keys and values ``[batch, kv_heads, length + 1, head_dim]`` of one layer.

    The last position is scratch for the padding of ragged row sets. ``window`` limits what a
    query can see, itself included; None for full attention.
    """

    def __init__(self, stock: DynamicLayer, past: int, length: int) -> None:
        super().__init__()
        self.stock = stock
        self.window: int | None = getattr(stock, "sliding_window", None)
        self.is_sliding = self.window is not None
        self.length = length
        self.seen = past
        self.rows: ChunkRows | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = self._buffer(key_states, self.stock.keys)
        self.values = self._buffer(value_states, self.stock.values)
        self.is_initialized = True

    def _buffer(self, states: Tensor, held: Tensor | None) -> Tensor:
        batch, heads, _, width = states.shape
        buffer = states.new_empty(batch, heads, self.length + 1, width)
        if held is not None and held.numel():
            buffer[:, :, self.seen - held.shape[-2] : self.seen] = held
        return buffer

    def fill(self, rows: ChunkRows, keys: Tensor, values: Tensor) -> None:
        """Write the filled columns of a chunk, ``[batch, kv_heads, columns, head_dim]`` each."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        for buffer, states in ((self.keys, keys), (self.values, values)):
            if rows.filled is None:
                buffer[:, :, rows.start : rows.stop] = states
            else:
                buffer.index_copy_(2, rows.filled.to(buffer.device) + rows.start, states)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write new rows and return what they may see, in token order.

        Rows go to the exact slots of ``self.rows`` when it is set, else they follow the rows seen
        so far.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self._first_visible()
        if self.rows is None:
            stop = self.seen + key_states.shape[-2]
            self.keys[:, :, self.seen : stop] = key_states
            self.values[:, :, self.seen : stop] = value_states
            self.seen = stop
        else:
            stop = self.rows.stop
            _scatter(self.keys, self.rows.slots, key_states)
            _scatter(self.values, self.rows.slots, value_states)
        return self.keys[:, :, start:stop], self.values[:, :, start:stop]

    def _first_visible(self) -> int:
        return 0 if self.window is None else max(self.seen - self.window + 1, 0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        start = self._first_visible()
        return self.seen + query_length - start, start

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1

    def finish(self) -> None:
        """Move the rows into the stock layer."""
        start = self._first_visible()
        keys, values = (part[:, :, start : self.seen] for part in (self.keys, self.values))
        if self.window is not None:
            keys, values = keys.clone(), values.clone()
            self.stock.cumulative_length = self.seen
        if not self.stock.is_initialized:
            self.stock.lazy_initialization(keys, values)
        self.stock.keys, self.stock.values = keys, values


def _scatter(buffer: Tensor, slots: Tensor, states: Tensor) -> None:
    slots = slots.to(buffer.device)
    if len(slots) == 1:
        buffer.index_copy_(2, slots[0], states)
    else:
        buffer.scatter_(2, slots[:, None, :, None].expand(states.shape), states)


class FillCache(Cache):
    """A `FillLayer` for every layer of a stock cache."""

    def __init__(self, stock: DynamicCache, past: int, length: int) -> None:
        super().__init__(layers=[FillLayer(layer, past, length) for layer in stock.layers])

    @property
    def fill_layers(self) -> Sequence[FillLayer]:
        return self.layers

    def finish(self) -> None:
        """Move everything into the stock cache."""
        for layer in self.fill_layers:
            layer.finish()


def check_cache(cache: Cache, num_layers: int) -> int:
    """The number of tokens in ``cache``.

    Raises UnsupportedError, naming the cache, unless it is a plain `DynamicCache` of attention
    layers of equal length, on its own device.
    """
    kind = type(cache).__name__
    remedy = "pass a DynamicCache(config=model.config), or none"
    if type(cache) is not DynamicCache:
        raise UnsupportedError(f"a {kind} cannot be filled: {remedy}")
    if cache.offloading:
        raise UnsupportedError(f"an offloaded cache cannot be filled: {remedy}")
    if cache.layer_class_to_replicate is not None:
        while len(cache.layers) < num_layers:  # DynamicCache() grows its layers on first use
            cache.layers.append(cache.layer_class_to_replicate())
    for layer in cache.layers:
        if type(layer) not in _STOCK_LAYERS or getattr(layer, "record_past", False):
            raise UnsupportedError(f"a {type(layer).__name__} cannot be filled: {remedy}")
    lengths = {layer.get_seq_length() for layer in cache.layers}
    if len(lengths) > 1:
        raise UnsupportedError(
            f"the cache holds layers of different lengths {sorted(lengths)}: {remedy}"
        )
    return lengths.pop()


def causal_rows_mask(rows: ChunkRows, layer: FillLayer, device: torch.device) -> Tensor:
    """Which keys each exact row sees, bool ``[1 or batch, 1, rows, keys]``, without padding."""
    length, offset = layer.get_mask_sizes(rows.stop - rows.start)
    key = torch.arange(offset, offset + length, device=device)
    query = (rows.exact.to(device) + rows.start)[:, None, :, None]
    visible = key <= query
    if layer.window is not None:
        visible &= key > query - layer.window
    return visible
