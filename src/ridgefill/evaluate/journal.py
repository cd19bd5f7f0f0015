"""The record of a run on disk: what was asked for, and one line per finished item.

``config.json`` says what the records depend on; ``samples.jsonl`` grows by one line at a time, each
flushed to disk, so that a run killed at any point goes on where it was.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ridgefill.core.artefact import write_file
from ridgefill.core.errors import RidgeFillError

CONFIG, SAMPLES = "config.json", "samples.jsonl"


class Journal:
    """Finished records by item id, in a directory or (without one) in memory.

    Args:
        folder: made when it is missing.
        config: a JSON object of all that records depend on, and not of how many are asked for.

    Raises RidgeFillError when the directory holds a run with another config, naming the first
    difference; nothing is changed then.
    """

    def __init__(self, folder: Path | None, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.records: dict[str, dict[str, Any]] = {}
        if folder is None:
            return
        held = _read_config(folder / CONFIG)
        if held is not None:
            _check_same(folder, held, json.loads(json.dumps(config)))
            self._load(folder / SAMPLES)
            return
        if (folder / SAMPLES).exists():
            raise RidgeFillError(
                f"{folder} holds {SAMPLES} without {CONFIG}: name another --output"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, config)

    def append(self, record: dict[str, Any]) -> None:
        """Add a finished record; on disk when this returns."""
        # What comes back from JSON is what later steps read, in this run as after a resume.
        line = json.dumps(record, ensure_ascii=False)
        self.records[record["id"]] = json.loads(line)
        if self.folder is None:
            return
        with (self.folder / SAMPLES).open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _load(self, path: Path) -> None:
        """Read the finished records and cut off a line that was only half written."""
        if not path.exists():
            return
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = json.loads(line)
                self.records[record["id"]] = record
            except (ValueError, KeyError, TypeError) as error:
                raise RidgeFillError(
                    f"{path}, line {number} is no record of a run ({error}): name another --output "
                    "or pass --overwrite"
                ) from None
        if len(whole) < len(data):
            with path.open("rb+") as file:
                file.truncate(len(whole))


def _read_config(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RidgeFillError(f"{path} cannot be read ({error}): name another --output") from None
    if not isinstance(found, dict):
        raise RidgeFillError(f"{path} is no record of a run: name another --output")
    return found


def _check_same(folder: Path, held: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    for key in sorted({*held, *asked}):
        if held.get(key) != asked.get(key):
            raise RidgeFillError(
                f"{folder} holds a run with another {key} ({_short(held.get(key))}, now "
                f"{_short(asked.get(key))}): name another --output or pass --overwrite"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object atomically; equal values give equal bytes."""
    write_file(path, (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())
