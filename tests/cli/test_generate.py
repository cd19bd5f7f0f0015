import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ridgefill import FillMaps, attach
from tests.cli.conftest import words
from tests.cli.run import invoke, refuse, succeed

PROMPT = words(60, 9)


def arguments(model, maps, *more):
    return ["generate", model, "--maps", maps, "--max-new-tokens", "6", *more]


def test_json_equals_generate_under_attach(model, maps):
    result = json.loads(succeed(*arguments(model, maps, "--prompt", PROMPT, "--json")))
    loaded = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    with attach(loaded, FillMaps.from_pretrained(maps)):
        output = loaded.generate(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=6,
            do_sample=False,
        )
    assert result["text"] == tokenizer.decode(output[0, 60:], skip_special_tokens=True)
    assert (result["prompt_tokens"], result["exact_rows"], result["filled_rows"]) == (60, 10, 50)
    assert 0 < result["ttft_s"] <= result["total_s"]
    assert 1 <= result["new_tokens"] <= 6


def test_streams_to_stdout_and_reports_on_stderr(model, maps):
    told = json.loads(succeed(*arguments(model, maps, "--prompt", PROMPT, "--json")))
    result = invoke(*arguments(model, maps, "--prompt", PROMPT))
    assert result.exit_code == 0
    assert result.stdout.split() == told["text"].split()
    assert "10 exact, 50 filled" in result.stderr
    assert "TTFT" in result.stderr


def test_prompt_from_file_and_stdin(model, maps, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT)
    first = json.loads(succeed(*arguments(model, maps, "--prompt-file", file, "--json")))
    second = succeed(*arguments(model, maps, "--prompt-file", "-", "--json"), stdin=PROMPT)
    assert first["text"] == json.loads(second)["text"]


def test_plan_options_move_rows(model, maps):
    more = ["--prompt", PROMPT, "--json", "--tail", "5", "--sinks", "0", "--chosen", "10,11"]
    result = json.loads(succeed(*arguments(model, maps, *more)))
    assert (result["exact_rows"], result["filled_rows"]) == (7, 53)


def test_exact_fills_nothing(model):
    options = ["--exact", "--prompt", PROMPT, "--max-new-tokens", "4", "--json"]
    result = json.loads(succeed("generate", model, *options))
    assert result["filled_rows"] == 0
    assert result["maps"] is None
    loaded = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    output = loaded.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False
    )
    assert result["text"] == tokenizer.decode(output[0, 60:], skip_special_tokens=True)


def test_sampling_repeats_by_seed(model, maps):
    more = ["--prompt", PROMPT, "--temperature", "1.5", "--json"]
    texts = [
        json.loads(succeed(*arguments(model, maps, *more, "--seed", seed)))["text"]
        for seed in ("3", "3", "4")
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--prompt", PROMPT, "--tail", "-3"], ["tail", "-3"]),
        (["--prompt", PROMPT, "--chosen", "a"], ["--chosen", "'a'"]),
        (["--prompt", PROMPT, "--chosen", "11,10"], ["ascending"]),
        (["--prompt", PROMPT, "--chosen", "60"], ["chosen row 60", "60 columns"]),
        (["--prompt", PROMPT, "--chat"], ["no chat template", "--no-chat"]),
        (["--prompt", PROMPT, "--temperature", "-1"], ["--temperature"]),
        (["--prompt", PROMPT, "--max-new-tokens", "0"], ["--max-new-tokens"]),
        (["--prompt", " "], ["prompt is empty"]),
        (["--prompt-file", "missing.txt"], ["missing.txt", "--prompt-file"]),
        ([], ["--prompt", "--prompt-file"]),
    ],
)
def test_bad_options_are_refused(model, maps, more, says):
    refuse(*arguments(model, maps, *more), says=says)


def test_maps_that_do_not_fit_are_refused(model, other_model, maps, text, tmp_path):
    missing = tmp_path / "missing"
    refuse(*arguments(model, missing, "--prompt", PROMPT), says=[str(missing)])
    refuse(*arguments(model, text, "--prompt", PROMPT), says=["ridgefill_config.json"])
    refuse(*arguments(other_model, maps, "--prompt", PROMPT), says=["other weights", "tiny"])
    refuse("generate", model, "--prompt", PROMPT, says=["--maps", "--exact"])


def test_no_strict_takes_maps_of_other_weights(other_model, maps):
    succeed(*arguments(other_model, maps, "--prompt", PROMPT, "--no-strict"))
