"""Calibration text: files, directories, datasets and the bundled sample."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError

SUFFIXES = (".txt", ".md", ".rst", ".py", ".json", ".jsonl")
"""What is read from a directory. A file that is named itself is read whatever its suffix."""


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The text files among ``paths``, directories searched recursively, in a fixed order.

    Hidden files and directories are left out. Raises RidgeFillError for a path that does not
    exist and for a directory without text files.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_file():
            files.append(path)
        elif path.is_dir():
            found = sorted(file for file in path.rglob("*") if _is_text(file, path))
            if not found:
                raise RidgeFillError(
                    f"{path} holds no text files: ridgefill reads {', '.join(SUFFIXES)}"
                )
            files += found
        else:
            raise RidgeFillError(f"{path} does not exist: name a text file or a directory")
    return files


def _is_text(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return file.suffix.lower() in SUFFIXES and not hidden and file.is_file()


def read_files(files: Iterable[Path], column: str = "text") -> Iterator[str]:
    """The documents of ``files``, read one at a time.

    ``.jsonl`` holds one document a line, an object with ``column`` or a string; ``.json`` the
    same as a list, or else is read as plain text. Any other file is one document of UTF-8 text.
    Raises RidgeFillError, naming the file.
    """
    for file in files:
        text = read_text(file)
        if file.suffix.lower() == ".jsonl":
            yield from _json_lines(file, text, column)
        elif file.suffix.lower() == ".json":
            yield from _json_list(file, text, column)
        else:
            yield text


def read_text(file: Path, remedy: str = "convert it or leave it out") -> str:
    """The text of a UTF-8 file. Raises RidgeFillError, with ``remedy`` where it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RidgeFillError(f"{file} is not UTF-8 text (byte {error.start}): {remedy}") from None
    except OSError as error:
        raise RidgeFillError(f"{file} cannot be read: {error.strerror}") from None


def _json_lines(file: Path, text: str, column: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise RidgeFillError(f"{file}, line {number} is not JSON ({error}): mend it") from None
        yield _field(record, column, f"{file}, line {number}")


def _json_list(file: Path, text: str, column: str) -> Iterator[str]:
    try:
        records = json.loads(text)
    except ValueError:
        records = None
    if not isinstance(records, list):
        yield text
        return
    for number, record in enumerate(records):
        yield _field(record, column, f"{file}, entry {number}")


def _field(record: Any, column: str, where: str) -> str:
    if isinstance(record, str):
        return record
    value = record.get(column) if isinstance(record, dict) else None
    if not isinstance(value, str):
        names = ", ".join(map(repr, record)) if isinstance(record, dict) else type(record).__name__
        raise RidgeFillError(
            f"{where} has no text in {column!r} (it has {names}): name the column with "
            "--text-column"
        )
    return value


def read_dataset(name: str, split: str = "train", column: str = "text") -> Iterator[str]:
    """The documents of a local or hub dataset, read through ``datasets`` as a stream.

    Args:
        name: a directory that ``save_to_disk`` wrote, any other directory or hub id that
            ``load_dataset`` reads; a configuration may follow after a colon.
        split: which split.
        column: the column that holds the text.

    Raises RidgeFillError when the dataset, split or column is not there; the first row is read
    before this returns.
    """
    with _refusing(name, split):
        rows = iter(_open_dataset(name, split))
        first = next(rows, None)
    if first is None:
        raise NotEnoughTextError(f"split {split!r} of dataset {name!r} is empty: name another")
    _field(first, column, f"dataset {name!r}")
    return (_field(row, column, f"dataset {name!r}") for row in chain([first], rows))


@contextmanager
def _refusing(name: str, split: str) -> Iterator[None]:
    """Turn what ``datasets`` raises, which is of many kinds, into one RidgeFillError."""
    try:
        yield
    except RidgeFillError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise RidgeFillError(
            f"split {split!r} of dataset {name!r} cannot be read ({reason}): check the name, "
            "--dataset-split and the connection"
        ) from None


def _open_dataset(name: str, split: str) -> Iterable[Any]:
    try:
        import datasets
    except ImportError:
        raise RidgeFillError(
            f"the package datasets is needed to read {name!r}: pip install 'ridgefill[datasets]'"
        ) from None
    path, config = _name_and_config(name)
    if (Path(path).is_absolute() or path.startswith(".")) and not Path(path).exists():
        raise RidgeFillError(f"dataset {path!r} does not exist: check the path")
    if not was_saved_to_disk(Path(path)):
        streamed: Iterable[Any] = datasets.load_dataset(path, config, split=split, streaming=True)
        return streamed
    loaded = datasets.load_from_disk(path)
    return _split_of(loaded, path, split) if isinstance(loaded, datasets.DatasetDict) else loaded


def _name_and_config(name: str) -> tuple[str, str | None]:
    if Path(name).exists() or ":" not in name:
        return name, None
    path, config = name.rsplit(":", 1)
    return path, config


def was_saved_to_disk(path: Path) -> bool:
    """Whether ``datasets`` saved a dataset to this directory."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _split_of(loaded: Any, path: str, split: str) -> Any:
    if split not in loaded:
        raise RidgeFillError(
            f"dataset {path!r} has no split {split!r}: it has {', '.join(loaded)}; name one with "
            "--dataset-split"
        )
    return loaded[split]


def bundled(part: str = "fit", share: float = 1.0) -> list[str]:
    """The documents of the bundled sample, or the first ``share`` (0 to 1) of each.

    Taking a share of every document keeps the mix of prose, manual and code; see `bundled_share`.
    """
    from ridgefill.data import sample

    texts = [document.text for document in sample(part)]
    return [text[: max(round(len(text) * share), 1)] for text in texts]


def bundled_share(tokenizer: Any, tokens: int, part: str = "fit") -> float:
    """Which share of every bundled document gives about ``tokens`` tokens in all; at most 1."""
    total = sum(
        len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        for text in bundled(part)
    )
    return min(tokens / total, 1.0)
