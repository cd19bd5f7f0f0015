"""``ridgefill eval`` and ``ridgefill verify`` on a tiny model."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ridgefill.cli import evaluation as shared
from ridgefill.cli.evaluate import summary
from tests.cli.run import invoke, process, refuse, succeed
from tests.evaluate.longbench_files import entry, write

AMOUNTS = ["--samples", "2", "--documents", "2", "--splices", "1"]
SHORT = ["--lengths", "320", "--tail", "40", "--tasks", "niah_single_1,niah_multikey_1", "--quiet"]
FILES = {
    *("config.json", "samples.jsonl", "results.json", "times.json", "report.html"),
    *("retrieval.png", "loss.png", "tasks.png", "splice-loss.png", "splice-retrieval.png"),
}


@pytest.fixture
def arguments(model: Path, maps: Path, text: Path) -> Callable[..., list[str]]:
    def make(output: Path, *more: str) -> list[str]:
        known = ["--maps", str(maps), "--text", str(text), "--output", str(output)]
        return ["eval", str(model), *known, *SHORT, *AMOUNTS, *more]

    return make


Arguments = Callable[..., list[str]]


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_what_a_run_leaves_and_prints(arguments: Arguments, tmp_path: Path) -> None:
    printed = succeed(*arguments(tmp_path / "out"))
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert FILES - {"splice-loss.png", "splice-retrieval.png"} <= found <= FILES
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [plan["name"] for plan in results["plans"]] == ["exact", "identity s=3", "maps"]
    assert printed.splitlines()[0].split()[0] == "plan"
    for plan in results["plans"]:
        assert any(line.startswith(plan["name"]) for line in printed.splitlines())
    records = samples(tmp_path / "out")
    assert len(records) == 2 * 2 + 2 + 2
    assert {record["kind"] for record in records} == {"answer", "loss", "splice"}
    html = (tmp_path / "out" / "report.html").read_text()
    assert "identity s=3" in html


def test_json_on_stdout_is_what_is_on_disk(arguments: Arguments, tmp_path: Path) -> None:
    printed = json.loads(succeed(*arguments(tmp_path / "out", "--json")))
    assert printed.pop("times") == json.loads((tmp_path / "out" / "times.json").read_text())
    assert printed == json.loads((tmp_path / "out" / "results.json").read_text())
    assert summary(printed, {"rows": []})


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed(arguments: Arguments, tmp_path: Path, stop: signal.Signals) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    many = ("--samples", "4", "--documents", "6")
    assert process("-m", "ridgefill", *arguments(whole, *many)).wait() == 0
    running = process("-m", "ridgefill", *arguments(cut, *many))
    journal = cut / "samples.jsonl"
    while running.poll() is None and not (journal.exists() and journal.stat().st_size):
        time.sleep(0.002)
    running.send_signal(stop)
    _, errors = running.communicate()
    assert running.returncode == (130 if stop is signal.SIGINT else -signal.SIGKILL), errors
    if stop is signal.SIGINT:
        assert errors.strip().endswith("interrupted: the same command goes on from here")
    assert not (cut / "results.json").exists()
    before = len(samples_so_far(journal))
    resumed = process("-m", "ridgefill", *arguments(cut, *many))
    _, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    assert 0 < before < len(samples(whole)) == len(samples(cut))
    assert (cut / "results.json").read_bytes() == (whole / "results.json").read_bytes()


def samples_so_far(journal: Path) -> list[bytes]:
    return journal.read_bytes().splitlines()


def test_a_finished_run_is_not_run_again(arguments: Arguments, tmp_path: Path) -> None:
    out = tmp_path / "out"
    succeed(*arguments(out))
    before = {name: (out / name).read_bytes() for name in ("samples.jsonl", "results.json")}
    (out / "report.html").unlink()
    succeed(*arguments(out))
    assert {name: (out / name).read_bytes() for name in before} == before
    assert (out / "report.html").exists()


def test_another_run_is_refused_and_overwritten_on_request(
    arguments: Arguments, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    succeed(*arguments(out))
    before = (out / "samples.jsonl").read_bytes()
    refuse(*arguments(out, "--seed", "5"), says=["another seed (0, now 5)", "--overwrite"])
    assert (out / "samples.jsonl").read_bytes() == before
    refuse(*arguments(out, "--overwrite", "--lengths", "3000"), says=["no document has"])
    assert (out / "samples.jsonl").read_bytes() == before
    succeed(*arguments(out, "--seed", "5", "--overwrite"))
    assert json.loads((out / "results.json").read_text())["config"]["seed"] == 5
    (out / "notes.txt").write_text("mine")
    refuse(*arguments(out, "--overwrite"), says=["notes.txt", "not overwritten"])
    assert (out / "notes.txt").read_text() == "mine"


def test_a_directory_of_something_else_is_left_alone(arguments: Arguments, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    refuse(*arguments(tmp_path), says=["is not empty"])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_plans_from_a_file(model: Path, maps: Path, text: Path, tmp_path: Path) -> None:
    shutil.copytree(maps, tmp_path / "fitted")
    plans = tmp_path / "plans.json"
    plans.write_text(
        json.dumps(
            [
                {"name": "every eighth", "maps": "fitted", "every": 8},
                {"name": "<b>long tail", "maps": "fitted", "tail": 100},
            ]
        )
    )
    out = tmp_path / "out"
    command = ["eval", model, "--plans", plans, "--text", text, "--output", out, *SHORT, *AMOUNTS]
    succeed(*command, "--dump-tokens", "npz")
    results = json.loads((out / "results.json").read_text())
    assert [plan["name"] for plan in results["plans"]] == ["exact", "every eighth", "<b>long tail"]
    assert results["plans"][1]["filled_rows"]["320"] == 280 - 2 - 35  # before the tail
    assert "<b>long tail" not in (out / "report.html").read_text()
    assert len(list((out / "tokens").glob("*.npz"))) == 2


def bad(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--suite", "huge"], ["--suite is one of quick, full", "'huge'"]),
        (["--tasks", "niah"], ["unknown RULER task 'niah'"]),
        (["--tasks", "qa_1"], ["SQuAD", "--squad"]),
        (["--tasks", "none", "--documents", "0", "--splices", "0"], ["nothing to measure"]),
        (["--lengths", "320,x"], ["--lengths takes whole numbers"]),
        (["--tail", "400"], ["fills nothing of a prompt of 320 tokens"]),
        (["--chat-template", "on"], ["no chat template"]),
        (["--chat-template", "maybe"], ["auto, on, off"]),
        (["--max-distant-loss", "much"], ["--max-distant-loss takes a share such as 1%"]),
        (["--min-needle", "101%"], ["from 0 to 1"]),
        (["--margin", "0"], ["margin must be above 0"]),
        (["--dump-tokens", "csv"], ["npz or parquet", "'csv'"]),
        (["--samples", "-1"], ["--samples must be 0 or more"]),
        (["--plans", "plans.json"], ["either --maps or --plans"]),
        (["--essays", "missing.txt"], ["missing.txt does not exist"]),
        (["--squad", "missing.json"], ["missing.json does not exist"]),
        (["--lengths", "3000"], ["no document has the 3001 tokens"]),
        (["--tasks", "vt", "--lengths", "100"], ["vt/100/0", "larger length"]),
    ],
)
def test_refusals(
    arguments: Arguments, tmp_path: Path, options: list[str], says: list[str]
) -> None:
    refuse(*arguments(tmp_path / "out", *options), says=says)
    assert not (tmp_path / "out" / "results.json").exists()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", ["the longest has 0"]),
        (b" \n", ["the longest has 0"]),
        (b"\xff\xfew1 w2", ["is not UTF-8 text"]),
        (b"w1 w2 w3", ["no document has the 321 tokens", "the longest has 3"]),
    ],
)
def test_texts_that_are_none(
    model: Path, maps: Path, tmp_path: Path, data: bytes, says: list[str]
) -> None:
    file = bad(tmp_path / "own.txt", data)
    out = tmp_path / "out"
    command = ["eval", model, "--maps", maps, "--text", file, "--output", out, *SHORT, *AMOUNTS]
    refuse(*command, says=says)
    assert not out.exists()


def test_maps_of_another_model(other_model: Path, maps: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["eval", other_model, "--maps", maps, "--text", text, "--output", out, *SHORT]
    refuse(*command, says=["fitted"])
    assert not out.exists()


def verify_arguments(model: Path, maps: Path, text: Path, *more: Any) -> list[Any]:
    sizes = ["--length", 320, "--tail", 40, "--samples", 2, "--documents", 6]
    return ["verify", model, "--maps", maps, "--text", text, *sizes, "--quiet", *more]


def test_verify_measures(model: Path, maps: Path, text: Path, tmp_path: Path) -> None:
    """The tiny model answers nothing, so there is no needle that a fill could lose."""
    out = tmp_path / "out"
    arguments = verify_arguments(model, maps, text, "--max-distant-loss", "1000%", "--output", out)
    result = invoke(*arguments)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "verdict: unsure"
    assert "answers kept in the filled region: not measured" in lines[-1]
    before = (out / "samples.jsonl").read_bytes()
    more = invoke(*arguments, "--documents", 8, "--json")
    assert (out / "samples.jsonl").read_bytes().startswith(before)
    assert json.loads(more.stdout)["answer"] == "unsure"


def check(name: str, answer: str, more: int | None = None) -> dict[str, Any]:
    interval = {"mean": 0.012, "low": 0.004, "high": None, "n": 9}
    return {"name": name, "limit": 0.01, "interval": interval, "answer": answer, "more": more}


@pytest.mark.parametrize(
    ("answer", "checks", "code", "says"),
    [
        ("safe", [check("needle", "safe")], 0, ["verdict: safe", "at least 1.00%"]),
        ("harmful", [check("distant_loss", "harmful")], 1, ["verdict: harmful", "at most 1.00%"]),
        (
            "unsure",
            [check("distant_loss", "unsure", 40), check("needle", "unsure")],
            1,
            [
                "distant-token loss: +1.20% [+0.40%, –] (n=9)",
                "about 40 more documents like these would decide",
                "too near to the limit",
            ],
        ),
    ],
)
def test_verdicts_and_exit_codes(
    model: Path,
    maps: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    checks: list[dict[str, Any]],
    code: int,
    says: list[str],
) -> None:
    found = {"plan": "filled", "answer": answer, "checks": checks, "unmeasured": []}
    monkeypatch.setattr(shared, "run", lambda *run: ({"verdicts": [found]}, {}))
    result = invoke(*verify_arguments(model, maps, text))
    assert result.exit_code == code, result.output
    for part in says:
        assert part in result.stdout


def test_environment_has_no_address(arguments: Arguments, tmp_path: Path) -> None:
    """Results can be shared: no path of this machine is in them."""
    out = tmp_path / "out"
    succeed(*arguments(out))
    for name in ("results.json", "report.html"):
        assert str(tmp_path) not in (out / name).read_text()
        assert os.path.expanduser("~") + os.sep not in (out / name).read_text()


def test_longbench_is_split_by_difficulty_and_length(
    model: Path, maps: Path, text: Path, tmp_path: Path
) -> None:
    questions = write(tmp_path / "data.json", [entry(number) for number in range(6)])
    out = tmp_path / "out"
    command = ["eval", model, "--maps", maps, "--text", text, "--output", out, *SHORT]
    succeed(*command, "--tasks", "none", "--longbench", questions, "--samples", "4")
    results = json.loads((out / "results.json").read_text())
    for plan in ("exact", "identity s=3", "maps"):
        parts = results["longbench"][plan]
        assert parts["overall"]["n"] == parts["easy"]["n"] + parts["hard"]["n"] == 4
    assert "LongBench v2, accuracy" in (out / "report.html").read_text()
    assert {row["region"] for row in results["answers"]} == {"all", "spread"}
