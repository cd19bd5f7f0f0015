"""The errors ridgefill raises for bad input. Each message names the value and the remedy."""


class RidgeFillError(ValueError):
    """Base of every error about what the user passed in."""


class ArtefactError(RidgeFillError):
    """A fill-maps directory is missing something, damaged, tampered with or of another format."""


class ModelMismatchError(RidgeFillError):
    """Fill maps were fitted on another model, another revision or other weights."""


class NotEnoughTextError(RidgeFillError):
    """The calibration text is too short to fit maps from."""


class NonFiniteError(RidgeFillError):
    """The residual stream holds NaN or infinity."""


class UnsupportedError(RidgeFillError):
    """A model, cache or call that ridgefill cannot fill, refused by name."""
