"""How the command line ends: bad input in one line and exit code 2, Ctrl-C in exit code 130."""

from typing import Any

import typer
from typer.core import TyperGroup

from ridgefill.core.errors import RidgeFillError

BAD_INPUT = 2
INTERRUPTED = 130


class Group(TyperGroup):
    """A group whose verbs report errors about their input without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RidgeFillError as error:
            typer.echo("error: " + " ".join(str(error).split()), err=True)  # always one line
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt as interrupt:
            typer.echo(f"interrupted: {interrupt}" if str(interrupt) else "interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
