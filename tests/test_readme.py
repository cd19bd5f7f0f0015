"""The README's figures are those of the results beside the scripts."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def test_measured_tables_match_their_json() -> None:
    """Rendering the marked blocks again changes nothing."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert module.render(text) == text


def test_results_say_where_they_come_from() -> None:
    """Command, versions, seed and n stand in every result; an evaluation's command beside it."""
    for path in RESULTS.rglob("*.json"):
        if path.name == "times.json":
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        environment = result.get("environment", result)
        command = environment.get("command")
        if command is None:
            times = json.loads(path.with_name("times.json").read_text(encoding="utf-8"))
            command = times["environment"]["command"]
        assert command.startswith(("ridgefill", "quality.py")), path
        assert environment["versions"]["torch"], path
        assert "seed" in json.dumps(result), path
        assert '"n": ' in json.dumps(result), path
