"""The tasks of lm-evaluation-harness: found by name and loaded before any model is."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

_PACKAGES = ("lm_eval", "accelerate")
_REFUSED = {
    "UNSAFE_CODE": "runs code that the model writes, which this command does not",
    "MULTIMODAL": "needs more than text",
}


def require_packages() -> None:
    """Raise RidgeFillError when the harness is not installed."""
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        raise RidgeFillError(
            f"the package {missing} is needed for lm-eval: pip install 'ridgefill[lm-eval]'"
        )


@contextmanager
def _refusing(what: str, remedy: str) -> Iterator[None]:
    """Turn what the harness and ``datasets`` raise, which is of many kinds, into RidgeFillError."""
    try:
        yield
    except RidgeFillError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise RidgeFillError(f"{what} cannot be loaded ({reason}): {remedy}") from error


def load_tasks(
    names: Sequence[str], include_path: Path | None, metadata: Mapping[str, Any]
) -> "tuple[TaskManager, list[str]]":
    """A manager that holds the tasks, their data loaded, and their full names.

    Raises RidgeFillError for a task that is unknown, cannot be loaded or cannot be run here.
    """
    manager = _manager(names, include_path, metadata)
    matched = [_match(name, manager) for name in names]
    full = list(dict.fromkeys(name for group in matched for name in group))
    with _refusing(f"task {', '.join(full)}", "check its YAML file, its data and the connection"):
        loaded = manager.load(full)
    for name, task in loaded["tasks"].items():
        for flag, reason in _REFUSED.items():
            if getattr(task, flag, False):
                raise RidgeFillError(f"task {name} {reason}: leave it out of --tasks")
    manager.load = lambda _: loaded  # the harness asks for them again
    return manager, full


def _manager(
    names: Sequence[str], include_path: Path | None, metadata: Mapping[str, Any]
) -> "TaskManager":
    from lm_eval.tasks import TaskManager

    call = {"include_path": include_path and str(include_path), "metadata": dict(metadata)}
    with _refusing(f"the tasks in {include_path}", "check its YAML files"):
        if include_path is not None:
            own = TaskManager(include_defaults=False, **call)
            if set(names) <= set(own.all_subtasks):
                return own  # indexing the harness's own thousands of tasks takes seconds
        return TaskManager(**call)


def _match(name: str, manager: "TaskManager") -> list[str]:
    found = list(manager.match_tasks([name]))
    if not found:
        near = difflib.get_close_matches(name, manager.all_tasks, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "check --tasks and --include-path"
        raise RidgeFillError(f"the harness knows no task {name!r}: {hint}")
    return found
