"""`turnscore-assess`: finds the subcommands. Knows none of them by name, so that a module alone adds one."""

import pkgutil
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from turnscore_assessment import commands

DISTRIBUTION = "turnscore-assessment"
NO_COMMANDS = {"main", "options"}
"""Modules beside the subcommands that are none."""


def find_commands() -> dict[str, str]:
    """The subcommands' names and the modules they are in."""
    names = sorted(each.name for each in pkgutil.iter_modules(commands.__path__))
    return {name.replace("_", "-"): f"{commands.__name__}.{name}" for name in names if name not in NO_COMMANDS}


def build_app() -> typer.Typer:
    """The program with every subcommand."""
    program = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Judging dialogue systems with people: studies, reports, and scores against them.",
    )
    program.callback()(_say_version)
    for name, module in find_commands().items():
        program.command(name)(import_module(module).run)
    return program


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
        raise typer.Exit


def _say_version(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


app = build_app()
