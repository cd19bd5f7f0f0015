import json
import sys
from functools import partial

import pytest
from lm_eval import evaluator
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.cli.run import invoke, refuse, succeed
from tests.harness_tasks import TASKS, write_tasks

FIELDS = ("doc_id", "resps", "filtered_resps", "doc_hash", "prompt_hash", "metrics")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("harness") / "tasks")


def arguments(model, tasks, output, *more):
    names = ["--tasks", ",".join(TASKS), "--include-path", tasks, "--output", output]
    return ["lm-eval", model, *names, *more]


def read(folder):
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return json.loads((folder / "results.json").read_text()), [json.loads(line) for line in lines]


def stock(model, tasks, batch_size=1):
    """The harness's own model on the same tasks."""
    lm = HFLM(
        AutoModelForCausalLM.from_pretrained(model),
        tokenizer=AutoTokenizer.from_pretrained(model),
        batch_size=batch_size,
    )
    loaded = TaskManager(include_path=str(tasks), include_defaults=False).load(list(TASKS))
    return evaluator.evaluate(lm, task_dict=loaded)


def plain(sample):
    return json.loads(json.dumps({name: sample[name] for name in FIELDS}, default=str))


def test_exact_is_what_the_harness_itself_gives(model, tasks, tmp_path):
    output = tmp_path / "out"
    succeed(*arguments(model, tasks, output, "--exact", "--batch-size", "3"))
    results, samples = read(output)
    expected = stock(model, tasks, batch_size=3)
    ours = {name: [plain(s) for s in samples if s["task"] == name] for name in TASKS}
    theirs = {name: [plain(s) for s in expected["samples"][name]] for name in TASKS}
    assert ours == theirs
    for name in TASKS:
        own = {key: v for key, v in results["results"][name].items() if "," in key}
        assert own == {key: v for key, v in expected["results"][name].items() if "," in key}
    assert results["fill"] == {"fill": "exact"}


def test_filled_results_say_what_was_filled(model, maps, tasks, tmp_path, caplog):
    output = tmp_path / "out"
    shown = invoke(*arguments(model, tasks, output, "--maps", maps))
    assert shown.exit_code == 0, shown.output
    results, samples = read(output)
    counts = {"filled": 16, "exact_short": 0, "exact_scored": 4, "exact_rolling": 0}
    assert results["fill"]["requests"] == counts
    assert {key: results["fill"][key] for key in ("fill", "maps", "tail", "sinks")} == {
        **{"fill": "ridge", "maps": "maps", "tail": 8, "sinks": 2}
    }
    assert results["model"] == "tiny"
    assert results["config"]["tasks"] == list(TASKS)
    assert results["task_versions"] == dict.fromkeys(TASKS, 1.0)
    assert {"ridgefill", "torch", "transformers", "lm_eval"} <= set(results["versions"])
    assert len(samples) == 8
    line = "20 requests: 16 filled; 4 exact, more scored tokens than the tail holds"
    assert line in shown.stdout
    assert [f"ridgefill: {line}"] == [
        record.message for record in caplog.records if record.name.startswith("ridgefill")
    ]
    first = next(row.split() for row in shown.stdout.splitlines() if row.startswith(TASKS[0]))
    score = results["results"][TASKS[0]]["acc,none"]
    assert first[:5] == [TASKS[0], "acc", "none", "4", f"{score:.4f}"]


def test_identity_as_json(model, tasks, tmp_path):
    fill = ["--identity", "--split", "3", "--tail", "6", "--sinks", "1", "--limit", "2"]
    shown = succeed(*arguments(model, tasks, tmp_path / "out", *fill, "--json"))
    results = json.loads(shown)
    assert results == read(tmp_path / "out")[0]
    assert [results["fill"][key] for key in ("fill", "split", "tail", "sinks")] == [
        *("identity", 3, 6, 1)
    ]
    assert sum(results["fill"]["requests"].values()) == 2 * 4 + 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], ["--maps", "--identity", "--exact"]),
        (["--exact", "--identity", "--split", "3"], ["exactly one"]),
        (["--identity"], ["--split"]),
        (["--exact", "--split", "3"], ["--identity", "--split"]),
        (["--exact", "--tail", "4"], ["--tail", "--exact"]),
        (["--maps", "missing/maps/here"], ["missing/maps/here"]),
        (["--identity", "--split", "3", "--tail", "0"], ["tail"]),
        (["--exact", "--limit", "0"], ["--limit", "0"]),
        (["--exact", "--batch-size", "0"], ["--batch-size", "0"]),
        (["--exact", "--metadata", "[4096]"], ["--metadata", "[4096]"]),
        (["--exact", "--include-path", "nowhere"], ["nowhere", "--include-path"]),
        (["--exact", "--tasks", " ,"], ["--tasks"]),
        (["--exact", "--apply-chat-template"], ["no chat template"]),
    ],
)
def test_bad_options_are_refused(model, tasks, tmp_path, more, says):
    refuse(*arguments(model, tasks, tmp_path / "out", *more), says=says)
    assert not (tmp_path / "out").exists()


def test_unknown_tasks_are_named_with_the_nearest(tasks, tmp_path, monkeypatch):
    """Before the model is looked for; without the harness's own tasks, whose index takes long."""
    monkeypatch.setattr("lm_eval.tasks.TaskManager", partial(TaskManager, include_defaults=False))
    call = arguments("no/such/model", tasks, tmp_path / "out", "--exact", "--tasks", "local_chois")
    refuse(*call, says=["'local_chois'", "local_choice"])


def test_tasks_whose_data_is_missing_are_refused(model, tasks, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    yaml = (tasks / "local_choice.yaml").read_text()
    (folder / "local_choice.yaml").write_text(yaml.replace("local_choice.jsonl", "gone.jsonl"))
    call = ["lm-eval", model, "--exact", "--tasks", "local_choice", "--include-path", folder]
    refuse(*call, "--output", tmp_path / "out", says=["local_choice", "gone.jsonl", "check"])


def test_other_results_are_not_overwritten(model, tasks, tmp_path):
    (tmp_path / "results.json").write_text("{}")
    refuse(*arguments(model, tasks, tmp_path, "--exact"), says=["not empty", "--overwrite"])
    (tmp_path / "notes.txt").write_text("mine")
    refuse(*arguments(model, tasks, tmp_path, "--exact", "--overwrite"), says=["notes.txt"])


def test_without_the_harness_the_remedy_is_named(model, tasks, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    refuse(*arguments(model, tasks, tmp_path / "out", "--exact"), says=["ridgefill[lm-eval]"])


def test_maps_of_another_model_are_refused(other_model, maps, tasks, tmp_path):
    call = arguments(other_model, tasks, tmp_path / "out", "--maps", maps)
    refuse(*call, says=["other weights", "tiny"])
    succeed(*call, "--no-strict", "--limit", "1")
