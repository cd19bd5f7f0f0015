"""What the verbs print and write: plain tables, JSON, and directories of results."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ridgefill.core.errors import RidgeFillError


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain table: the first column to the left, the others to the right."""
    cells = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def print_json(values: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(values, indent=2))


def say(message: str, quiet: bool = False) -> None:
    """A line about what is going on, on stderr."""
    if not quiet:
        typer.echo(message, err=True)


def check_results(directory: Path | None, names: Sequence[str], overwrite: bool) -> None:
    """Raise RidgeFillError when writing results to ``directory`` would lose what is there.

    With ``overwrite`` only the files and directories ``names`` may be there.
    """
    if directory is None:
        return
    check_writable(directory)
    if not directory.exists():
        return
    if not directory.is_dir():
        raise RidgeFillError(f"{directory} is a file: name a directory with --output")
    held = sorted(path.name for path in directory.iterdir())
    if held and not overwrite:
        raise RidgeFillError(
            f"{directory} exists and is not empty: name another directory or pass --overwrite"
        )
    foreign = [name for name in held if name not in names]
    if foreign:
        raise RidgeFillError(
            f"{directory} holds {foreign[0]}, which is no result of this command, so it is not "
            "overwritten: name another directory"
        )


def check_writable(directory: Path) -> None:
    """Raise RidgeFillError unless ``directory`` can be made or written to."""
    absolute = directory.absolute()
    held = next(path for path in (absolute, *absolute.parents) if path.exists())
    if held != absolute and not held.is_dir():
        raise RidgeFillError(f"{held} is a file, so {directory} cannot be made: name another")
    if not os.access(held, os.W_OK):
        raise RidgeFillError(f"{held} cannot be written to: name another --output")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON atomically."""
    from ridgefill.core.artefact import write_file

    write_file(path, (json.dumps(values, indent=2) + "\n").encode())
