"""The baseline that needs no fit: a late layer's input is taken to be the split state."""

from transformers import PreTrainedModel

from ridgefill.core.maps import FillMaps, MapsConfig
from ridgefill.engines.transformers.decoder import Decoder
from ridgefill.engines.transformers.fingerprint import fingerprint


def identity_maps(
    model: PreTrainedModel, split: int, *, tail: int = 256, sinks: int = 4
) -> FillMaps:
    """Identity maps of ``model`` at ``split``. Raises RidgeFillError for a split out of range."""
    config = Decoder(model).config
    return FillMaps(
        MapsConfig(
            base_model=fingerprint(model),
            split=split,
            num_layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            sources=(split,),
            kind="identity",
            tail=tail,
            sinks=sinks,
        )
    )
