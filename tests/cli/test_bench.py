import json

import pytest

from tests.cli.run import refuse, succeed

PNG = b"\x89PNG"


def arguments(model, maps, *more):
    quick = ["--lengths", "64,32", "--repeats", "2", "--quiet"]
    return ["bench", model, "--maps", maps, *quick, *more]


def test_writes_results_and_a_plot(model, maps, tmp_path):
    output = tmp_path / "bench"
    shown = succeed(*arguments(model, maps, "--no-fit-cost", "--output", output))
    result = json.loads((output / "results.json").read_text())
    assert (output / "ttft.png").read_bytes().startswith(PNG)
    assert [(row["length"], row["method"]) for row in result["rows"]] == [
        (length, method) for length in (64, 32) for method in ("exact", "identity", "maps")
    ]
    assert result["n"] == 2
    assert set(result) >= {"command", "versions", "seed", "model", "threads"}
    assert result["rows"][2]["ideal"] > 1
    assert "measured/ideal" in shown
    assert str(output) in shown


def test_json_goes_to_stdout_and_no_output_writes_nothing(model, maps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = succeed(*arguments(model, maps, "--no-fit-cost", "--no-identity", "--json"))
    assert {row["method"] for row in json.loads(shown)["rows"]} == {"exact", "maps"}
    assert not list(tmp_path.iterdir())


def test_fit_cost_is_printed_with_memory_that_does_not_grow(model, maps):
    more = ["--fit-cost-tokens", "20000", "--seed", "3"]
    cost = json.loads(succeed(*arguments(model, maps, *more, "--json")))["fit_cost"]
    assert 18_000 < cost["tokens"] <= 20_000
    for over in (cost["over_decoder"], cost["over_model"]):
        assert over["ratio_with_solve"] > over["ratio"] > 0
    half, whole = cost["peak"]["half"], cost["peak"]["all"]
    assert whole["tokens"] > half["tokens"]
    assert whole["bytes"] == half["bytes"] > 0


def test_fit_cost_has_a_table(model, maps):
    shown = succeed(*arguments(model, maps, "--fit-cost-tokens", "9000"))
    assert "forward, decoder alone" in shown
    assert "with solve, 100K tokens" in shown
    assert "peak memory of the fit beyond the model" in shown


def test_prompts_from_a_file(model, maps, text):
    more = ["--no-fit-cost", "--prompt-file", text / "one.txt", "--json"]
    assert json.loads(succeed(*arguments(model, maps, *more)))["prompt_text"] == "one.txt"


def test_overwrite_replaces_results_but_nothing_else(model, maps, tmp_path):
    output = tmp_path / "bench"
    once = arguments(model, maps, "--no-fit-cost", "--no-identity", "--output", output)
    succeed(*once)
    refuse(*once, says=[str(output), "--overwrite"])
    succeed(*once, "--overwrite")
    (output / "notes.txt").write_text("keep me")
    refuse(*once, "--overwrite", says=["notes.txt"])
    assert (output / "notes.txt").read_text() == "keep me"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--lengths", "64;32"], ["--lengths", "64;32"]),
        (["--lengths", "1"], ["--lengths", "2 or more"]),
        (["--lengths", "2500"], ["2000 tokens", "2500"]),
        (["--repeats", "0"], ["--repeats"]),
        (["--tail", "0"], ["tail"]),
        (["--threads", "0"], ["--threads"]),
        (["--maps", "missing"], ["missing"]),
        (["--prompt-file", "missing.txt"], ["missing.txt"]),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(model, maps, text, tmp_path, more, says):
    output = tmp_path / "bench"
    file = [] if "--prompt-file" in more else ["--prompt-file", text / "one.txt"]
    refuse(*arguments(model, maps, "--no-fit-cost", "--output", output, *file), *more, says=says)
    assert not output.exists()


def test_maps_of_another_model_are_refused(other_model, maps, tmp_path):
    output = tmp_path / "bench"
    refuse(*arguments(other_model, maps, "--output", output), says=["other weights"])
    assert not output.exists()


def test_the_same_maps_twice_are_refused(model, maps):
    refuse(*arguments(model, maps, "--maps", maps), says=["twice"])
