"""LongBench v2 from files and datasets, and what is refused."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.longbenchrecords import read_records
from tests.evaluate.longbench_files import entry, write


def test_all_sources_give_the_same_records(tmp_path: Path) -> None:
    entries = [entry(number, words=5) for number in range(3)]
    saved = datasets.Dataset.from_list([{**e, "unused": 1} for e in entries])
    saved.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": saved}).save_to_disk(str(tmp_path / "splits"))
    sources = [
        write(tmp_path / "list.json", entries),
        write(tmp_path / "lines.jsonl", entries),
        str(tmp_path / "saved"),
        str(tmp_path / "splits"),
    ]
    found = [read_records(source) for source in sources]
    assert found[0] == found[1] == found[2] == found[3]
    assert [record.id for record in found[0]] == ["id-000", "id-001", "id-002"]
    assert found[0][1].question == "What is said in 1?"
    assert found[0][1].choices == ("A of 1", "B of 1", "C of 1", "D of 1")


def _lacking(name: str) -> dict[str, Any]:
    return {key: value for key, value in entry(1).items() if key != name}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", ["empty"]),
        ("[]", ["no records"]),
        ("{}", ["no list"]),
        ("[1", ["not JSON"]),
        ("[1]", ["entry 0", "int"]),
        (json.dumps([entry(0), _lacking("context")]), ["entry 1", "'context'"]),
        (json.dumps([_lacking("choice_C")]), ["entry 0", "'choice_C'"]),
        (json.dumps([entry(0, question=" ")]), ["'question'"]),
        (json.dumps([entry(0, answer="E")]), ["'answer'", "'E'", "A, B, C, D"]),
        (json.dumps([entry(0, length="huge")]), ["'length'", "'huge'"]),
        (
            json.dumps([entry(0, context="é")]).encode("utf-8").replace(b"\\u00e9", b"\xe9"),
            ["UTF-8"],
        ),
    ],
)
def test_what_is_not_longbench_is_refused(
    tmp_path: Path, content: str | bytes, says: list[str]
) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(RidgeFillError) as refused:
        read_records(str(path))
    for part in (str(path), "THUDM/LongBench-v2", *says):
        assert part in str(refused.value)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(entry(0)) + "\n\n{broken\n")
    with pytest.raises(RidgeFillError, match=r"line 3 is not JSON"):
        read_records(str(path))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: str(folder / "missing.json"),
        lambda folder: str(folder / "missing"),
        lambda folder: "missing.jsonl",
    ],
)
def test_missing_files_are_not_looked_up_on_the_hub(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    with pytest.raises(RidgeFillError, match=r"missing.* does not exist"):
        read_records(make(tmp_path))


def test_datasets_without_the_split_or_the_package_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = datasets.Dataset.from_list([entry(0, words=2)])
    datasets.DatasetDict({"test": saved}).save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(RidgeFillError, match="no split 'train', only test"):
        read_records(str(tmp_path / "splits"))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(RidgeFillError, match=r"nothing.* cannot be read"):
        read_records(str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RidgeFillError, match=r"ridgefill\[datasets\]"):
        read_records(str(tmp_path / "splits"))
