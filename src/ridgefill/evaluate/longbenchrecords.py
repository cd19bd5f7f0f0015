"""Records of LongBench v2 from a file, a saved dataset or the hub."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.text import read_text, was_saved_to_disk

HUB = "THUDM/LongBench-v2"
DIFFICULTIES = ("easy", "hard")
LENGTHS = ("short", "medium", "long")

_SPLIT = "train"
_LETTERS = ("A", "B", "C", "D")
_CHOICES = tuple(f"choice_{letter}" for letter in _LETTERS)
_FIELDS = (
    *("_id", "domain", "sub_domain", "difficulty", "length"),
    *("question", *_CHOICES, "answer", "context"),
)
_VALUES = {"difficulty": DIFFICULTIES, "length": LENGTHS, "answer": _LETTERS}
_REMEDY = f"LongBench v2 is data.json of the dataset {HUB}"
_CONVERT = f"convert it or fetch it again; {_REMEDY}"


@dataclass(frozen=True)
class Record:
    """One question about a document, texts bare at both ends.

    ``choices`` are A to D, ``answer`` the right one's letter.
    """

    id: str
    domain: str
    sub_domain: str
    difficulty: str
    length: str
    question: str
    choices: tuple[str, ...]
    answer: str
    context: str

    def facts(self) -> dict[str, str]:
        """What to record about samples: all but the texts."""
        names = ("id", "domain", "sub_domain", "difficulty", "length")
        return {name: getattr(self, name) for name in names}


def read_records(source: str) -> list[Record]:
    """The records of ``source`` in the order they are stored in.

    Args:
        source: a ``.json`` file with a list of objects, a ``.jsonl`` file with one a line, a
            directory that ``datasets`` saved or loads, or a hub id such as `HUB`; of a dataset the
            split ``train`` is read.

    Raises RidgeFillError, naming the file and the entry, for what cannot be read and for a record
    that lacks a field or holds a value that was never published.
    """
    path = Path(source).expanduser()
    if path.is_file():
        entries = _lines(path) if path.suffix == ".jsonl" else _list(path)
    elif path.is_absolute() or source.startswith((".", "~")) or path.suffix in (".json", ".jsonl"):
        if not path.is_dir():
            raise RidgeFillError(f"{source} does not exist: {_REMEDY}")
        entries = _dataset(str(path))
    else:
        entries = _dataset(source)
    records = [_record(entry, where) for where, entry in entries]
    if not records:
        raise NotEnoughTextError(f"{source} holds no records: {_REMEDY}")
    return records


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RidgeFillError(f"{where} is not JSON ({error}): fetch it again; {_REMEDY}") from None


def _list(path: Path) -> Iterator[tuple[str, Any]]:
    text = read_text(path, _CONVERT)
    if not text.strip():
        raise NotEnoughTextError(f"{path} is empty: {_REMEDY}")
    entries = _parse(text, str(path))
    if not isinstance(entries, list):
        raise RidgeFillError(f"{path} holds no list of records: {_REMEDY}")
    return ((f"{path}, entry {number}", entry) for number, entry in enumerate(entries))


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(read_text(path, _CONVERT).split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, _parse(line, where)


def _dataset(name: str) -> Iterator[tuple[str, Any]]:
    with _refusing(name):
        rows = _open(name)
    return ((f"dataset {name!r}, row {number}", row) for number, row in enumerate(rows))


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn what ``datasets`` raises, which is of many kinds, into RidgeFillError."""
    try:
        yield
    except RidgeFillError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise RidgeFillError(
            f"dataset {name!r} cannot be read ({reason}): check the name and the connection; "
            f"{_REMEDY}"
        ) from None


def _open(name: str) -> Iterable[Any]:
    try:
        import datasets
    except ImportError:
        raise RidgeFillError(
            f"the package datasets is needed to read {name!r}: pip install 'ridgefill[datasets]'"
        ) from None
    saved = was_saved_to_disk(Path(name))
    read: Callable[..., Any] = datasets.load_from_disk if saved else datasets.load_dataset
    found = read(name)
    if isinstance(found, Mapping):
        if _SPLIT not in found:
            raise RidgeFillError(
                f"dataset {name!r} has no split {_SPLIT!r}, only {', '.join(found)}: {_REMEDY}"
            )
        found = found[_SPLIT]
    rows: Iterable[Any] = found
    return rows


def _record(entry: Any, where: str) -> Record:
    if not isinstance(entry, Mapping):
        raise RidgeFillError(f"{where} is {type(entry).__name__}, not an object: {_REMEDY}")
    texts = {name: _text(entry, name, where) for name in _FIELDS}
    for name, allowed in _VALUES.items():
        if texts[name] not in allowed:
            raise RidgeFillError(
                f"{where}: {name!r} is {texts[name]!r}, not one of {', '.join(allowed)}: {_REMEDY}"
            )
    choices = tuple(texts.pop(name) for name in _CHOICES)
    return Record(id=texts.pop("_id"), choices=choices, **texts)


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RidgeFillError(f"{where} has no text in {name!r}: {_REMEDY}")
    return value.strip()
