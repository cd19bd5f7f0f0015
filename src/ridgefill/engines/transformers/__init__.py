"""The transformers engine: fit, filled prefill and attach."""

from ridgefill.engines.transformers.attach import attach
from ridgefill.engines.transformers.calibrate import FitOptions, fit
from ridgefill.engines.transformers.filler import Filler, Prefilled, prefill
from ridgefill.engines.transformers.identity import identity_maps
from ridgefill.engines.transformers.session import TransformersEngine

__all__ = [
    "Filler",
    "FitOptions",
    "Prefilled",
    "TransformersEngine",
    "attach",
    "fit",
    "identity_maps",
    "prefill",
]
