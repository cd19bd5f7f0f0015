"""One small module per model family. To add one: a module here and its entry in `_FAMILIES`."""

from transformers import PretrainedConfig

from ridgefill.engines.transformers.families.base import Family, ProjectedFamily
from ridgefill.engines.transformers.families.generic import Generic
from ridgefill.engines.transformers.families.llama import Llama, SmolLM3
from ridgefill.engines.transformers.families.qwen import Qwen2, Qwen3

_FAMILIES: tuple[type[Family], ...] = (Llama, SmolLM3, Qwen2, Qwen3)

_BY_TYPE = {model_type: family for family in _FAMILIES for model_type in family.model_types}


def family_of(config: PretrainedConfig) -> Family:
    """The family of a decoder configuration: a named one, else the generic one."""
    return _BY_TYPE.get(config.model_type, Generic)()


__all__ = ["Family", "Generic", "ProjectedFamily", "family_of"]
