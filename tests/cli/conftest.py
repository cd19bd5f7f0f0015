"""A tiny random Llama with a tokenizer of its own, saved as a user would have them."""

import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = [f"w{number}" for number in range(90)]


def save_model(folder: Path, seed: int, layers: int = 6) -> Path:
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<eos>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>"
    )
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=1,
        bos_token_id=None,
        pad_token_id=1,
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def words(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(count))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny", seed=1)


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "other", seed=2)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of text, about 3000 tokens in two files."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "one.txt").write_text(words(2000, 1))
    (folder / "two.md").write_text(words(1000, 2))
    return folder


@pytest.fixture(scope="session")
def maps(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Maps of the tiny model, tail 8 and 2 sinks, fitted through the command line."""
    from tests.cli.run import fit_arguments, succeed

    folder = tmp_path_factory.mktemp("fitted") / "maps"
    succeed(*fit_arguments(model, text, folder), "--tail", "8", "--sinks", "2")
    return folder
