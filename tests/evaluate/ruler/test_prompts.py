"""Prompts as tokens: what a tokenizer adds, and where text ends up."""

import pytest
from transformers import PreTrainedTokenizerFast

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.prompting import Prompter


def test_no_end_token_before_the_answer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    tokenizer = tokenizers["word-pieces"]
    encoded = Prompter(tokenizer).encode("the house by the sea", " is")
    ids = encoded.input_ids[0].tolist()
    assert ids == tokenizer("the house by the sea is")["input_ids"][:-1]
    assert ids[0] == tokenizer.cls_token_id
    assert tokenizer.sep_token_id not in ids
    assert len(encoded.offsets) == len(ids)


@pytest.mark.parametrize("chat", ["off", "on"])
@pytest.mark.parametrize("text", ["the house by the sea", "  \n the house by the sea \n"])
def test_columns_hold_the_text_asked_for(
    chat: str, text: str, tokenizers: dict[str, PreTrainedTokenizerFast]
) -> None:
    tokenizer = tokenizers["metaspace"]
    encoded = Prompter(tokenizer, chat).encode(text, " It is")
    at = text.index("house")
    start, stop = encoded.columns(at, at + len("house"))
    assert "house" in tokenizer.decode(encoded.input_ids[0, start:stop])
    assert "sea" not in tokenizer.decode(encoded.input_ids[0, start:stop])
    assert encoded.input_ids[0].tolist().count(tokenizer.bos_token_id) == (chat == "off")


def test_templates_that_change_the_text(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    tokenizer = tokenizers["metaspace"]
    given = tokenizer.chat_template
    try:
        for template, says in (
            ("{{ messages[0]['content'] | upper }}", "changes the user's text"),
            ("{{ raise_exception('no user') }}", "failed .no user.*--chat-template off"),
        ):
            tokenizer.chat_template = template
            with pytest.raises(RidgeFillError, match=says):
                Prompter(tokenizer).encode("the house")
    finally:
        tokenizer.chat_template = given


def test_modes(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    with pytest.raises(RidgeFillError, match="no chat template"):
        Prompter(tokenizers["bytes"], "on")
    with pytest.raises(RidgeFillError, match="chat must be one of auto, on, off, got 'maybe'"):
        Prompter(tokenizers["bytes"], "maybe")
    assert not Prompter(tokenizers["bytes"]).chat
    assert Prompter(tokenizers["metaspace"]).chat
