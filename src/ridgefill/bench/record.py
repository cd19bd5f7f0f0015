"""What a report says about the run it comes from."""

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("ridgefill", "torch", "transformers")


def environment() -> dict[str, Any]:
    """Command, package versions, processor and threads of this process."""
    cuda = torch.cuda.is_available()
    return {
        "command": command(),
        "versions": {**{name: _version(name) for name in _PACKAGES}, "python": _python()},
        "device": torch.cuda.get_device_name() if cuda else platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def command() -> str:
    """The command line, its program by name only."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def clock() -> str:
    """The clock that tells the work done: CPU time, or wall time where an accelerator works."""
    return "wall" if torch.cuda.is_available() else "cpu"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _python() -> str:
    return platform.python_version()
