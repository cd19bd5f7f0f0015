"""Running the command line in a test, in this process or in one of its own."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ridgefill.cli import app


def invoke(*arguments: Any, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def succeed(*arguments: Any, stdin: str | None = None) -> str:
    """Run a verb and return its stdout."""
    result = invoke(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def refuse(*arguments: Any, says: Iterable[str], stdin: str | None = None) -> None:
    """Run a verb that must end in exit code 2 and one line with every text of ``says``."""
    result = invoke(*arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    for part in says:
        assert part in last
    assert not result.stdout.strip()


def fit_arguments(model: Path, text: Path, output: Path) -> list[str]:
    """A fit that takes well under a second."""
    options = ["--window", "64", "--batch-tokens", "256", "--quiet"]
    return ["fit", str(model), "--text", str(text), "--output", str(output), *options]


def process(*command: Any, **options: Any) -> "subprocess.Popen[str]":
    """Start ``python`` with ``command``, one thread, stdout and stderr as text."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )
