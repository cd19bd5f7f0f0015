"""What importing the package loads, and that it changes nothing elsewhere."""

import json
import subprocess
import sys

import pytest

CORE = ("artefact", "cost", "engine", "errors", "maps", "ridge", "rows", "statistics")


def loaded_by(statement: str) -> set[str]:
    """Modules in a new interpreter after ``statement``."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "; ".join(f"import ridgefill.core.{name}" for name in CORE),
        "import ridgefill; ridgefill.FillMaps; ridgefill.RowPlan; ridgefill.RidgeFillError",
    ],
)
def test_core_loads_no_engine(statement: str) -> None:
    modules = loaded_by(statement)
    assert "ridgefill.core.maps" in modules
    assert not {name for name in modules if name.startswith("ridgefill.engines.")}
    assert not modules & {"transformers", "tokenizers", "accelerate", "datasets", "vllm"}


def test_names_of_the_engine_load_it() -> None:
    assert "transformers" in loaded_by("import ridgefill; ridgefill.attach")


PATCHES = """
import inspect, torch, transformers
from transformers import cache_utils, masking_utils, modeling_utils
from transformers.models.llama import modeling_llama
places = (
    torch, torch.nn.Module, torch.nn.functional, transformers.PreTrainedModel,
    transformers.DynamicCache, transformers.GenerationMixin, cache_utils, masking_utils,
    modeling_utils, modeling_llama, modeling_llama.LlamaModel, modeling_llama.LlamaAttention,
)
def state():
    held = {(place, name): id(value) for place in places for name, value in vars(place).items()}
    held["attention"] = sorted(modeling_utils.ALL_ATTENTION_FUNCTIONS.valid_keys())
    held["masks"] = sorted(masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.valid_keys())
    return held
before = state()
import ridgefill.engines.transformers
from ridgefill import Filler, attach, fit, identity_maps, prefill
after = state()
changed = [str(key) for key in before if before[key] != after.get(key)]
assert not changed, changed
"""


def test_importing_patches_nothing() -> None:
    """Classes, functions and registries of torch and transformers are the same objects after."""
    loaded_by(PATCHES)


def test_unknown_names() -> None:
    import ridgefill

    with pytest.raises(AttributeError, match="nothing_such"):
        _ = ridgefill.nothing_such
    assert set(ridgefill.__all__) <= set(dir(ridgefill))
    for name in ridgefill.__all__:
        assert getattr(ridgefill, name) is not None
