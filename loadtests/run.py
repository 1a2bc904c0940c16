"""Runs one scenario of load or measurement: `python loadtests/run.py NAME [options]`; without a name it lists them.

Writes NAME.md and NAME.json into `--reports`, or build/load, prints the page, and ends with 1 where a claim failed.
"""

import ast
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from turnscore_load.machine import ScenarioError
from turnscore_load.results import ScenarioResult

SCENARIOS = Path(__file__).parent / "turnscore_load" / "scenarios"


def scenarios() -> dict[str, str]:
    """The first sentence of each scenario's module, by its name on the command line."""
    files = sorted(each for each in SCENARIOS.glob("*.py") if not each.name.startswith("_"))
    return {
        each.stem.replace("_", "-"): (ast.get_docstring(ast.parse(each.read_text())) or "").partition("\n")[0]
        for each in files
    }


def find_option(words: list[str], name: str, *, take: bool = True) -> str:
    """The value of `name VALUE` or `name=VALUE`, which it takes out of the words; empty where it is not there."""
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            value, end = words[place + 1], place + 2
        elif word.startswith(f"{name}="):
            value, end = word.partition("=")[2], place + 1
        else:
            continue
        if take:
            del words[place:end]
        return value
    return ""


def run_scenario(name: str, words: Sequence[str]) -> ScenarioResult:
    """What the scenario's `main` returns, called with its own options."""
    app, kept = typer.Typer(add_completion=False, pretty_exceptions_enable=False), list[ScenarioResult]()
    scenario = import_module(f"turnscore_load.scenarios.{name.replace('-', '_')}").main

    @wraps(scenario)
    def keep(**options: Any) -> None:
        kept.append(scenario(**options))

    app.command(name)(keep)
    try:
        app(list(words), prog_name=f"run.py {name}")
    except SystemExit:
        if not kept:  # --help, or an option that is wrong
            raise
    return kept[0]


def main(words: list[str]) -> int:
    """The exit code. Options of every scenario: --machine TEXT and --results FOLDER."""
    known = scenarios()
    if not words or words[0] not in known:
        for name, sentence in known.items():
            typer.echo(f"  {name:20} {sentence}")
        typer.echo(
            "  With each: --machine TEXT names the machine, --results FOLDER keeps the figures there as NAME.json, too."
        )
        return 0 if words in ([], ["--help"]) else 2
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was started is stopped
    name, command = words[0], shlex.join(["loadtests/run.py", *words])
    machine, folder = (find_option(words, each) for each in ("--machine", "--results"))
    try:
        result = run_scenario(name, words[1:])
    except ScenarioError as error:
        typer.echo(f"{name}: {error}", err=True)
        return 1
    result.command, result.machine = command, machine or result.machine
    reports = Path(find_option(words, "--reports", take=False) or "build/load")
    result.write(reports / f"{name}.json")
    (reports / f"{name}.md").write_text(result.markdown())
    if folder:
        result.write(Path(folder) / f"{name}.json")
    typer.echo(f"\n{result.markdown()}")
    return 0 if result.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
