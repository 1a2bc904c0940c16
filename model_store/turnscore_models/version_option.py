"""`--version` of a distribution's commands."""

from importlib.metadata import version
from typing import Annotated, Any

import typer


def version_option(distribution: str) -> Any:
    """The option of a program of a single command, among its others: `Annotated[bool, version_option(...)]`."""

    def print_version(is_asked: bool) -> None:
        if is_asked:
            typer.echo(f"{distribution} {version(distribution)}")
            raise typer.Exit

    return typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")


def add_version(app: typer.Typer, distribution: str) -> None:
    """Gives a program of several commands the option."""

    @app.callback()
    def _commands(_version: Annotated[bool, version_option(distribution)] = False) -> None: ...
