import json

from ridgefill import FillMaps
from tests.cli.run import refuse, succeed


def arguments(model, output, *more):
    quick = ["--fit-tokens", "9000", "--length", "600", "--repeats", "1", "--documents", "2"]
    return ["demo", "--model", model, "--output", output, *quick, "--quiet", *more]


def test_one_table_with_json_plot_and_maps(model, tmp_path):
    output = tmp_path / "demo"
    shown = succeed(*arguments(model, output))
    result = json.loads((output / "results.json").read_text())
    assert [row["method"] for row in result["rows"]] == ["exact", "identity", "ridge"]
    for row in result["rows"]:
        assert row["tail_loss"] > 0
        assert isinstance(row["needle_right"], bool)
        assert row["method"] in shown
    assert result["rows"][2]["ideal"] > 1
    assert result["needle"]["in_filled_region"] is True
    assert result["n"] == {"ttft_rounds": 1, "needles": 1, "loss_documents": 2}
    assert (output / "ttft.png").read_bytes().startswith(b"\x89PNG")
    config = FillMaps.from_pretrained(output / "maps").config
    assert (config.split, config.tail, config.sinks) == (3, 256, 4)


def test_json_to_stdout_and_overwrite(model, tmp_path):
    output = tmp_path / "demo"
    first = json.loads(succeed(*arguments(model, output, "--json")))
    refuse(*arguments(model, output), says=[str(output), "--overwrite"])
    again = json.loads(succeed(*arguments(model, output, "--json", "--overwrite")))
    for one, other in zip(first["rows"], again["rows"], strict=True):
        assert one["tail_loss"] == other["tail_loss"]
        assert one["needle_answer"] == other["needle_answer"]


def test_bad_options_are_refused_and_nothing_is_written(model, tmp_path):
    output = tmp_path / "demo"
    refuse(*arguments(model, output, "--repeats", "0"), says=["--repeats"])
    refuse(*arguments("./missing", output), says=["./missing"])
    assert not output.exists()
    (output / "maps").mkdir(parents=True)
    (output / "maps" / "notes.txt").write_text("keep me")
    refuse(*arguments(model, output, "--overwrite"), says=["holds no fill maps"])
    (tmp_path / "file").write_text("")
    refuse(*arguments(model, tmp_path / "file"), says=["is a file"])
    refuse(*arguments(model, tmp_path / "file" / "demo"), says=["is a file"])
