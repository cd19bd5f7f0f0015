import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from ridgefill import FillMaps
from tests.cli.conftest import words
from tests.cli.run import fit_arguments, process, refuse, succeed


def tensors_of(folder):
    return load_file(folder / "ridgefill.safetensors")


def test_prints_a_table_and_writes_maps_that_load(model, text, tmp_path):
    shown = succeed(*fit_arguments(model, text, tmp_path / "maps"))
    maps = FillMaps.from_pretrained(tmp_path / "maps")
    lines = shown.splitlines()
    assert lines[0].split() == ["layer", "penalty", "held-out", "R2"]
    layers = [int(line.split()[0]) for line in lines[2 : 2 + len(maps.r2)]]
    assert layers == [4, 5]
    assert "tokens in" in lines[-1]
    assert not list(tmp_path.glob("*.partial"))


def test_json_holds_what_the_maps_hold(model, text, tmp_path):
    arguments = ["--split", "2", "--sources", "2,0", "--target", "normed", "--tail", "16"]
    shown = succeed(*fit_arguments(model, text, tmp_path / "maps"), *arguments, "--json")
    result = json.loads(shown)
    config = FillMaps.from_pretrained(tmp_path / "maps").config
    assert (result["split"], result["sources"], result["target"]) == (2, [2, 0], "normed")
    assert (config.split, config.sources, config.target, config.tail) == (2, (2, 0), "normed", 16)
    assert [row["layer"] for row in result["layers"]] == list(config.mapped_layers)
    assert result["tokens"] == 3002 // 64 * 64
    assert set(result["versions"]) >= {"ridgefill", "torch", "transformers"}


def test_the_same_command_gives_the_same_maps(model, text, maps, tmp_path):
    succeed(*fit_arguments(model, text, tmp_path / "maps"), "--tail", "8", "--sinks", "2")
    for name, tensor in tensors_of(maps).items():
        assert torch.equal(tensor, tensors_of(tmp_path / "maps")[name])


def test_bundled_text_takes_a_share_of_every_document(model, tmp_path):
    options = ["--window", "64", "--max-tokens", "3000", "--quiet", "--json"]
    shown = succeed("fit", model, "--bundled", "--output", tmp_path / "maps", *options)
    assert 2500 < json.loads(shown)["tokens"] <= 3000
    provenance = FillMaps.from_pretrained(tmp_path / "maps").config.provenance
    assert provenance["documents"] == 15


def test_reads_a_local_dataset(model, text, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"body": [words(1500, 3), words(1500, 4)]})
    rows.save_to_disk(tmp_path / "saved")
    options = ["--window", "64", "--quiet", "--text-column", "body"]
    source = ["--dataset", tmp_path / "saved"]
    succeed("fit", model, *source, "--output", tmp_path / "maps", *options)
    provenance = FillMaps.from_pretrained(tmp_path / "maps").config.provenance
    assert provenance["documents"] == 2


def test_overwrite_replaces_old_maps(model, text, tmp_path):
    succeed(*fit_arguments(model, text, tmp_path / "maps"))
    succeed(*fit_arguments(model, text, tmp_path / "maps"), "--split", "2", "--overwrite")
    assert FillMaps.from_pretrained(tmp_path / "maps").config.split == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--split", "9"], ["split 9", "from 1 to 4"]),
        (["--split", "0"], ["split 0"]),
        (["--sources", "3,x"], ["--sources", "'3,x'"]),
        (["--sources", "2,1"], ["sources (2, 1)", "split=3"]),
        (["--sources", "3,4"], ["between 0 and the split 3"]),
        (["--target", "keys"], ["input or normed", "'keys'"]),
        (["--tail", "-1"], ["tail", "-1"]),
        (["--sinks", "-1"], ["sinks", "-1"]),
        (["--window", "8"], ["window", "16 or more"]),
        (["--held-out", "1.5"], ["held_out", "1.5"]),
        (["--max-tokens", "0"], ["--max-tokens", "1 or more"]),
        (["--max-tokens", "70"], ["70 tokens", "less than two windows"]),
        (["--dtype", "float8"], ["float8", "bfloat16"]),
        (["--bundled"], ["exactly one of --text, --dataset and --bundled"]),
        (["--gguf-file", "no.gguf"], ["no.gguf"]),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(model, text, tmp_path, options, says):
    refuse(*fit_arguments(model, text, tmp_path / "maps"), *options, says=says)
    assert not list(tmp_path.iterdir())


def test_text_that_is_not_there_is_refused(model, tmp_path):
    missing = tmp_path / "missing"
    refuse(*fit_arguments(model, missing, tmp_path / "maps"), says=[str(missing), "does not exist"])
    source = ["--dataset", str(missing)]
    refuse("fit", model, *source, "--output", tmp_path / "maps", says=[str(missing)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model_name", ["./missing", "/missing/model", "missing.gguf", "a/b/c"])
def test_a_model_path_that_is_not_there_is_refused(model_name, text, tmp_path):
    refuse(*fit_arguments(model_name, text, tmp_path / "maps"), says=[model_name, "does not exist"])


def test_a_directory_without_a_model_is_refused(text, tmp_path):
    refuse(*fit_arguments(text, text, tmp_path / "maps"), says=["config.json"])


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_a_directory_with_other_files_is_left_alone(model, text, tmp_path, overwrite):
    output = tmp_path / "mine"
    output.mkdir()
    (output / "notes.txt").write_text("keep me")
    refuse(*fit_arguments(model, text, output), *overwrite, says=[str(output)])
    assert [path.name for path in output.iterdir()] == ["notes.txt"]


def test_an_output_that_cannot_be_written_is_refused_before_the_model_is_loaded(text, tmp_path):
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "maps"
    refuse(*fit_arguments("./missing", text, output), says=[str(tmp_path / "file")])


def long_fit(model, text, output):
    return ["fit", model, "--text", text, "--output", output, "--window", 64, "--batch-tokens", 64]


def test_ctrl_c_then_the_same_command_gives_the_maps_of_one_run(model, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "maps"
    text.write_text(words(20_000, 5))
    command = ["-m", "ridgefill", *long_fit(model, text, output)]
    running = process(*command)
    shown = ""
    while "fit:" not in shown:  # the bar appears once Ctrl-C is handled
        character = running.stderr.read(1)
        assert character, shown
        shown += character
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=120)
    partial = tmp_path / "maps.partial"
    assert running.returncode == 130, rest
    assert f"kept in {partial}" in rest
    assert "Traceback" not in rest
    assert partial.is_dir()
    assert not output.exists()

    refuse(*long_fit(model, text, output), "--split", 2, says=["another model, text or options"])
    resumed = process(*command)
    _, rest = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, rest
    assert f"going on from {partial}" in rest
    assert not partial.exists()

    succeed(*long_fit(model, text, tmp_path / "at-once"), "--quiet")
    for name, tensor in tensors_of(tmp_path / "at-once").items():
        torch.testing.assert_close(tensors_of(output)[name], tensor, rtol=1e-4, atol=1e-5)


def test_two_processes_give_the_maps_of_one(model, text, maps, tmp_path):
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--standalone", "-m"]
    arguments = [*fit_arguments(model, text, tmp_path / "maps"), "--tail", "8", "--sinks", "2"]
    running = process(*launch, "ridgefill", *arguments, "--json")
    shown, errors = running.communicate(timeout=300)
    assert running.returncode == 0, errors
    json.loads(shown)  # one process prints
    for name, tensor in tensors_of(maps).items():
        torch.testing.assert_close(tensors_of(tmp_path / "maps")[name], tensor)
