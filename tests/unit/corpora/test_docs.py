"""docs/corpora.md and the code: columns, options."""

import re
from pathlib import Path

import typer
from turnscore_corpus.command import app
from turnscore_corpus.outputs import folder as columns

PAGE = (Path(__file__).parents[3] / "docs" / "corpora.md").read_text()


TABLES = {
    "turns": ((columns.TURN, ""), (columns.TURN_SCORES, "<scorer>_")),
    "dialogues": ((columns.DIALOGUE, ""), (columns.DIALOGUE_SCORES, "<scorer>_")),
    "set_aside": ((columns.SET_ASIDE, ""),),
}


def test_every_column_is_documented_and_no_other():
    tables_of = {}
    for table, parts in TABLES.items():
        for listed, prefix in parts:
            for each in listed:
                row = f"| `{prefix}{each.name}` | {each.type} | {each.meaning} |"
                tables_of.setdefault(row, []).append(f"`{table}`")
    documented = {
        row: tables.split(", ")
        for tables, rows in re.findall(r"^In (`.+`):\n\n\| column .*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
        for row in rows.splitlines()
    }
    assert documented == tables_of
    assert PAGE.count("| column |") == len({tuple(tables) for tables in tables_of.values()})


def test_every_option_is_documented_and_no_other():
    commands = typer.main.get_command(app).commands
    words = {word for command in commands.values() for each in command.params for word in each.opts}
    options = {word for word in words if word.startswith("--")} - {"--help"}
    listed = {word for line in PAGE.splitlines() if line.startswith("| `--") for word in re.findall(r"--[a-z-]+", line)}
    assert listed == options
