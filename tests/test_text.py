import json

import pytest

from ridgefill import text
from ridgefill.core.errors import NotEnoughTextError, RidgeFillError


def read(*paths, column="text"):
    return list(text.read_files(text.find_files(paths), column))


def test_directories_are_searched_in_a_fixed_order(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "two.py").write_text("two")
    (tmp_path / "a.md").write_text("one")
    (tmp_path / "z.RST").write_text("three")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "no.txt").write_text("no")
    (tmp_path / ".no.txt").write_text("no")
    assert read(tmp_path) == ["one", "two", "three"]


def test_a_named_file_is_read_whatever_its_suffix(tmp_path):
    (tmp_path / "notes").write_text("grüße", encoding="utf-8")
    assert read(tmp_path / "notes") == ["grüße"]


def test_hidden_parents_do_not_hide_what_is_named(tmp_path):
    (tmp_path / ".data").mkdir()
    (tmp_path / ".data" / "one.txt").write_text("one")
    assert read(tmp_path / ".data") == ["one"]


def test_json_lines_and_lists_hold_documents(tmp_path):
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"body": "one", "n": 1}\n\n"two"\n')
    records = tmp_path / "b.json"
    records.write_text(json.dumps([{"body": "three"}, "four"]))
    plain = tmp_path / "c.json"
    plain.write_text('{"key": 1}')
    broken = tmp_path / "d.json"
    broken.write_text("{not json")
    assert read(lines, records, plain, broken, column="body") == [
        "one",
        "two",
        "three",
        "four",
        '{"key": 1}',
        "{not json",
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("a.jsonl", b'{"text": "x"}\n{oops', "line 2 is not JSON"),
        ("a.jsonl", b'{"body": "x"}', "it has 'body'"),
        ("a.jsonl", b'{"text": 3}', "no text in 'text'"),
        ("a.jsonl", b"[1]", "it has list"),
        ("a.json", b'[{"text": "x"}, {"other": 1}]', "entry 1"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RidgeFillError, match=says) as raised:
        read(tmp_path)
    assert str(tmp_path / name) in str(raised.value)


def test_missing_paths_and_empty_directories_are_refused_at_once(tmp_path):
    with pytest.raises(RidgeFillError, match="does not exist"):
        text.find_files([tmp_path / "missing"])
    with pytest.raises(RidgeFillError, match="holds no text files"):
        text.find_files([tmp_path])


def test_files_are_read_one_at_a_time(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_bytes(b"\xff")
    documents = text.read_files(text.find_files([tmp_path]))
    assert next(documents) == "one"
    with pytest.raises(RidgeFillError):
        next(documents)


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    module = pytest.importorskip("datasets")
    monkeypatch.setattr(module.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return module


def test_a_saved_dataset_is_read(datasets, tmp_path):
    data = datasets.Dataset.from_dict({"text": ["one", "two"], "n": [1, 2]})
    data.save_to_disk(tmp_path / "saved")
    assert list(text.read_dataset(str(tmp_path / "saved"))) == ["one", "two"]


def test_a_saved_dictionary_is_read_by_split(datasets, tmp_path):
    data = datasets.Dataset.from_dict({"body": ["one"]})
    datasets.DatasetDict(test=data).save_to_disk(tmp_path / "saved")
    assert list(text.read_dataset(str(tmp_path / "saved"), "test", "body")) == ["one"]
    with pytest.raises(RidgeFillError, match="no split 'train': it has test"):
        text.read_dataset(str(tmp_path / "saved"))
    with pytest.raises(RidgeFillError, match="--text-column"):
        text.read_dataset(str(tmp_path / "saved"), "test")


def test_a_directory_of_json_lines_is_streamed(datasets, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    assert list(text.read_dataset(str(tmp_path / "data"))) == ["one", "two"]
    with pytest.raises(RidgeFillError, match="split 'validation'"):
        text.read_dataset(str(tmp_path / "data"), "validation")


def test_datasets_that_are_not_there_are_refused(datasets, tmp_path):
    with pytest.raises(RidgeFillError, match="does not exist"):
        text.read_dataset(str(tmp_path / "missing"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "train.jsonl").write_text("{oops")
    with pytest.raises(RidgeFillError, match="cannot be read"):
        text.read_dataset(str(tmp_path / "broken"))


def test_an_empty_split_is_refused(monkeypatch):
    monkeypatch.setattr(text, "_open_dataset", lambda name, split: [])
    with pytest.raises(NotEnoughTextError, match="empty"):
        text.read_dataset("some/name")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(RidgeFillError, match=r"pip install 'ridgefill\[datasets\]'"):
        text.read_dataset("some/name")


def test_a_configuration_may_follow_the_name(tmp_path):
    assert text._name_and_config("owner/name:config") == ("owner/name", "config")
    assert text._name_and_config("owner/name") == ("owner/name", None)
    (tmp_path / "a:b").mkdir()
    assert text._name_and_config(str(tmp_path / "a:b")) == (str(tmp_path / "a:b"), None)


def test_bundled_share_keeps_every_document():
    whole, part = text.bundled(), text.bundled(share=0.1)
    assert len(whole) == len(part)
    for one, other in zip(whole, part, strict=True):
        assert one.startswith(other)
        assert len(other) == round(len(one) * 0.1)

    def tokenizer(document, **options):
        return {"input_ids": list(document)}

    total = sum(map(len, whole))
    assert text.bundled_share(tokenizer, total // 4) == pytest.approx(0.25, rel=1e-3)
    assert text.bundled_share(tokenizer, total * 2) == 1.0
