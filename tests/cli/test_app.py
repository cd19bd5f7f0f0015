import subprocess
import sys

import pytest

import ridgefill
from ridgefill.cli import app, group
from tests.cli.run import invoke, succeed


def test_version_is_that_of_the_package():
    assert succeed("--version").strip() == f"ridgefill {ridgefill.__version__}"


@pytest.mark.parametrize("verb", ["fit", "generate", "bench", "demo"])
def test_help_of_every_verb_has_an_example(verb):
    shown = succeed(verb, "--help")
    assert "Example:\n" in shown
    assert f"ridgefill {verb} " in shown


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom ridgefill.cli import app\n"
        "try:\n    app(['fit', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_defaults_in_help_are_those_of_the_library():
    from ridgefill.engines.transformers import FitOptions

    shown = " ".join(succeed("fit", "--help").split())
    for name in ("window", "batch_tokens", "held_out", "sinks", "tail"):
        option = shown.index("--" + name.replace("_", "-") + " ")
        described = shown[option : shown.index("Default:", option) + 40]
        assert f"Default: {getattr(FitOptions(), name)}." in described, name


@pytest.mark.parametrize("message", ["", "kept in maps.partial"])
def test_ctrl_c_ends_in_130(monkeypatch, message):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt(message)

    monkeypatch.setattr("ridgefill.cli.demo.check_results", interrupted)
    result = invoke("demo")
    assert result.exit_code == group.INTERRUPTED == 130
    assert result.stderr.strip() == ("interrupted: " + message if message else "interrupted")


def test_an_unknown_verb_is_refused():
    assert invoke("fill").exit_code == 2


def test_the_console_script_is_the_app():
    from importlib.metadata import entry_points

    (script,) = [e for e in entry_points(group="console_scripts") if e.name == "ridgefill"]
    assert script.load() is app
