"""docs/corpora.md and the code: columns, options."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import typer
from turnscore_corpus.commands.main import app
from turnscore_corpus.outputs import columns
from turnscore_corpus.outputs.columns import Column

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


def test_a_table_has_the_columns_that_are_documented():
    names = columns.schema_of("turns", ["a", "b"]).names
    assert names == [each.name for each in columns.TURN] + [
        f"{scorer}_{each.name}" for scorer in "ab" for each in columns.TURN_SCORES
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


def numbers_behind(label: str, column: int) -> float:
    """The number in that column of the row that begins so; a comma separates thousands."""
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| {label}")]
    return float(row.split(" | ")[column].split()[0].replace(",", ""))


@pytest.mark.parametrize("column", [1, 2])
def test_what_a_hundred_million_turns_take_follows_from_what_was_measured(column: int):
    def of(label: str) -> float:
        return numbers_behind(label, column)

    milliseconds, dialogue = of("turn: CPU time"), of("dialogue: system turns")
    planned = numbers_behind("reading the input once", column)
    hours = 1e8 * milliseconds / 1000 / 3600
    expected = {
        "CPU hours": hours,
        "cores for a night of 10 hours": math.ceil(hours / 10),
        "memory for so many workers": math.ceil(hours / 10) * of("worker: memory at most") / 1024,
        "input as JSON lines": of("turn: bytes read") / 10,
        "output |": of("turn: bytes written") / 10,
        "blocks of 1,000": 1e8 / dialogue / 1000,
        "files of the output": 4 * 1e8 / dialogue / 1000,
        "what a killed worker loses": dialogue * milliseconds,
    }
    assert {label: of(label) for label in expected} == {
        label: pytest.approx(value, rel=0.02) for label, value in expected.items()
    }
    assert planned == pytest.approx(1000 * of("input as JSON lines") / 428, rel=0.02)
