"""The command line. Every verb imports what it needs when it runs, so that help answers at once."""

from typing import Annotated

import typer

import ridgefill
from ridgefill.cli import bench, demo, evaluate, fit, generate, lm_eval, verify
from ridgefill.cli.group import Group

app = typer.Typer(
    name="ridgefill",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ridgefill {ridgefill.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    """Faster prefill: late layers' caches filled by fitted affine maps.

    \b
    Example:
      ridgefill fit MODEL --bundled --output maps
      ridgefill generate MODEL --maps maps --prompt-file long.txt
    """


app.command("fit")(fit.fit)
app.command("generate")(generate.generate)
app.command("eval")(evaluate.evaluate)
app.command("verify")(verify.verify)
app.command("lm-eval")(lm_eval.lm_eval)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
