"""The one place that knows how transformers versions differ."""

import inspect
from typing import Any

from torch import nn

CACHE_NAMES = ("cache", "past_key_values")
"""The forward keyword for the cache, new name (5.24) first."""

LAYER_CACHE_NAMES = (*CACHE_NAMES, "layer_past")
"""The keywords under which decoder stacks hand the cache to a layer."""


def cache_name(module: nn.Module) -> str:
    """The keyword under which ``module.forward`` takes its cache."""
    parameters = inspect.signature(module.forward).parameters
    return next((name for name in CACHE_NAMES if name in parameters), CACHE_NAMES[-1])


def cache_of(values: dict[str, Any]) -> Any:
    """The cache among call keyword arguments, under either name; None when there is none."""
    return next((values[name] for name in CACHE_NAMES if values.get(name) is not None), None)


def accepts(module: nn.Module, keyword: str) -> bool:
    """Whether ``module.forward`` names ``keyword`` among its parameters."""
    return keyword in inspect.signature(module.forward).parameters
