"""`--version` of this distribution's commands."""

from importlib.metadata import version
from typing import Annotated

import typer

DISTRIBUTION = "turnscore"


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


def add_version(app: typer.Typer) -> None:
    """Gives a program of several commands the option; one of a single command names it among its own."""

    @app.callback()
    def _commands(_version: VersionOption = False) -> None: ...
