"""docs/corpora.md and the code: columns, options."""

import re
from collections.abc import Iterable
from pathlib import Path

import typer
from turnscore_corpus.command import app
from turnscore_corpus.outputs import folder as columns
from turnscore_corpus.outputs.folder import Column

PAGE = (Path(__file__).parents[3] / "docs" / "corpora.md").read_text()


def rows_of(table: str, listed: Iterable[Column], prefix: str = "") -> list[str]:
    return [f"| `{table}` | `{prefix}{each.name}` | {each.type} | {each.meaning} |" for each in listed]


def documented() -> list[str]:
    return [line for line in PAGE.splitlines() if re.match(r"\| `(turns|dialogues|set_aside)` \|", line)]


def test_every_column_is_documented_and_no_other():
    assert documented() == [
        *rows_of("turns", columns.TURN),
        *rows_of("turns", columns.TURN_SCORES, "<scorer>_"),
        *rows_of("dialogues", columns.DIALOGUE),
        *rows_of("dialogues", columns.DIALOGUE_SCORES, "<scorer>_"),
        *rows_of("set_aside", columns.SET_ASIDE),
    ]


def test_every_option_is_documented_and_no_other():
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {
        word
        for command in commands.values()
        for each in command.params
        for word in each.opts
        if word.startswith("--") and word != "--help"
    }
    listed = {word for line in PAGE.splitlines() if line.startswith("| `--") for word in re.findall(r"--[a-z-]+", line)}
    assert listed == options
