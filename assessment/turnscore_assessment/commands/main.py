"""`turnscore-assess`: finds the subcommands by their modules, so that a new module alone adds one."""

import pkgutil
from importlib import import_module

import typer
from turnscore_models.version_option import add_version

from turnscore_assessment import commands
from turnscore_assessment.version_option import DISTRIBUTION

NO_COMMANDS = {"main", "options"}
"""Modules beside the subcommands."""


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
    add_version(program, DISTRIBUTION)
    for name, module in find_commands().items():
        found = import_module(module)
        if hasattr(found, "app"):
            program.add_typer(found.app, name=name)
        else:
            program.command(name)(found.run)
    return program


app = build_app()
