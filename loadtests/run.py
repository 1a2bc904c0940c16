"""Runs one scenario of load or measurement: `python loadtests/run.py NAME [options]`; without a name it lists them.

Writes NAME.md and NAME.json into `--reports`, prints the page, and ends with 1 where a claim failed.
"""

import ast
import inspect
import shlex
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from turnscore_load.machine import ScenarioError
from turnscore_load.scenario import Scenario

SCENARIOS = Path(__file__).parent / "turnscore_load" / "scenarios"


def scenarios() -> dict[str, str]:
    """The first sentence of each scenario's module, by its name on the command line."""
    files = sorted(each for each in SCENARIOS.glob("*.py") if not each.name.startswith("_"))
    return {
        each.stem.replace("_", "-"): (ast.get_docstring(ast.parse(each.read_text())) or "").partition("\n")[0]
        for each in files
    }


def read_scenario(name: str, words: Sequence[str]) -> Scenario[Any]:
    """The scenario of that name with these options. Exits with --help, or an option that is wrong."""
    module = import_module(f"turnscore_load.scenarios.{name.replace('-', '_')}")
    [kind] = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Scenario) and each.__module__ == module.__name__
        if not each.__subclasses__()
    ]
    made = list[Scenario[Any]]()

    def make(**options: Any) -> None:
        made.append(kind(**options))

    make.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name, help=kind.__doc__)(make)
    try:
        app(list(words), prog_name=f"run.py {name}")
    except SystemExit:
        if not made:
            raise
    return made[0]


def main(words: list[str]) -> int:
    """The exit code."""
    known = scenarios()
    if not words or words[0] not in known:
        for name, sentence in known.items():
            typer.echo(f"  {name:20} {sentence}")
        return 0 if words in ([], ["--help"]) else 2
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was started is stopped
    scenario = read_scenario(words[0], words[1:])
    try:
        result = scenario.run(shlex.join(["loadtests/run.py", *words]))
    except ScenarioError as error:
        typer.echo(f"{scenario.name}: {error}", err=True)
        return 1
    typer.echo(f"\n{result.markdown()}")
    return 0 if result.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
